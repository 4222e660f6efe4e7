// What the page says of a text that the model may not be able to translate: of another language, or unknown to it.
import { element } from "./elements.js";
import { post } from "./requests.js";
import { UNSURE, wordsOf } from "./translated_text.js";

const DETECTED = 100; // characters of a text from which its language is detected
const [FEWEST_WORDS, FEWEST_CHINESE] = [2, 4]; // fewer words say too little of their language
const LIKELY = 70; // percent: on 600 dev sentences of Tatoeba, another language was 70 % likely for 2 right ones
const MUCH_UNKNOWN = 0.2; // of the characters
const names = new Intl.DisplayNames("en", { type: "language" });

export class Advice {
  /** `swap(model)` is called with the model that the user prefers to the current one. */
  constructor(root, swap) {
    Object.assign(this, { root, swap, detected: new Map() });
  }

  clear() {
    this.root.replaceChildren();
  }

  /** Say what is odd about a text and its translation, if anything is. */
  async show(text, sentences, model, models, signal) {
    const found = await this.otherLanguage(text, model, models, signal);
    if (signal.aborted) return;
    if (found) {
      const language = names.of(found.source), from = `Translate from ${language}`;
      const button = element("button", { type: "button", onclick: () => this.swap(found) }, from);
      this.root.replaceChildren(`This looks like ${language}, but the model translates from ${names.of(model.source)}. `, button);
    } else this.root.textContent = this.warning(sentences, model);
  }

  warning(sentences, model) {
    const language = model.source ? names.of(model.source) : "the language of the model";
    const unknown = average(sentences.map(({ unknown, source }) => [unknown ?? 0, source.length]));
    if (unknown >= MUCH_UNKNOWN)
      return `The model does not know ${Math.round(100 * unknown)} % of these characters, so the translation is a guess. It translates from ${language}.`;
    const words = sentences.flatMap(wordsOf), unsure = words.filter(([, sure]) => sure < UNSURE).length;
    if (words.length >= 3 && unsure > words.length / 2)
      return `The model is unsure of most words of this translation. It translates from ${language}.`;
    return "";
  }

  /** Return a model that translates from the language of the text, if that is another one than the current model's. */
  async otherLanguage(text, model, models, signal) {
    const others = models.filter((one) => one.source && one.source !== model.source);
    const beginning = beginningOf(text);
    if (!model.source || !others.length || !tellsLanguage(beginning)) return null;
    if (!this.detected.has(beginning)) this.detected.set(beginning, await (await post("/detect", { q: beginning }, signal)).json());
    const [best] = this.detected.get(beginning);
    if (best.confidence < LIKELY) return null;
    const able = others.filter((one) => one.source === best.language);
    return able.find((one) => one.target === model.source) ?? able[0] ?? null;
  }
}

const tellsLanguage = (text) => (text.match(/\p{L}{2,}/gu) ?? []).length >= FEWEST_WORDS || (text.match(/\p{sc=Han}/gu) ?? []).length >= FEWEST_CHINESE;

/** Return the first words of a text. */
function beginningOf(text) {
  const trimmed = text.trim();
  return trimmed.length <= DETECTED ? trimmed : trimmed.slice(0, DETECTED).replace(/\s+\S*$/u, "");
}

function average(weighted) {
  const total = weighted.reduce((sum, [, weight]) => sum + weight, 0);
  return total ? weighted.reduce((sum, [value, weight]) => sum + value * weight, 0) / total : 0;
}
