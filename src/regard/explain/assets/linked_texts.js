// Texts of a page whose words are linked with those of the pictures of attention.

export class LinkedTexts {
  /** `texts` are [{axis, parts}], each part {element, tokens}; `view` finds the words of tokens, and highlights them. */
  constructor(texts, view) {
    this.texts = texts;
    for (const { axis, parts } of texts)
      for (const { element, tokens } of parts) {
        const place = () => view.find(axis, tokens[0]);
        element.addEventListener("mouseenter", () => view.highlight(place()));
        element.addEventListener("mouseleave", () => view.highlight(view.pinned));
        element.addEventListener("focus", () => view.highlight(place(), true));
        element.addEventListener("click", () => view.highlight((view.pinned = place())));
      }
  }

  /** Marks a word, and those of the other side by their `weights`; nothing with null. */
  highlight(pointed, weights, sides) {
    for (const { axis, parts } of this.texts) {
      const own = pointed && tokensOf(sides[pointed.side], axis, pointed.at);
      const other = pointed && sides[pointed.side === "query" ? "key" : "query"];
      for (const { element, tokens } of parts) {
        const pointedAt = Boolean(own?.includes(tokens[0]));
        const word = other && !pointedAt ? other.groups.findIndex((_, at) => tokensOf(other, axis, at)?.includes(tokens[0])) : -1;
        element.classList.toggle("pointed", pointedAt);
        element.style.setProperty("--link", word < 0 ? 0 : weights[word].toFixed(3));
      }
    }
  }
}

/** Returns the tokens of a text that a word of a picture stands for; null if it is not of this text. */
function tokensOf({ axis, groups }, name, at) {
  const shift = axis === name ? 0 : axis === "read" && name === "target" ? -1 : null; // the decoder input has BOS in front
  return shift === null ? null : groups[at].map((token) => token + shift);
}
