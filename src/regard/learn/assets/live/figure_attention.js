// Section 3.2.1, number by number: one word of the reader's sentence through x, q, k, v, dot products, softmax, and the sum of values.
import { element, shown } from "./elements.js";
import { entry } from "./encoder.js";
import { Panel, Strip, choices, digits, dropDown, literal, numberButton, scaleOf } from "./numbers.js";
import { FIGURES } from "./registry.js";
import { sentenceForm } from "./sentence.js";
import { redrawn, say } from "./words.js";

const PARTS = ["q", "k", "v"]; // in the order of the rows of W
const CAPITALS = { q: "Q", k: "K", v: "V" };
const SPOKEN = { dot: "dot product", score: "score", alpha: "weight" };

FIGURES.attention = (host) => {
  const view = new AttentionView(Number(host.dataset.layer ?? 1) - 1, Number(host.dataset.head ?? 1) - 1, Number(host.dataset.word ?? 1) - 1);
  sentenceForm(host, async (model, read) => {
    view.load(model, read);
    host.append(view.root);
    return (await model.translate(read.source)).text;
  });
  redrawn(() => view.model && view.draw());
};

class AttentionView {
  constructor(layer, head, word) {
    Object.assign(this, { layer, head, word, chosen: null });
    this.root = element("div", { class: "attention-steps" });
    this.panel = new Panel();
  }

  load(model, read) {
    Object.assign(this, { model, read, encoder: model.encoder, run: model.encoder.run(read.ids), chosen: null });
    this.word = Math.min(this.word, read.tokens.length - 1);
    this.names = read.tokens.map(shown);
    this.literals = this.names.map(literal); // for formulas
    this.difference = this.differenceToEngine().toExponential(0);
    this.draw();
  }

  get now() {
    const layer = this.run.layers[this.layer], { head } = this;
    const [q, k, v, dots, scores, alpha, z] = ["q", "k", "v", "dots", "scores", "alpha", "z"].map((name) => layer[name][head]);
    return { x: layer.x, q, k, v, dots: dots[this.word], scores: scores[this.word], alpha: alpha[this.word], z: z[this.word] };
  }

  differenceToEngine() {
    const { layers, heads } = this.model.facts, { ids, source } = this.read, n = ids.length;
    const [weights] = this.model.engine.force(source.ids, [], { best: 1, layers, heads, sources: n }).attention;
    const ours = this.run.layers.flatMap((layer) => layer.alpha.flatMap((rows) => rows.flat()));
    return Math.max(...ours.map((one, at) => Math.abs(one - weights[at])));
  }

  // Drawing

  draw() {
    const { encoder, names, now } = this, word = names[this.word], d = encoder.headWidth;
    this.strips = [];
    this.panel.clear();
    const numbered = (list) => Array.from({ length: list }, (_, at) => String(at + 1));
    const move = (change) => {
      Object.assign(this, change);
      this.draw();
    };
    const pick = element("div", { class: "controls" },
      choices(names, say("The word that asks"), this.word, (at) => (move({ word: at, chosen: null }), this.root.querySelector(".words [aria-pressed=true]").focus())),
      dropDown(say("Layer"), numbered(encoder.layers), this.layer, (at) => (move({ layer: at, chosen: null }), this.root.querySelector("select").focus())),
      dropDown(say("Head"), numbered(encoder.heads), this.head, (at) => (move({ head: at, chosen: null }), this.root.querySelectorAll("select")[1].focus())),
    );
    const steps = element("ol", { class: "steps" },
      step(say("The word “{word}” enters this layer as {count} numbers, x.", { word, count: encoder.width }), this.strip("x", this.word, now.x[this.word], scaleOf(now.x))),
      step(say("Three matrices make three vectors of {count} numbers of it: a query q, a key k and a value v.", { count: d }),
        ...PARTS.map((part) => this.named(part, this.strip(part, this.word, now[part][this.word], scaleOf(now[part]))))),
      step(say("Every word has a key. The query of “{word}” is multiplied with each of them: the dot product q·k. It is divided by √{count} = {root}, and the softmax makes weights α that sum to 1.", { word, count: d, root: digits(Math.sqrt(d), 0) }), this.table()),
      step(say("Every word has a value too. The output z of this head is the sum of all values, each times its weight."),
        ...names.map((name, at) => this.named(`${name} · ${digits(now.alpha[at], 2)}`, this.strip("v", at, now.v[at], scaleOf(now.v)))),
        this.named("z", this.strip("z", this.word, now.z, scaleOf(now.v)))),
    );
    const checked = element("p", { class: "note" }, say("The engine, compiled to WebAssembly, computed all attention weights of this sentence too. The largest difference to those here is {difference}.", this));
    this.root.replaceChildren(pick, steps, checked, this.panel.root);
    if (this.chosen) this.explain(this.chosen);
  }

  named(name, strip) {
    return element("div", { class: "named" }, element("span", {}, name), strip);
  }

  strip(kind, token, values, scale) {
    const made = new Strip({ values, scale, label: say("{name} of “{word}”", { name: kind, word: this.names[token] }), choose: (at) => this.explain({ kind, token, at }) });
    this.strips.push({ kind, token, made });
    return made.root;
  }

  /** Keys, dot products, scores and weights of all words. */
  table() {
    const { now, names } = this, d = this.encoder.headWidth;
    const button = (kind, value, at) => element("td", {}, numberButton(value, say("{name} of “{word}”", { name: say(SPOKEN[kind]), word: names[at] }), () => this.explain({ kind, at })));
    const rows = names.map((name, at) => {
      const bar = element("span", { class: "bar" });
      bar.style.width = `${100 * now.alpha[at]}%`;
      return element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "wide" }, this.strip("k", at, now.k[at], scaleOf(now.k))),
        button("dot", now.dots[at], at), button("score", now.scores[at], at), button("alpha", now.alpha[at], at), element("td", { class: "bars", "aria-hidden": "true" }, bar));
    });
    const heads = ["k", "q·k", `÷ √${d}`, "α", ""].map((text, at) => element(text ? "th" : "td", { ...(text ? { scope: "col" } : {}), class: at === 0 ? "wide" : undefined }, text));
    return element("div", { class: "scroll" }, element("table", { class: "scores" }, element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...rows)));
  }

  // How a number was computed

  explain(chosen) {
    this.chosen = chosen;
    for (const { kind, token, made } of this.strips) made.mark(kind === chosen.kind && token === chosen.token ? chosen.at : null);
    this.panel.show(this[`how_${chosen.kind}`] ? this[`how_${chosen.kind}`](chosen) : this.projected(chosen));
  }

  /** A number in an explanation that is explained itself when it is chosen. */
  link(value, chosen) {
    return { value, name: chosen.kind, choose: () => this.explain(chosen) };
  }

  how_x({ token, at }) {
    const { encoder, layer, run, literals } = this, { x } = run.layers[layer], number = at + 1, title = say("x_{number} of “{word}”", { number, word: literals[token] });
    if (layer === 0) {
      const { position, token: scaled } = run.embedded[token], root = Math.sqrt(encoder.width);
      return {
        title, result: x[token][at], rule: say("x = √d_{model} · E + PE: the row of this token in the embedding matrix E, times {root}, plus the encoding of position {pos}", { root, pos: token }),
        terms: [
          { name: `√${encoder.width} · E_{${number}}`, parts: [{ value: root }, { text: "×" }, { value: scaled[at] / root }], value: scaled[at] },
          { name: `PE(${token}, ${at})`, parts: [{ text: `${at % 2 ? "cos" : "sin"}(${token} ÷ 10000 ^ (${at - (at % 2)} ÷ ${encoder.width}))` }], value: position[at] },
        ],
      };
    }
    const { x: input, sublayer, sum, mean, deviation, gain, bias } = run.layers[layer - 1].out[token];
    return {
      title, result: x[token][at], sum: false, rule: say("x = LayerNorm(y + FFN(y)): what layer {layer} gives out", { layer }),
      terms: [
        { name: "y + FFN(y)", parts: [{ value: input[at] }, { text: "+" }, { value: sublayer[at] }], value: sum[at] },
        { name: say("minus the mean"), parts: [{ value: sum[at] }, { text: "−" }, { value: mean }], value: sum[at] - mean },
        { name: say("divided by the deviation"), parts: [{ text: "÷" }, { value: deviation }], value: (sum[at] - mean) / deviation },
        { name: say("times gain, plus bias"), parts: [{ text: "×" }, { value: gain.data[at] }, { text: "+" }, { value: bias.data[at] }], value: x[token][at] },
      ],
    };
  }

  /** An entry of q, k or v: x times a column of a matrix. */
  projected({ kind, token, at }) {
    const { encoder, layer, head, now } = this, capital = CAPITALS[kind], number = at + 1;
    const matrix = encoder.weights[`encoder.${layer}.attention.project.weight`], row = PARTS.indexOf(kind) * encoder.width + head * encoder.headWidth + at;
    const terms = Array.from(now.x[token], (value, i) => ({
      name: `x_{${i + 1}} · W^{${capital}}_{${i + 1},${number}}`, value: value * entry(matrix, row, i),
      parts: [this.link(value, { kind: "x", token, at: i }), { text: "×" }, { value: entry(matrix, row, i) }],
    }));
    return { title: say("{kind}_{number} of “{word}”", { kind, number: `{${number}}`, word: this.literals[token] }), rule: `${kind}_{${number}} = Σ_i x_i · W^{${capital}}_{i,${number}}`, terms, result: now[kind][token][at] };
  }

  how_dot({ at }) {
    const { now, word } = this;
    const terms = Array.from(now.q[word], (value, i) => ({
      name: `q_{${i + 1}} · k_{${i + 1}}`, value: value * now.k[at][i],
      parts: [this.link(value, { kind: "q", token: word, at: i }), { text: "×" }, this.link(now.k[at][i], { kind: "k", token: at, at: i })],
    }));
    return { title: say("q of “{word}” · k of “{other}”", { word: this.literals[word], other: this.literals[at] }), rule: "q·k = Σ_i q_i · k_i", terms, result: now.dots[at] };
  }

  how_score({ at }) {
    const { now, encoder } = this, root = Math.sqrt(encoder.headWidth);
    return {
      title: say("score of “{word}”", { word: this.literals[at] }), result: now.scores[at], rule: say("Each of the {count} products has a variance near 1, so their sum has one near {count}. Dividing by √{count} brings it back.", { count: encoder.headWidth }),
      terms: [{ name: `q·k / √d_k`, parts: [this.link(now.dots[at], { kind: "dot", at }), { text: "÷" }, { value: root }], value: now.scores[at] }], sum: false,
    };
  }

  how_alpha({ at }) {
    const { now, literals } = this, powers = now.scores.map(Math.exp), sum = powers.reduce((a, b) => a + b, 0);
    return {
      title: say("α of “{word}”", { word: literals[at] }), result: now.alpha[at], sum: false, rule: "α_j = e^{s(j)} / Σ_i e^{s(i)}",
      terms: [
        { name: say("of this word"), parts: [{ text: "e ^" }, this.link(now.scores[at], { kind: "score", at })], value: powers[at] },
        ...literals.map((name, other) => ({ name: say("in the sum: {word}", { word: name }), parts: [{ text: "e ^" }, this.link(now.scores[other], { kind: "score", at: other })], value: powers[other] })),
        { name: "Σ", parts: [], value: sum },
      ],
    };
  }

  how_z({ at }) {
    const { now, literals } = this, number = at + 1;
    const terms = literals.map((name, token) => ({
      name, value: now.alpha[token] * now.v[token][at],
      parts: [this.link(now.alpha[token], { kind: "alpha", at: token }), { text: "×" }, this.link(now.v[token][at], { kind: "v", token, at })],
    }));
    return { title: `z_{${number}}`, rule: `z_{${number}} = Σ_j α_j · v_{j,${number}}`, terms, result: now.z[at] };
  }
}

function step(text, ...content) {
  return element("li", {}, element("p", {}, text), ...content);
}
