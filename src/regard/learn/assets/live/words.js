// What the figures say, in the language of the page. English is the key; what is missing in Chinese stays English.

const CHINESE = {
  Compute: "计算",
  Sentence: "句子",
};

export function say(text) {
  return document.documentElement.dataset.lang === "zh" ? (CHINESE[text] ?? text) : text;
}
