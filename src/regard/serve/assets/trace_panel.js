// How a sentence was translated: its tokens with alternatives, and attention.
import { AttentionView } from "./attention.js";
import { element } from "./elements.js";
import { linkedWords, markOpened, outputTokens, showAlternatives, tokenAt } from "./output.js";
import { post } from "./requests.js";

const SPECIAL = 2; // ids up to this one are no text

const $ = (id) => document.getElementById(id);

export class TracePanel {
  /** `translation` is a TranslatedText. */
  constructor(translation, { model, status }) {
    Object.assign(this, { translation, model, status });
  }

  hide() {
    $("others").hidden = true;
    $("looked").hidden = true;
  }

  /** Show how a sentence is translated, optionally with forced first tokens. With a place in its text, the alternatives there are shown. */
  async show(number, { prefix = [], place = null } = {}) {
    this.status("computing attention ...");
    const sentence = this.translation.sentences[number];
    try {
      const trace = await (await post("/v1/look", { text: sentence.source, model: this.model().name, prefix })).json();
      if (this.translation.sentences[number] !== sentence) return; // the text has changed meanwhile
      const at = place === null || trace.target.text !== sentence.text ? null : tokenAt(trace, place);
      this.translation.replace(number, trace.target.text);
      $("looked").hidden = false;
      const { nodes, parts } = outputTokens(trace, { choose: (place, token) => this.choose(number, trace, place, token) });
      $("output").querySelectorAll(".part")[number].replaceWith(element("span", { class: "tokens" }, ...nodes));
      this.drawAttention(trace, parts);
      parts[at ?? 0]?.element.focus();
      if (at !== null) parts[at].element.click();
      this.status("");
    } catch (problem) {
      this.status(problem.message);
    }
  }

  /** Draw the attention of a trace with the layer, the heads and the picture that were chosen before. */
  drawAttention(trace, parts) {
    $("attention").replaceChildren();
    const texts = [{ axis: "source", parts: linkedWords($("which"), trace.source) }, { axis: "target", parts }];
    if (trace.attentions.length) this.view = new AttentionView($("attention"), trace, { texts, choice: this.view?.choice });
    else $("attention").append(element("p", { class: "note" }, "This model has no attention."));
  }

  choose(number, trace, at, token) {
    const found = (trace.alternatives[at] ?? []).filter((one) => one.id > SPECIAL);
    markOpened($("output"), token);
    showAlternatives($("others"), trace, at, found, (one) => {
      $("others").hidden = true;
      this.show(number, { prefix: [...trace.target.ids.slice(0, at), one.id] });
    });
  }

  close() {
    $("others").hidden = true;
    markOpened($("output"), null)?.focus();
  }
}
