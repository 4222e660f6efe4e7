// Attention as lines between two columns of words.
import { SVG, element, walk } from "./elements.js";

const MIN_WEIGHT = 0.04; // smaller weights get no line, unless one of their words is pointed at

/** Two columns of words with lines between them. `layers` is [{label, colour, matrix}], drawn on top of each other. `pointer`
    is called with what the user does with a word: enter({side, at}, aloud), leave(), pin({side, at}). */
export class Lines {
  constructor({ queries, keys, layers, headings, pointer }) {
    this.layers = layers;
    this.pointer = pointer;
    this.query = this.column(queries, headings[0], "query");
    this.key = this.column(keys, headings[1], "key");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("aria-hidden", "true");
    const picture = element("div", { class: "lines" }, this.query.root, this.svg, this.key.root);
    this.root = element("figure", {}, element("figcaption", {}, layers.map((one) => one.label).join(" · ")), picture);
    new ResizeObserver(() => this.draw()).observe(picture);
  }

  column(words, heading, side) {
    const { pointer } = this;
    const buttons = words.map((word, at) =>
      element("button", {
        type: "button", class: "word", "data-at": at, "aria-pressed": "false",
        onmouseenter: () => pointer.enter({ side, at }), onmouseleave: () => pointer.leave(),
        onfocus: () => pointer.enter({ side, at }, true), onblur: () => pointer.leave(),
        onclick: () => pointer.pin({ side, at }),
        onkeydown: (event) => walk(event, buttons, at),
      }, word),
    );
    buttons.forEach((button, at) => (button.tabIndex = at === 0 ? 0 : -1));
    return { root: element("div", { class: side, role: "group", "aria-label": heading }, element("h3", {}, heading), ...buttons), buttons };
  }

  draw() {
    const box = this.svg.getBoundingClientRect();
    this.svg.replaceChildren();
    if (!box.height) return;
    const middle = (button) => button.getBoundingClientRect().top + button.offsetHeight / 2 - box.top;
    const from = this.query.buttons.map(middle), to = this.key.buttons.map(middle);
    for (const { colour, matrix } of this.layers)
      for (let row = 0; row < matrix.rows; row++)
        for (let column = 0; column < matrix.columns; column++) {
          const weight = matrix.values[row * matrix.columns + column];
          const pointed = this.pointed && (this.pointed.side === "query" ? this.pointed.at === row : this.pointed.at === column);
          if (weight < (pointed ? 0.01 : MIN_WEIGHT)) continue;
          const line = document.createElementNS(SVG, "path");
          const [y1, y2, width] = [from[row], to[column], box.width];
          line.setAttribute("d", `M0 ${y1} C ${width / 2} ${y1} ${width / 2} ${y2} ${width} ${y2}`);
          line.setAttribute("stroke", colour);
          line.setAttribute("stroke-width", 1 + 5 * weight);
          line.setAttribute("opacity", this.pointed ? (pointed ? 0.25 + 0.75 * weight : 0.04) : 0.15 + 0.7 * weight);
          this.svg.append(line);
        }
  }

  /** Highlights one word, {side, at}, and shades the words of the other side by `weights`; nothing with null. */
  highlight(pointed, weights, pinned) {
    this.pointed = pointed;
    for (const side of ["query", "key"])
      this[side].buttons.forEach((button, at) => {
        const own = pointed?.side === side && pointed.at === at;
        button.classList.toggle("pointed", own);
        button.setAttribute("aria-pressed", String(pinned?.side === side && pinned.at === at));
        if (pointed && pointed.side !== side) button.style.setProperty("--weight", weights[at].toFixed(3));
        else button.style.removeProperty("--weight");
      });
    this.draw();
  }
}
