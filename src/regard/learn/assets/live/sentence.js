// The sentence of a figure that needs the model: a form, a line for what happens, and the model when the figure is seen.
import { element } from "./elements.js";
import { loadModel, whenSeen } from "./model.js";
import { say } from "./words.js";

const MOST = 24; // tokens that are shown

/** Puts a form into a figure and calls `compute(model, read)` with the tokens of the reader's sentence. */
export function sentenceForm(host, compute) {
  const input = element("input", { type: "text", value: host.dataset.text, maxlength: 300, spellcheck: "false", autocomplete: "off", lang: "en" });
  const button = element("button", { type: "submit" }, say("Compute"));
  const state = element("p", { class: "state", role: "status" });
  const label = element("label", {}, element("span", {}, say("Your sentence, in English")), input);
  const form = element("form", { class: "sentence", onsubmit: (event) => (event.preventDefault(), answer()) }, label, button);
  host.replaceChildren(form, state);

  async function answer() {
    state.textContent = say("Loading the model: 12 MB, once.");
    try {
      const model = await loadModel(), read = model.read(input.value.trim() || host.dataset.text);
      state.textContent = read.ids.length > MOST ? say("The sentence is cut to {count} tokens.", { count: MOST }) : "";
      if (read.ids.length > MOST) Object.assign(read, model.cut(read, MOST));
      await compute(model, read, state);
      host.dataset.ready = read.tokens.length;
    } catch (problem) {
      state.textContent = say("The figure cannot be computed: {reason}", { reason: problem.message });
    }
  }
  whenSeen(host, answer);
  document.addEventListener("regard-language", () => {
    label.firstChild.textContent = say("Your sentence, in English");
    button.textContent = say("Compute");
  });
}
