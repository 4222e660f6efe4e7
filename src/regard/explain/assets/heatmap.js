// Attention as a matrix of shades.
import { element, fill } from "./elements.js";

const FONT = "system-ui, sans-serif";
const [LARGEST, LABELLED, SMALLEST] = [26, 8, 2]; // pixels of a cell; with a label; at all
const MOST_LABEL = 130; // pixels of a label; longer ones are shortened
const ANGLE = Math.PI / 3; // of the labels above the columns

/** A matrix with queries down and keys across, at most `room` pixels wide if its cells can be as small as that. */
export class Heatmap {
  constructor({ queries, keys, matrix, headings, label, room = 900, pointer, say = fill }) {
    Object.assign(this, { queries, keys, matrix, headings, pointer });
    this.canvas = element("canvas", { role: "img", "aria-label": say("{label}: {rows} down, {columns} across", { label, rows: headings[0], columns: headings[1] }) });
    this.frame = element("span", { class: "frame", hidden: true }); // around the row or the column of a word
    this.pen = this.canvas.getContext("2d");
    this.measure(room);
    const cropped = this.width > room;
    this.root = element("figure", { class: "heatmap", style: `width: ${Math.min(this.width, room)}px` },
      element("figcaption", {}, label, ...(cropped ? [element("strong", {}, ` ${say("Wider than the page: scroll sideways.")}`)] : [])),
      element("div", { class: "scroll", ...(cropped ? { tabindex: 0, role: "group", "aria-label": label } : {}) }, this.canvas, this.frame),
      element("p", { class: "scale" }, "0 %", element("span", { class: "shades" }), "100 %"),
    );
    if (pointer) this.listen();
    this.draw();
  }

  /** Choose the size of a cell and of the margins. */
  measure(room) {
    const { queries, keys } = this;
    const margins = (cell) => {
      this.size = Math.min(12, cell);
      this.pen.font = `${this.size}px ${FONT}`;
      const wide = (word) => Math.min(MOST_LABEL, this.pen.measureText(word).width);
      const left = 24 + Math.max(0, ...queries.map(wide)), top = 24 + Math.sin(ANGLE) * Math.max(0, ...keys.map(wide));
      const right = Math.max(...keys.map((word, column) => Math.cos(ANGLE) * wide(word) + this.size - (keys.length - column - 0.5) * cell), 2);
      return { left, top, right };
    };
    const width = ({ left, right }, cell) => left + keys.length * cell + right;
    let cell = LARGEST;
    while (cell > LABELLED && width(margins(cell), cell) > room) cell--;
    this.margin = margins(cell);
    this.labelled = width(this.margin, cell) <= room;
    if (!this.labelled) {
      this.margin = { left: 20, top: 20, right: 2 };
      cell = Math.max(SMALLEST, Math.min(LABELLED, Math.floor((room - 22) / keys.length)));
    }
    this.cell = cell;
    this.width = Math.ceil(width(this.margin, cell));
    this.height = Math.ceil(this.margin.top + queries.length * cell + 2);
  }

  draw() {
    const { pen, cell, labelled, queries, keys, matrix, headings, width, height } = this, { left, top } = this.margin;
    const scale = Math.min(2, window.devicePixelRatio || 1);
    Object.assign(this.canvas, { width: width * scale, height: height * scale });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const style = getComputedStyle(document.documentElement);
    const [ink, quiet, accent] = ["--ink", "--quiet", "--accent"].map((name) => style.getPropertyValue(name));
    const gap = cell >= LABELLED ? 1 : 0;
    pen.scale(scale, scale);
    pen.fillStyle = accent;
    for (let row = 0; row < matrix.rows; row++)
      for (let column = 0; column < matrix.columns; column++) {
        pen.globalAlpha = matrix.values[row * matrix.columns + column];
        pen.fillRect(left + column * cell, top + row * cell, cell - gap, cell - gap);
      }
    pen.globalAlpha = 1;
    pen.textBaseline = "middle";
    pen.font = `600 11px ${FONT}`;
    pen.fillStyle = quiet;
    pen.fillText(`${headings[1]} \u2192`, left, 8);
    pen.save();
    pen.translate(8, top);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "right";
    pen.fillText(`\u2190 ${headings[0]}`, 0, 0);
    pen.restore();
    if (!labelled) return;
    pen.font = `${this.size}px ${FONT}`;
    pen.fillStyle = ink;
    pen.textAlign = "right";
    queries.forEach((word, row) => pen.fillText(this.shortened(word), left - 5, top + (row + 0.5) * cell));
    pen.textAlign = "left";
    keys.forEach((word, column) => {
      pen.save();
      pen.translate(left + (column + 0.5) * cell, top - 5);
      pen.rotate(-ANGLE);
      pen.fillText(this.shortened(word), 0, 0);
      pen.restore();
    });
  }

  shortened(word) {
    let text = word;
    while (text && this.pen.measureText(text).width > MOST_LABEL) text = text.replace(/.\u2026?$/u, "\u2026");
    return text;
  }

  listen() {
    const place = ({ offsetX, offsetY }) => {
      const [column, at] = [(offsetX - this.margin.left) / this.cell, (offsetY - this.margin.top) / this.cell].map(Math.floor);
      if (at < 0 || at >= this.queries.length || column >= this.keys.length) return null;
      return column < 0 ? { side: "query", at } : { side: "query", at, column, weight: this.matrix.values[at * this.matrix.columns + column] };
    };
    const tell = (found, does) => (found ? this.pointer[does](found) : this.pointer.leave());
    this.canvas.addEventListener("mousemove", (event) => tell(place(event), "enter"));
    this.canvas.addEventListener("mouseleave", () => this.pointer.leave());
    this.canvas.addEventListener("click", (event) => tell(place(event), "pin"));
  }

  /** Frames the row or the column of a word, or a cell; nothing with null. */
  highlight(pointed) {
    const { cell, frame } = this, { left, top } = this.margin;
    frame.hidden = !pointed;
    if (!pointed) return;
    const row = pointed.side === "query" ? pointed.at : undefined, column = row === undefined ? pointed.at : pointed.column;
    Object.assign(frame.style, {
      left: `${left + (column ?? 0) * cell}px`, top: `${top + (row ?? 0) * cell}px`,
      width: `${cell * (column === undefined ? this.keys.length : 1)}px`, height: `${cell * (row === undefined ? this.queries.length : 1)}px`,
    });
  }
}
