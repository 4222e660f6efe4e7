// Attention as lines between two columns of words.
import { SVG, element, percent, walk } from "./elements.js";
import { meanOverHeads } from "./weights.js";

const MIN_WEIGHT = 0.04; // smaller weights get no line, unless the pointer is on one of their words

/** Two columns of words with lines between them. `layers` is [{label, colour, matrix}], drawn on top of each other. */
export class Lines {
  constructor({ queries, keys, layers, headings, say }) {
    this.layers = layers;
    this.say = say;
    this.queries = this.column(queries, headings[0], "query");
    this.keys = this.column(keys, headings[1], "key");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.root = element("div", { class: "lines" }, this.queries.root, this.svg, this.keys.root);
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  column(words, heading, side) {
    const buttons = words.map((word, at) =>
      element("button", {
        type: "button", class: "word", "data-at": at,
        onmouseenter: () => this.point(side, at), onmouseleave: () => this.point(null, 0),
        onfocus: () => this.point(side, at, true), onblur: () => this.point(null, 0),
        onkeydown: (event) => walk(event, buttons, at),
      }, word),
    );
    buttons.forEach((button, at) => (button.tabIndex = at === 0 ? 0 : -1));
    return { root: element("div", { class: side, role: "group", "aria-label": heading }, element("h3", {}, heading), ...buttons), buttons, words };
  }

  draw() {
    const box = this.svg.getBoundingClientRect();
    this.svg.replaceChildren();
    if (!box.height) return;
    const middle = (button) => button.getBoundingClientRect().top + button.offsetHeight / 2 - box.top;
    const from = this.queries.buttons.map(middle), to = this.keys.buttons.map(middle);
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

  /** Highlights the attention of a query word, or to a key word. `aloud` also announces it to screen readers. */
  point(side, at, aloud = false) {
    this.pointed = side && { side, at };
    for (const column of [this.queries, this.keys])
      for (const button of column.buttons) button.style.removeProperty("--weight");
    if (side) {
      const mean = meanOverHeads(this.layers.map((layer) => layer.matrix));
      const other = side === "query" ? this.keys : this.queries;
      const weights = other.buttons.map((_, index) =>
        side === "query" ? mean.values[at * mean.columns + index] : mean.values[index * mean.columns + at],
      );
      other.buttons.forEach((button, index) => button.style.setProperty("--weight", weights[index].toFixed(3)));
      const own = (side === "query" ? this.queries : this.keys).words[at];
      const best = weights.map((weight, index) => [weight, other.words[index]]).sort((a, b) => b[0] - a[0]).slice(0, 4);
      const list = best.filter(([weight]) => weight >= 0.01).map(([weight, word]) => `${word} ${percent(weight)}`).join(", ");
      this.say(side === "query" ? `${own} looks at ${list || "nothing"}` : `${own} is seen by ${list || "nobody"}`, aloud);
    } else this.say("", false);
    this.draw();
  }
}
