// Draws attention as lines between words and as heatmaps. Used by the files of `regard look` and by the page of `regard serve`.
//
// A trace holds axes under their names ({label, text, ids, tokens, words}) and `attentions`, each of which names its query axis
// and its key axis. Nothing here depends on what the axes mean, so the same code draws a translation, a tagger or a pointer network.
import { attentionControls } from "./controls.js";
import { colourOf, element, percent, shown } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { Lines } from "./lines.js";
import { LinkedTexts } from "./linked_texts.js";
import { Overview } from "./overview.js";
import { scoreTable } from "./scores.js";
import { attentionRollout, meanOverHeads, mergeWords, unpack } from "./weights.js";

const HIDDEN = { special: /^<\/?s>$/, punctuation: /^[\p{P}\p{S}\s]+$/u };

/** The attention part of a page: the controls and the pictures. `texts` are texts of the page whose tokens are linked with the
    words of the pictures: [{axis, parts}], each part {element, tokens}. `choice` is that of another view, which this one replaces.
    `silence`, if heads can be silenced: {has, toggle}, both functions of (name, layer, head). */
export class AttentionView {
  constructor(root, trace, { texts = [], choice = {}, silence = null } = {}) {
    Object.assign(this, { root, trace, silence });
    const first = trace.attentions.find((one) => !one.self_attention) ?? trace.attentions[0];
    const name = trace.attentions.some((one) => one.name === choice.name) ? choice.name : first.name;
    this.choice = { layer: Infinity, heads: new Set(["mean"]), words: true, view: "lines", hidden: new Set(), ...choice, name };
    this.unpacked = new Map();
    this.drawn = [];
    this.latest = 0; // number of the newest choice; pictures of older ones are not drawn
    this.pinned = null; // what stays highlighted: a place, the axis and the token that it stands for, and the key of a cell
    this.said = element("p", { class: "said", "aria-hidden": "true" });
    this.aloud = element("p", { class: "aloud", "aria-live": "polite" });
    this.controls = element("div", { class: "controls" });
    this.pictures = element("div", { class: "pictures" });
    this.product = element("div", {});
    root.append(this.controls, this.said, this.aloud, this.pictures, this.product);
    this.texts = new LinkedTexts(texts, this);
    new ResizeObserver(() => this.resize()).observe(this.pictures);
    this.choose({});
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
    if (this.choice.view === "overview") this.choice.view = "lines";
    return this.show();
  }

  async show() {
    const { name, layer, heads, view } = this.choice, number = ++this.latest;
    this.shownName = name;
    const layers = this.layers(), packed = layers[layer - 1];
    const focused = document.activeElement?.dataset?.control;
    this.controls.replaceChildren(...attentionControls(this, layers));
    if (focused) this.controls.querySelector(`[data-control="${focused}"]`)?.focus();
    const matrices = view === "overview" ? await this.allHeads(layers) : await this.matrices(layers, layer, heads);
    if (number === this.latest) this.draw(packed, matrices);
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

  async allHeads(layers) {
    const all = await Promise.all(layers.map((one) => this.unpackedOf(one)));
    return all.flatMap(({ matrices }, at) => matrices.map((matrix, head) => ({ label: `Layer ${at + 1}, head ${head + 1}`, layer: at + 1, head, matrix })));
  }

  draw(packed, matrices) {
    const [from, to] = [packed.queries, packed.keys].map((name) => this.groups(this.trace[name]));
    this.heads = matrices.map((one) => ({ ...one, matrix: mergeWords(one.matrix, from.groups, to.groups) }));
    this.words = { query: from.texts, key: to.texts };
    this.sides = { query: { axis: packed.queries, groups: from.groups }, key: { axis: packed.keys, groups: to.groups } };
    const common = { queries: from.texts, keys: to.texts, headings: packed.labels, pointer: this.pointer() };
    this.room = this.pictures.clientWidth;
    if (this.pinned) this.pinned = this.placeOf(this.pinned);
    if (this.choice.view === "overview") this.drawn = [new Overview({ ...common, heads: this.heads, room: this.room, view: this })];
    else if (this.choice.view === "heatmap")
      this.drawn = this.heads.map(({ label, matrix }) => new Heatmap({ ...common, matrix, label, room: this.room }));
    else {
      const apart = this.choice.view === "both" ? this.heads.map((layer) => [layer]) : [this.heads];
      this.drawn = apart.map((layers) => new Lines({ ...common, layers }));
    }
    this.pictures.replaceChildren(...this.drawn.map((one) => one.root));
    this.highlight(this.pinned);
    this.showProduct();
  }

  /** Draws pictures again whose size depends on the room if there is more or less of it. */
  resize() {
    if (["heatmap", "overview"].includes(this.choice.view) && this.room && this.pictures.clientWidth !== this.room) this.show();
  }

  /** Returns what is a row or a column: indices of tokens, and a text. Words that are hidden are left out, unless nothing else is there. */
  groups(axis) {
    const groups = this.choice.words ? axis.words : axis.tokens.map((_, at) => [at]);
    const all = groups.map((group) => ({ group, text: shown(group.map((at) => axis.tokens[at]).join("")) }));
    const kept = all.filter(({ text }) => ![...this.choice.hidden].some((kind) => HIDDEN[kind].test(text)));
    const found = kept.length ? kept : all;
    return { groups: found.map(({ group }) => group), texts: found.map(({ text }) => text) };
  }

  /** Returns the place of the word with a token of an axis, {side, at, axis, token}; null where it is not drawn. */
  find(axis, token) {
    for (const [side, { axis: own, groups }] of Object.entries(this.sides ?? {})) {
      const shift = own === axis ? 0 : own === "read" && axis === "target" ? 1 : own === "target" && axis === "read" ? -1 : null;
      const at = shift === null ? -1 : groups.findIndex((group) => group.includes(token + shift));
      if (at >= 0) return { side, at, axis, token };
    }
    return null;
  }

  /** Returns a place that was pinned as it is drawn now, a cell in a heatmap with its column and weight; null where it is not drawn. */
  placeOf({ axis, token, key }) {
    const place = this.find(axis, token);
    const column = key === undefined || place?.side !== "query" || this.choice.view !== "heatmap" ? -1 : this.sides.key.groups.findIndex((group) => group.includes(key));
    return column < 0 ? place : { ...place, key, column, weight: this.weightsOf(place)[column] };
  }

  /** What pictures tell of the pointer, the focus and clicks. A place is a word, {side, at}, or a cell, which has a `column` and a `weight` too. */
  pointer() {
    return {
      enter: (place, aloud) => this.highlight(place, aloud),
      leave: () => this.highlight(this.pinned),
      pin: (place) => {
        const same = ["side", "at", "column"].every((name) => this.pinned?.[name] === place[name]);
        const { axis, groups } = this.sides[place.side];
        const key = place.column === undefined ? {} : { key: this.sides.key.groups[place.column][0] };
        this.pinned = same ? null : { axis, token: groups[place.at][0], ...key, ...place };
        this.highlight(this.pinned);
        this.showProduct();
      },
    };
  }

  /** Shows how the weight of a cell that is pinned comes about, number by number, or what to choose for that. */
  async showProduct() {
    const { layer, heads } = this.choice, packed = this.layers()[layer - 1], [head] = heads, cell = this.pinned;
    if (!packed.vectors) return this.product.replaceChildren();
    const [query, key] = cell?.column === undefined ? [] : [this.sides.query.groups[cell.at], this.sides.key.groups[cell.column]];
    if (heads.size !== 1 || typeof head !== "number" || query?.length !== 1 || key?.length !== 1)
      return this.product.replaceChildren(element("p", { class: "note" }, "To see a product of query and key number by number, choose one head, tokens and heatmap, and click a cell."));
    const { matrices } = await this.unpackedOf(packed), { columns, values } = matrices[head];
    const row = values.slice(query[0] * columns, (query[0] + 1) * columns);
    const words = [this.words.query[cell.at], this.words.key[cell.column]];
    const table = await scoreTable(packed, head, query[0], key[0], words, row);
    if (this.pinned === cell) this.product.replaceChildren(table);
  }

  /** Highlights a place in all pictures and texts, and says what its word looks at or who looks at it. */
  highlight(pointed, aloud = false) {
    const weights = pointed ? this.weightsOf(pointed) : [];
    for (const one of this.drawn) one.highlight(pointed, weights, this.pinned);
    this.texts.highlight(pointed, weights, this.sides);
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
