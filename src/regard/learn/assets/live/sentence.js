// The sentence of a figure that needs the model: a form, a line for what happens, and the model when the figure is seen.
import { element } from "./elements.js";
import { loadModel, whenSeen } from "./model.js";
import { say } from "./words.js";

const MOST = 24; // tokens that are shown

/** Puts a form into a figure and calls `compute(model, read)` with the tokens of the reader's sentence; it returns the translation. */
export function sentenceForm(host, compute) {
  const input = element("input", { type: "text", value: host.dataset.text, maxlength: 300, spellcheck: "false", autocomplete: "off", lang: "en" });
  const button = element("button", { type: "submit" }), name = element("span"), state = element("p", { class: "state", role: "status" });
  const form = element("form", { class: "sentence", onsubmit: (event) => (event.preventDefault(), answer()) }, element("label", {}, name, input), button);
  let told = []; // [text, values]
  let latest = 0; // number of the newest sentence; older ones are forgotten

  function write() {
    name.textContent = say("Your sentence, in English");
    button.textContent = say("Compute");
    state.textContent = told.map((one) => say(...one)).join(" ");
  }

  function tell(...lines) {
    told = lines;
    write();
  }

  async function answer() {
    const number = ++latest;
    tell(["Loading the model: 12 MB, once."]);
    try {
      const model = await loadModel(), whole = model.read(input.value.trim() || host.dataset.text);
      const cut = whole.ids.length > MOST, read = cut ? model.cut(whole, MOST) : whole;
      const note = cut ? [["The sentence is cut to {count} tokens.", { count: MOST }]] : [];
      if (number !== latest) return;
      tell(...note);
      const text = await compute(model, read);
      if (number !== latest) return;
      tell(...note, ["The model translates: {text}", { text }]);
      host.dataset.ready = read.tokens.length;
    } catch (problem) {
      if (number === latest) tell(["The figure cannot be computed: {reason}", { reason: problem.message }]);
    }
  }

  host.replaceChildren(form, state);
  write();
  whenSeen(host, answer);
  document.addEventListener("regard-language", write);
}
