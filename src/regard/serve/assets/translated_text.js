// The translation on the page: sentences that can be chosen, with marks below words that the model is unsure of.
import { element, percent, wordSpans } from "./elements.js";

export const [SURE, UNSURE] = [0.6, 0.3]; // confidence in a word, below which it is underlined with dots, or with a wave

export class TranslatedText {
  /** `look(number, at)` is called for a sentence that is chosen, and the place of the character in it that was clicked. */
  constructor(root, look) {
    Object.assign(this, { root, look });
    this.show([], [""]);
  }

  /** Dim what is shown, until there is a new translation. */
  begin() {
    this.old = this.root.textContent.length;
    this.root.classList.add("old");
  }

  /** Show the beginning of a new translation once it is as long as the old one, so that typing does not empty the page. */
  partial(text) {
    if (text.length < this.old) return;
    this.root.classList.remove("old");
    this.root.textContent = text;
  }

  /** `sentences` are {source, text, nbest}; `separators` is the text before, between and after them. */
  show(sentences, separators) {
    Object.assign(this, { sentences, separators });
    this.root.classList.remove("old");
    this.root.replaceChildren(separators[0] ?? "");
    sentences.forEach((sentence, number) => this.root.append(this.button(sentence, number), separators[number + 1]));
  }

  /** Show another translation of one sentence. */
  replace(number, text) {
    this.sentences[number] = { ...this.sentences[number], text };
    this.show(this.sentences, this.separators);
  }

  get text() {
    return this.separators[0] + this.sentences.map((one, number) => one.text + this.separators[number + 1]).join("");
  }

  button(sentence, number) {
    const look = (event) => {
      if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      const word = event.target.closest("[data-at]");
      this.look(number, word ? Number(word.dataset.at) : null);
    };
    // Not a button element, in which some browsers do not say which word was clicked.
    return element("span", { role: "button", tabindex: 0, class: "part", "aria-label": `${sentence.text}.${unsureOf(sentence)} Show alternatives and attention`, onclick: look, onkeydown: look }, ...markedWords(sentence));
  }
}

export const wordsOf = (sentence) => sentence.nbest?.[0]?.text === sentence.text ? sentence.nbest[0].words ?? [] : [];

/** Return which words the model is unsure of, to be read aloud. */
function unsureOf(sentence) {
  const found = wordsOf(sentence).filter(([, sure]) => sure < SURE).map(([word, sure]) => `${word} (${percent(sure)})`);
  return found.length ? ` Less sure of: ${found.join(", ")}.` : "";
}

/** Return the words of a sentence; those that the model is unsure of are underlined. */
function markedWords(sentence) {
  const found = [];
  let at = 0;
  for (const [word, sure] of wordsOf(sentence)) {
    const begin = sentence.text.indexOf(word, at);
    if (begin < 0) continue;
    if (sure >= SURE) continue;
    found.push(...wordSpans(sentence.text.slice(at, begin), at));
    found.push(element("span", { class: sure < UNSURE ? "unsure" : "less-sure", title: percent(sure), "data-at": begin }, word));
    at = begin + word.length;
  }
  return [...found, ...wordSpans(sentence.text.slice(at), at)];
}
