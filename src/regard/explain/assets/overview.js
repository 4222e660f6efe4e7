// All heads of all layers as small heatmaps, one row per layer.
import { element } from "./elements.js";

const [WIDEST, NARROWEST] = [132, 34]; // pixels of a picture

/** `heads` are [{label, layer, head, matrix}]. Choosing a picture shows its head in `view`. */
export class Overview {
  constructor({ headings, heads, room, view }) {
    const layers = Math.max(...heads.map((one) => one.layer)), columns = Math.max(...heads.map((one) => one.head)) + 1;
    const size = Math.max(NARROWEST, Math.min(WIDEST, Math.floor((room - 64) / columns) - 6));
    const { choice, silence } = view, cells = [element("span", {})];
    for (let head = 1; head <= columns; head++) cells.push(element("span", { class: "head" }, columns > 8 || size < 60 ? String(head) : `head ${head}`));
    for (let layer = 1; layer <= layers; layer++) {
      cells.push(element("span", { class: "layer" }, `layer ${layer}`));
      for (const one of heads.filter((some) => some.layer === layer)) {
        const chosen = choice.layer === layer && choice.heads.has(one.head), silent = silence?.has(choice.name, layer, one.head);
        cells.push(
          element("button", {
            type: "button", class: silent ? "small silent" : "small", "aria-pressed": String(chosen), "aria-label": `${one.label}${silent ? ", silenced" : ""}`, title: one.label,
            onclick: () => view.choose({ layer, heads: new Set([one.head]), view: "lines" }),
          }, thumbnail(one.matrix, size)),
        );
      }
    }
    const grid = element("div", { class: "grid", style: `grid-template-columns: max-content repeat(${columns}, max-content)` }, ...cells);
    this.root = element("figure", { class: "overview" },
      element("figcaption", {}, `Every head of every layer: ${headings[0]} down, ${headings[1]} across. Choose one to see its words.`),
      element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Pictures of every head" }, grid),
      element("p", { class: "scale" }, "0 %", element("span", { class: "shades" }), "100 %"),
    );
    this.heads = heads;
    this.frames = [...this.root.querySelectorAll("canvas")];
  }

  /** Marks the row or the column of a word in all pictures; nothing with null. */
  highlight(pointed) {
    const at = pointed && (pointed.at + 0.5) / this.heads[0].matrix[pointed.side === "query" ? "rows" : "columns"];
    for (const frame of this.frames) {
      frame.parentElement.classList.toggle("across", pointed?.side === "query");
      frame.parentElement.classList.toggle("down", pointed?.side === "key");
      if (pointed) frame.parentElement.style.setProperty("--at", `${100 * at}%`);
    }
  }
}

/** Returns a matrix as a canvas with one pixel per cell, enlarged. */
function thumbnail({ rows, columns, values }, size) {
  const canvas = element("canvas", { width: columns, height: rows, "aria-hidden": "true", style: `width: ${size}px; height: ${size}px` }), pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  for (let at = 0; at < values.length; at++) {
    pen.globalAlpha = values[at];
    pen.fillRect(at % columns, Math.floor(at / columns), 1, 1);
  }
  return canvas;
}
