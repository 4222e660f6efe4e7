// Draws attention as lines between words and as heatmaps. Used by the files of `regard look` and by the page of `regard serve`.
//
// A trace holds axes under their names ({label, text, ids, tokens, words}) and `attentions`, each of which names its query axis
// and its key axis. Nothing here depends on what the axes mean, so the same code draws a translation, a tagger or a pointer network.
import { colourOf, element, percent, shown } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { Lines } from "./lines.js";
import { attentionRollout, meanOverHeads, mergeWords, unpack } from "./weights.js";

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
    this.pinned = null; // the word that stays highlighted: {side, at}
    this.said = element("p", { class: "said", "aria-hidden": "true" });
    this.aloud = element("p", { class: "aloud", "aria-live": "polite" });
    this.controls = element("div", { class: "controls" });
    this.pictures = element("div", { class: "pictures" });
    root.append(this.controls, this.said, this.aloud, this.pictures);
    new ResizeObserver(() => this.resize()).observe(this.pictures);
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
    const { self_attention, shape } = layers[this.choice.layer - 1];
    const there = (head) => head === "mean" || (head === "rollout" ? self_attention && layers.length > 1 : head < shape[0]);
    this.choice.heads = new Set([...this.choice.heads].filter(there));
    if (!this.choice.heads.size) this.choice.heads.add("mean");
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
      group.append(element("label", {}, element("input", { type: "radio", name, value: key, "data-control": `${name}-${key}`, checked: key === value, onchange: () => change(key) }), text));
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
    if (heads.has("rollout")) {
      const below = await Promise.all(layers.slice(0, layer).map((one) => this.unpackedOf(one)));
      return [{ label: `Rollout up to layer ${layer}`, colour: "var(--accent)", matrix: attentionRollout(below.map((one) => meanOverHeads(one.matrices))) }];
    }
    const here = await this.unpackedOf(layers[layer - 1]);
    const chosen = [...heads].filter((head) => typeof head === "number").sort((a, b) => a - b);
    if (!chosen.length) return [{ label: `Layer ${layer}, mean over heads`, colour: "var(--accent)", matrix: meanOverHeads(here.matrices) }];
    return chosen.map((head) => ({ label: `Layer ${layer}, head ${head + 1}`, colour: colourOf(head), matrix: here.matrices[head] }));
  }

  draw(packed, matrices) {
    const [from, to] = [packed.queries, packed.keys].map((name) => this.groups(this.trace[name]));
    this.heads = matrices.map((one) => ({ ...one, matrix: mergeWords(one.matrix, from.groups, to.groups) }));
    this.words = { query: from.texts, key: to.texts };
    const common = { queries: from.texts, keys: to.texts, headings: packed.labels, pointer: this.pointer() };
    this.room = this.pictures.clientWidth;
    if (this.pinned) this.pinned = this.pinned.at < this.words[this.pinned.side].length ? { side: this.pinned.side, at: this.pinned.at } : null;
    if (this.choice.view === "heatmap")
      this.drawn = this.heads.map(({ label, matrix }) => new Heatmap({ ...common, matrix, label, room: this.room }));
    else {
      const apart = this.choice.view === "both" ? this.heads.map((layer) => [layer]) : [this.heads];
      this.drawn = apart.map((layers) => new Lines({ ...common, layers }));
    }
    this.pictures.replaceChildren(...this.drawn.map((one) => one.root));
    this.highlight(this.pinned);
  }

  /** Draws heatmaps again if there is more or less room for them. */
  resize() {
    if (this.choice.view === "heatmap" && this.room && this.pictures.clientWidth !== this.room) this.show();
  }

  /** Returns what is a row or a column: indices of tokens, and a text. */
  groups(axis) {
    const groups = this.choice.words ? axis.words : axis.tokens.map((_, at) => [at]);
    return { groups, texts: groups.map((one) => shown(one.map((at) => axis.tokens[at]).join(""))) };
  }

  /** What pictures tell of the pointer, the focus and clicks. A place is a word, {side, at}, or a cell, which has a `column` and a `weight` too. */
  pointer() {
    return {
      enter: (place, aloud) => this.highlight(place, aloud),
      leave: () => this.highlight(this.pinned),
      pin: (place) => {
        const same = ["side", "at", "column"].every((name) => this.pinned?.[name] === place[name]);
        this.pinned = same ? null : place;
        this.highlight(this.pinned);
      },
    };
  }

  /** Highlights a place in all pictures, and says what its word looks at or who looks at it. */
  highlight(pointed, aloud = false) {
    const weights = pointed ? this.weightsOf(pointed) : [];
    for (const one of this.drawn) one.highlight(pointed, weights, this.pinned);
    const text = pointed ? this.sentence(pointed, weights) : "";
    this.said.textContent = text;
    if (aloud) this.aloud.textContent = text;
  }

  /** Returns the weights between a word and all words of the other side, in the mean over what is drawn. */
  weightsOf({ side, at }) {
    const { rows, columns, values } = meanOverHeads(this.heads.map((layer) => layer.matrix));
    return side === "query" ? values.slice(at * columns, (at + 1) * columns) : Float32Array.from({ length: rows }, (_, row) => values[row * columns + at]);
  }

  sentence({ side, at, column, weight }, weights) {
    if (column !== undefined) return `${this.words.query[at]} looks at ${this.words.key[column]}: ${percent(weight)}`;
    const words = this.words[side === "query" ? "key" : "query"];
    const best = Array.from(weights, (weight, index) => [weight, words[index]]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const list = best.filter(([weight]) => weight >= 0.01).map(([weight, word]) => `${word} ${percent(weight)}`).join(", ");
    const own = this.words[side][at];
    return side === "query" ? `${own} looks at ${list || "nothing"}` : `${own} is seen by ${list || "nobody"}`;
  }
}
