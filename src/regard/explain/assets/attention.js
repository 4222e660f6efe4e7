// Draws attention as lines between words and as heatmaps. Used by the files of `regard look` and by the page of `regard serve`.
//
// A trace holds axes under their names ({label, text, ids, tokens, words}) and `attentions`, each of which names its query axis
// and its key axis. Nothing here depends on what the axes mean, so the same code draws a translation, a tagger or a pointer network.

const PALETTE = 8;
const END = "</s>"; // how the token EOS is displayed
const MIN_WEIGHT = 0.04; // smaller weights get no line, unless the pointer is on one of their words

/** Returns the record of one layer with its weights decompressed: `matrices` has one {rows, columns, values} per head. */
export async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.weights), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new Uint16Array(await new Response(stream).arrayBuffer());
  const [heads, queries, keys] = packed.shape;
  const matrices = [];
  for (let head = 0; head < heads; head++) {
    const matrix = { rows: queries, columns: keys, values: new Float32Array(queries * keys) };
    for (let at = 0; at < queries * keys; at++) matrix.values[at] = values[head * queries * keys + at] / 65535;
    matrices.push(matrix);
  }
  return { ...packed, matrices };
}

export function meanOverHeads(matrices) {
  const { rows, columns } = matrices[0];
  const values = new Float32Array(rows * columns);
  for (const one of matrices) for (let at = 0; at < values.length; at++) values[at] += one.values[at] / matrices.length;
  return { rows, columns, values };
}

/** Returns how much of each input reaches each position through these layers. Half of each layer is its residual connection. */
export function attentionRollout(matrices) {
  const size = matrices[0].rows;
  let rollout = identity(size);
  for (const one of matrices) {
    const half = identity(size);
    for (let at = 0; at < half.length; at++) half[at] = 0.5 * half[at] + 0.5 * one.values[at];
    rollout = product(half, rollout, size);
  }
  return { rows: size, columns: size, values: rollout };
}

function identity(size) {
  const values = new Float32Array(size * size);
  for (let at = 0; at < size; at++) values[at * size + at] = 1;
  return values;
}

function product(left, right, size) {
  const out = new Float32Array(size * size);
  for (let row = 0; row < size; row++)
    for (let middle = 0; middle < size; middle++) {
      const factor = left[row * size + middle];
      if (factor === 0) continue;
      for (let column = 0; column < size; column++) out[row * size + column] += factor * right[middle * size + column];
    }
  return out;
}

/** Returns weights between words: the sum over the tokens of a key word, the mean over those of a query word. */
export function mergeWords(matrix, queries, keys) {
  const values = new Float32Array(queries.length * keys.length);
  queries.forEach((query, row) =>
    keys.forEach((key, column) => {
      let sum = 0;
      for (const q of query) for (const k of key) sum += matrix.values[q * matrix.columns + k];
      values[row * keys.length + column] = sum / query.length;
    }),
  );
  return { rows: queries.length, columns: keys.length, values };
}

/** Returns a token as it is displayed. */
export function shown(token) {
  return token.replaceAll("\u2581", " ").trim() || "\u2423";
}

export function percent(weight) {
  return weight > 0 && weight < 0.01 ? "<1 %" : `${Math.round(100 * weight)} %`;
}

/** Returns [{text, before}] for the tokens of an axis without EOS: how each is displayed, and the spaces of the text before it. */
export function tokenTexts({ text, tokens }) {
  let at = 0;
  return (tokens.at(-1) === END ? tokens.slice(0, -1) : tokens).map((token) => {
    const own = token.replaceAll("\u2581", " ").trim();
    const begin = text.indexOf(own, at);
    if (begin < 0) return { text: own, before: /^[\s\u2581]/.test(token) && at ? " " : "" };
    const before = text.slice(at, begin);
    at = begin + own.length;
    return { text: own, before };
  });
}

export const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key === "style") made.style.cssText = value; // a strict content security policy refuses the attribute
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

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

/** Moves the focus through a list of buttons with the arrow keys. */
export function walk(event, buttons, at) {
  const moves = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 };
  const next = buttons[moves[event.key]];
  if (moves[event.key] === undefined || !next) return;
  event.preventDefault();
  buttons[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

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

const capitalized = (name) => name.slice(0, 1).toUpperCase() + name.slice(1);

/** The attention part of a page: the controls and the pictures. */
export class AttentionView {
  constructor(root, trace) {
    this.root = root;
    this.trace = trace;
    const first = trace.attentions.find((one) => !one.self_attention) ?? trace.attentions[0];
    this.choice = { name: first.name, layer: 1, heads: new Set(["mean"]), words: true, view: "lines" };
    this.choice.layer = this.layers().length;
    this.unpacked = new Map();
    this.said = element("p", { class: "said", "aria-hidden": "true" });
    this.aloud = element("p", { class: "aloud", "aria-live": "polite" });
    this.controls = element("div", { class: "controls" });
    this.pictures = element("div", { class: "pictures" });
    root.append(this.controls, this.said, this.aloud, this.pictures);
    this.show();
  }

  layers() {
    return this.trace.attentions.filter((one) => one.name === this.choice.name);
  }

  async unpackedOf(packed) {
    if (!this.unpacked.has(packed)) this.unpacked.set(packed, unpack(packed));
    return this.unpacked.get(packed);
  }

  choose(change) {
    Object.assign(this.choice, change);
    const layers = this.layers();
    this.choice.layer = Math.min(this.choice.layer, layers.length);
    if (change.name && change.name !== this.shownName) this.choice.layer = layers.length;
    return this.show();
  }

  toggle(head) {
    const { heads } = this.choice;
    if (head === "mean" || head === "rollout") this.choice.heads = new Set([head]);
    else {
      heads.delete("mean");
      heads.delete("rollout");
      if (!heads.delete(head)) heads.add(head);
      if (!heads.size) heads.add("mean");
    }
    return this.show();
  }

  radio(label, name, options, value, change) {
    const group = element("fieldset", {}, element("legend", {}, label));
    for (const [key, text] of options)
      group.append(element("label", {}, element("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }), text));
    return group;
  }

  async show() {
    const { name, layer, heads, words, view } = this.choice;
    this.shownName = name;
    const layers = this.layers(), packed = layers[layer - 1];
    const number = packed.shape[0];
    const names = [...new Set(this.trace.attentions.map((one) => one.name))];
    const focused = document.activeElement?.dataset?.control;
    const slider = element("input", { type: "range", min: 1, max: layers.length, value: layer, "data-control": "layer", id: "layer", oninput: (event) => this.choose({ layer: Number(event.target.value) }) });
    const chips = element("div", { class: "chips", role: "group", "aria-label": "Heads" });
    const chip = (head, text, colour) =>
      element("button", { type: "button", class: "chip", "data-control": `head-${head}`, "aria-pressed": String(heads.has(head)), style: colour ? `--chip: ${colour}` : "", onclick: () => this.toggle(head) }, text);
    chips.append(chip("mean", "mean"));
    if (packed.self_attention && layers.length > 1) chips.append(chip("rollout", "rollout"));
    if (number > 1) for (let head = 0; head < number; head++) chips.append(chip(head, String(head + 1), colourOf(head)));
    this.controls.replaceChildren(
      ...(names.length > 1 ? [this.radio("Attention", "name", names.map((one) => [one, capitalized(one)]), name, (one) => this.choose({ name: one }))] : []),
      ...(layers.length > 1 ? [element("label", { class: "slider", for: "layer" }, `Layer ${layer} of ${layers.length}`, slider)] : []),
      element("div", { class: "heads" }, element("span", { "aria-hidden": "true" }, "Heads"), chips),
      this.radio("Between", "unit", [["words", "words"], ["tokens", "tokens"]], words ? "words" : "tokens", (one) => this.choose({ words: one === "words" })),
      this.radio("As", "view", [["lines", "lines"], ["heatmap", "heatmap"], ["both", "side by side"]], view, (one) => this.choose({ view: one })),
    );
    if (focused) this.controls.querySelector(`[data-control="${focused}"]`)?.focus();
    const matrices = await this.matrices(layers, layer, heads);
    if (this.choice.name !== name || this.choice.layer !== layer) return; // another choice was made meanwhile
    this.draw(packed, matrices);
  }

  async matrices(layers, layer, heads) {
    if (heads.has("rollout") && layers[0].self_attention) {
      const below = await Promise.all(layers.slice(0, layer).map((one) => this.unpackedOf(one)));
      return [{ label: `Rollout up to layer ${layer}`, colour: "var(--accent)", matrix: attentionRollout(below.map((one) => meanOverHeads(one.matrices))) }];
    }
    const here = await this.unpackedOf(layers[layer - 1]);
    const chosen = [...heads].filter((head) => typeof head === "number" && head < here.matrices.length).sort((a, b) => a - b);
    if (!chosen.length) return [{ label: `Layer ${layer}, mean over heads`, colour: "var(--accent)", matrix: meanOverHeads(here.matrices) }];
    return chosen.map((head) => ({ label: `Layer ${layer}, head ${head + 1}`, colour: colourOf(head), matrix: here.matrices[head] }));
  }

  draw(packed, matrices) {
    const texts = (axis) => (this.choice.words ? axis.words.map((word) => shown(word.map((at) => axis.tokens[at]).join(""))) : axis.tokens.map(shown));
    const [from, to] = [this.trace[packed.queries], this.trace[packed.keys]];
    const layers = matrices.map((one) => ({ ...one, matrix: this.choice.words ? mergeWords(one.matrix, from.words, to.words) : one.matrix }));
    const [queries, keys, headings] = [texts(from), texts(to), packed.labels];
    const say = (text, aloud) => {
      this.said.textContent = text;
      if (aloud) this.aloud.textContent = text;
    };
    const apart = this.choice.view === "both" ? layers.map((layer) => [layer]) : [layers];
    const pictures = this.choice.view === "heatmap"
      ? layers.map((layer) => new Heatmap({ queries, keys, matrix: layer.matrix, headings, label: layer.label, say }).root)
      : apart.map((some) => element("figure", {}, element("figcaption", {}, some.map((one) => one.label).join(" · ")), new Lines({ queries, keys, layers: some, headings, say }).root));
    this.pictures.replaceChildren(...pictures);
  }
}

export function colourOf(head) {
  return `var(--head-${head % PALETTE})`;
}
