// Any two validations of one run or of two, compared: scores, examples and attention.
import { short } from "./chart.js";
import { labelOf } from "./curves.js";
import { element } from "./elements.js";
import { Heatmap } from "./heatmap.js";
import { table } from "./tables.js";

/** The picture of a validation's example. */
export function attentionPicture({ step, attention }, label = `Step ${step}`) {
  const { source, target, percent, labels } = attention;
  const matrix = { rows: target.length, columns: source.length, values: Float32Array.from(percent.flat(), (value) => value / 100) };
  return new Heatmap({ queries: target, keys: source, matrix, headings: labels, label, room: Math.min(560, document.documentElement.clientWidth - 40) }).root;
}

export class Checkpoints {
  constructor(runs) {
    this.all = runs.flatMap((one) => one.validations.map((v) => ({ ...v, label: `${runs.length > 1 ? `${one.name}, ` : ""}step ${v.step}${v.best ? " (best so far)" : ""}` })));
    this.chosen = [0, this.all.length - 1];
    this.result = element("div", {});
    const pick = (side, name) =>
      element("label", { class: "slider" }, name, element("select", { "aria-label": `Checkpoint ${name}`, onchange: (event) => this.choose(side, Number(event.target.value)) }, ...this.all.map((one, at) => element("option", { value: at, selected: at === this.chosen[side] }, one.label))));
    this.root = element("section", { id: "checkpoints" }, element("h2", {}, "Two checkpoints compared"), element("div", { class: "controls" }, pick(0, "A"), pick(1, "B")), this.result);
    this.draw();
  }

  choose(side, at) {
    this.chosen[side] = at;
    this.draw();
  }

  draw() {
    const [a, b] = this.chosen.map((at) => this.all[at]);
    const metrics = [...new Set([a, b].flatMap(({ scores }) => Object.keys(scores)))];
    const rows = metrics.map((metric) => {
      const [from, to] = [a.scores[metric], b.scores[metric]], known = [from, to].every(Number.isFinite);
      return [`dev ${labelOf(metric)}`, from, to, known ? `${to >= from ? "+" : "\u2212"}${short(Math.abs(to - from))}` : ""];
    });
    const pictures = [a, b].filter((one) => one.attention?.percent.length).map((one, at) => attentionPicture(one, `${"AB"[at]}: ${one.label}`));
    this.result.replaceChildren(
      table(["", "A", "B", "B \u2212 A"], rows), ...this.examples(a, b),
      ...(pictures.length === 2 ? [element("div", { class: "pictures" }, ...pictures)] : []),
    );
  }

  examples(a, b) {
    return a.examples.flatMap((one) => {
      const other = b.examples.find(({ source }) => source === one.source);
      if (!other) return [];
      const [from, to] = differences(one.output.split(" "), other.output.split(" "));
      const line = (name, ...text) => [element("dt", {}, name), element("dd", {}, ...text)];
      return [element("div", { class: "changed" }, element("dl", {}, ...line("source", one.source), ...line("reference", one.reference), ...line("A", ...from), ...line("B", ...to)))];
    });
  }
}

/** Returns the words of two texts; those that are not in a longest common subsequence are marked. */
function differences(left, right) {
  const length = [...Array(left.length + 1)].map(() => new Array(right.length + 1).fill(0));
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--) length[i][j] = left[i] === right[j] ? 1 + length[i + 1][j + 1] : Math.max(length[i + 1][j], length[i][j + 1]);
  const found = [[], []], put = (side, word, same) => found[side].push(same ? word : element("mark", {}, word), " ");
  for (let i = 0, j = 0; i < left.length || j < right.length; ) {
    if (i < left.length && j < right.length && left[i] === right[j]) (put(0, left[i++], true), put(1, right[j++], true));
    else if (j < right.length && (i === left.length || length[i][j + 1] >= length[i + 1][j])) put(1, right[j++], false);
    else put(0, left[i++], false);
  }
  return found;
}
