// What the figures say, in the language of the page. English is the key; what is missing in Chinese stays English.

const CHINESE = {
  Compute: "计算",
  Sentence: "句子",
};

/** A text with values in it: say("layer {number}", { number: 1 }). */
export function say(text, values = {}) {
  const found = document.documentElement.dataset.lang === "zh" ? (CHINESE[text] ?? text) : text;
  return found.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

/** Calls `draw` again when another language or other colours are chosen, or a window becomes narrow. */
export function redrawn(draw) {
  for (const event of ["regard-language", "regard-theme"]) document.addEventListener(event, draw);
  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 40rem)"]) matchMedia(query).addEventListener("change", draw);
}
