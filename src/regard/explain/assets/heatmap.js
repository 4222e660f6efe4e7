// Attention as a matrix of shades.
import { element, percent } from "./elements.js";

/** A matrix of shades. The pointer on a cell shows its words and its weight. */
export class Heatmap {
  constructor({ queries, keys, matrix, headings, label, say }) {
    const longest = (words) => Math.min(18, Math.max(...words.map((word) => [...word].length), 1));
    const cell = Math.max(4, Math.min(26, Math.floor(900 / Math.max(queries.length, keys.length))));
    const small = cell < 12;
    this.canvas = element("canvas", { role: "img", "aria-label": `${label}: ${headings[0]} down, ${headings[1]} across` });
    const left = small ? 8 : 9 * longest(queries), top = small ? 8 : 8 * longest(keys);
    const scale = Math.min(2, window.devicePixelRatio || 1);
    const width = left + keys.length * cell + 4, height = top + queries.length * cell + 4;
    Object.assign(this.canvas, { width: width * scale, height: height * scale });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const style = getComputedStyle(document.documentElement);
    const [ink, accent] = [style.getPropertyValue("--ink"), style.getPropertyValue("--accent")];
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.fillStyle = accent;
    for (let row = 0; row < matrix.rows; row++)
      for (let column = 0; column < matrix.columns; column++) {
        pen.globalAlpha = matrix.values[row * matrix.columns + column];
        pen.fillRect(left + column * cell, top + row * cell, cell - (small ? 0 : 1), cell - (small ? 0 : 1));
      }
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    pen.font = "12px system-ui, sans-serif";
    if (!small) {
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      queries.forEach((word, row) => pen.fillText(word.slice(0, 18), left - 6, top + (row + 0.5) * cell));
      pen.textAlign = "left";
      keys.forEach((word, column) => {
        pen.save();
        pen.translate(left + (column + 0.5) * cell, top - 6);
        pen.rotate(-Math.PI / 3);
        pen.fillText(word.slice(0, 18), 0, 0);
        pen.restore();
      });
    }
    this.canvas.addEventListener("mousemove", (event) => {
      const column = Math.floor((event.offsetX - left) / cell), row = Math.floor((event.offsetY - top) / cell);
      const inside = row >= 0 && row < matrix.rows && column >= 0 && column < matrix.columns;
      say(inside ? `${queries[row]} looks at ${keys[column]}: ${percent(matrix.values[row * matrix.columns + column])}` : "", false);
    });
    this.root = element("figure", {}, element("figcaption", {}, label), element("div", { class: "scroll" }, this.canvas));
  }
}
