// The sentence of a figure that needs the model: a form, a line for what happens, and the model when the figure is seen.
import { element } from "./elements.js";
import { loadModel, whenSeen } from "./model.js";
import { say } from "./words.js";

const MOST = 24; // tokens that are shown
const MODELS = [
  { name: "en-de", lang: "en", title: "English to German", asks: "Your sentence, in English", option: "text" },
  { name: "zh-en", lang: "zh-CN", title: "Chinese to English, a small teaching model", asks: "Your sentence, in Chinese", option: "text_zh" },
];

/** Puts a form into a figure and calls `compute(model, read)` with the tokens of the reader's sentence; it returns the translation. */
export function sentenceForm(host, compute) {
  const input = element("input", { type: "text", maxlength: 300, spellcheck: "false", autocomplete: "off" });
  const button = element("button", { type: "submit" }), name = element("span"), state = element("p", { class: "state", role: "status" });
  const options = MODELS.map(() => element("option")), modelName = element("span");
  const select = element("select", { onchange: () => (use(select.selectedIndex), answer()) }, ...options);
  const form = element("form", { class: "sentence", onsubmit: (event) => (event.preventDefault(), answer()) },
    element("label", {}, name, input), element("label", { class: "model" }, modelName, select), button);
  const texts = MODELS.map(({ option }) => host.dataset[option]); // what was typed last for each model
  let chosen = MODELS[0];
  let told = []; // [text, values]
  let latest = 0; // number of the newest sentence; older ones are forgotten

  function write() {
    name.textContent = say(chosen.asks);
    modelName.textContent = say("Model");
    MODELS.forEach(({ title }, at) => (options[at].textContent = say(title)));
    button.textContent = say("Compute");
    state.textContent = told.map((one) => say(...one)).join(" ");
  }

  function tell(...lines) {
    told = lines;
    write();
  }

  function use(at) {
    texts[MODELS.indexOf(chosen)] = input.value || texts[MODELS.indexOf(chosen)];
    chosen = MODELS[at];
    input.value = texts[at];
    input.lang = chosen.lang;
  }

  async function answer() {
    const number = ++latest;
    tell(["Loading the model: 12 MB, once."]);
    try {
      const model = await loadModel(chosen.name), whole = model.read(input.value.trim() || host.dataset[chosen.option]);
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
  use(0);
  write();
  whenSeen(host, answer);
  document.addEventListener("regard-language", write);
}
