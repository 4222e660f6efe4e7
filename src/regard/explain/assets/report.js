// The report of one run or several: settings, curves, scores, examples over time, histograms, attention over training.
import { drawn } from "./chart.js";
import { Checkpoints, attentionPicture } from "./checkpoints.js";
import { Curves, duration } from "./curves.js";
import { element } from "./elements.js";
import { differingSettings, section, sideBySide, summary, table } from "./tables.js";

const runs = JSON.parse(document.getElementById("runs").textContent);
const page = document.getElementById("report");

function bars(title, counts, labels) {
  const most = Math.max(...counts, 1), [wide, left] = [40, 10];
  const svg = drawn("svg", { viewBox: `0 0 ${left * 2 + wide * counts.length} 130`, role: "img", "aria-label": `${title}: ${counts.map((count, at) => `${labels[at]} ${count}`).join(", ")}` });
  counts.forEach((count, at) => {
    const tall = (90 * count) / most, middle = left + (at + 0.5) * wide;
    svg.append(drawn("rect", { x: left + at * wide, y: 105 - tall, width: wide - 3, height: tall, fill: "var(--accent)" }), drawn("text", { x: middle, y: 122, "text-anchor": "middle" }, labels[at]));
    if (count) svg.append(drawn("text", { x: middle, y: 101 - tall, "text-anchor": "middle" }, count));
  });
  return element("figure", { class: "chart" }, element("figcaption", {}, title), svg);
}

/** The outputs of each example over training, one column per run. */
function examples() {
  const all = new Map(runs.flatMap((one) => one.validations.at(-1)?.examples ?? []).map((example) => [example.source, example]));
  const outputs = (one, source) => {
    let before = null;
    const rows = one.validations.flatMap((v) => {
      const now = v.examples.find((example) => example.source === source);
      if (!now || now.output === before) return [];
      before = now.output;
      return [[v.step, element("span", { class: now.output === now.reference ? "right" : "" }, now.output || "(empty)")]];
    });
    return rows.length ? table(["step", "output"], rows) : null;
  };
  if (!all.size) return null;
  return section("Examples over training", ...[...all.values()].map(({ source, reference }, number) => {
    const columns = runs.map((one) => [one, outputs(one, source)]).filter(([, found]) => found).map(([one, found]) => element("div", {}, ...(runs.length > 1 ? [element("h3", {}, one.name)] : []), found));
    return element("details", { open: number === 0 }, element("summary", {}, source), element("p", { class: "note" }, `Reference: ${reference}`), element("div", { class: "side" }, ...columns));
  }));
}

function distributions(one) {
  const last = one.validations.findLast((v) => v.histograms);
  if (!last) return null;
  const tenths = (scale) => [...Array(10)].map((_, at) => (at * scale).toFixed(1).replace(/\.0$/, ""));
  return element("div", {}, element("p", { class: "note" }, `At step ${last.step}`), element("div", { class: "charts" },
    bars("Output length divided by reference length", last.histograms.length, tenths(0.2)), bars("Share of correct words", last.histograms.right, tenths(0.1))));
}

function attention(one) {
  const seen = one.validations.filter((v) => v.attention?.percent.length);
  if (!seen.length) return null;
  const chosen = [...new Set([0, Math.floor(seen.length / 3), Math.floor((2 * seen.length) / 3), seen.length - 1])].map((at) => seen[at]);
  return element("div", {}, element("p", { class: "note" }, "Attention of one dev example, the mean over all layers and heads."), element("div", { class: "pictures" }, ...chosen.map((v) => attentionPicture(v))));
}

function details(one) {
  const machine = one.started ? Object.entries(one.started.machine).map(([key, value]) => `${key}: ${value}`).join("\n") : "";
  const folded = (title, text) => (text ? [element("details", {}, element("summary", {}, title), element("pre", { class: "text", tabindex: 0 }, text))] : []);
  return element("div", {},
    element("p", {}, `${duration(one.seconds)} of training, ${one.step} steps${one.started ? `, ${one.started.how}` : ""}.`),
    ...folded("Machine", machine), ...folded(`Notes (${one.notes.length})`, one.notes.map(([step, text]) => `step ${step}: ${text}`).join("\n")),
    ...folded("Card", one.card), ...folded("Recipe", one.recipe));
}

page.append(...[
  differingSettings(runs), summary(runs), new Curves(runs).root, runs.flatMap((one) => one.validations).length > 1 ? new Checkpoints(runs).root : null, examples(),
  sideBySide("Dev sentences", runs, distributions), sideBySide("Attention over training", runs, attention), sideBySide("Details", runs, details),
].filter(Boolean));
