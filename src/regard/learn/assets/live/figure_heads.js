// Section 3.2.2: all heads of a layer side by side, for the reader's sentence.
import { element, percent, shown } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { choices, dropDown } from "./numbers.js";
import { roomIn } from "./plot.js";
import { FIGURES } from "./registry.js";
import { sentenceForm } from "./sentence.js";
import { redrawn, say } from "./words.js";

const STACKS = { encoder: "encoder, to itself", decoder: "decoder, to itself (masked)", "encoder-decoder": "decoder, to the encoder" };
const LISTED = 3; // words of each head

FIGURES.heads = (host) => {
  const now = { stack: host.dataset.stack ?? "encoder", layer: Number(host.dataset.layer ?? 1), word: Number(host.dataset.word ?? 1) - 1 };
  const stacks = host.dataset.stack ? [host.dataset.stack] : Object.keys(STACKS);
  const root = element("div");
  let trace = null;

  function draw(focus) {
    if (!trace) return;
    const layers = trace.attentions.filter((one) => one.name === now.stack);
    now.layer = Math.min(now.layer, layers.length);
    const { matrices, queries, keys, labels } = layers[now.layer - 1];
    const [down, across] = [trace[queries].tokens.map(shown), trace[keys].tokens.map(shown)];
    now.word = Math.min(now.word, down.length - 1);
    const move = (change, again) => (Object.assign(now, change), draw(again));
    const room = Math.min(roomIn(host), roomIn(host) > 520 ? Math.floor((roomIn(host) - 24) / 2) : 460);
    const pictures = matrices.map((matrix, head) => {
      const label = say("Head {number}", { number: head + 1 });
      const map = new Heatmap({
        queries: down, keys: across, matrix, label, room, say, headings: labels.map((one) => say(one)),
        pointer: { enter: () => {}, leave: () => {}, pin: ({ at }) => move({ word: at }) },
      });
      if (now.stack === "decoder") shadeMasked(map);
      map.highlight({ side: "query", at: now.word });
      const row = Array.from(matrix.values.slice(now.word * matrix.columns, (now.word + 1) * matrix.columns), (weight, at) => ({ weight, at }));
      const best = row.sort((a, b) => b.weight - a.weight).slice(0, LISTED);
      const list = element("ol", { class: "best" }, ...best.map(({ weight, at }) => element("li", {}, `${across[at]} `, element("span", {}, percent(weight)))));
      return element("div", { class: "one-head" }, map.root, list);
    });
    root.replaceChildren(
      element("div", { class: "controls" },
        ...(stacks.length > 1 ? [dropDown(say("Attention of the"), stacks.map((one) => say(STACKS[one])), stacks.indexOf(now.stack), (at) => move({ stack: stacks[at], word: 0 }, "select"))] : []),
        dropDown(say("Layer"), layers.map((_, at) => String(at + 1)), now.layer - 1, (at) => move({ layer: at + 1 }, stacks.length > 1 ? "label:nth-of-type(2) select" : "select")),
        choices(down, say("The word that asks"), now.word, (at) => move({ word: at }, ".words [aria-pressed=true]"))),
      element("div", { class: "all-heads" }, ...pictures),
      ...(now.stack === "decoder" ? [element("p", { class: "note" }, say("Grey: hidden by the mask."))] : []));
    if (focus) root.querySelector(focus).focus();
  }

  sentenceForm(host, async (model, read) => {
    const found = await model.translate(read.source);
    trace = found.trace;
    host.append(root);
    draw();
    return found.text;
  });
  redrawn(() => draw());
};

/** Fills what the mask hides, which is not the same as a weight of 0. */
function shadeMasked({ pen, cell, margin, queries, keys }) {
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--rule");
  queries.forEach((_, row) => keys.forEach((_, column) => column > row && pen.fillRect(margin.left + column * cell, margin.top + row * cell, cell, cell)));
}
