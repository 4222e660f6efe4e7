// The report of one run or several: curves, scores, examples over time, histograms, attention over training.
import { CHART, chart, drawn, short } from "./chart.js";
import { colourOf, element } from "./elements.js";
import { Heatmap } from "./heatmap.js";

const runs = JSON.parse(document.getElementById("runs").textContent);
const page = document.getElementById("report");

function bars(title, counts, labels) {
  const most = Math.max(...counts, 1);
  const svg = drawn("svg", { viewBox: `0 0 ${CHART.width} 130`, role: "img", "aria-label": `${title}: ${counts.map((count, at) => `${labels[at]} ${count}`).join(", ")}` });
  counts.forEach((count, at) => {
    const [wide, tall] = [(CHART.width - 20) / counts.length, (90 * count) / most];
    svg.append(drawn("rect", { x: 10 + at * wide, y: 100 - tall, width: wide - 3, height: tall, fill: "var(--accent)" }), drawn("text", { x: 10 + (at + 0.5) * wide, y: 116, "text-anchor": "middle" }, labels[at]));
  });
  return element("figure", { class: "chart" }, element("figcaption", {}, title), svg);
}

const section = (title, ...children) => element("section", {}, element("h2", {}, title), ...children);

function cell(value) {
  if (value instanceof Node) return element("td", {}, value);
  if (typeof value !== "number") return element("td", {}, value ?? "");
  return element("td", { class: "number", title: value }, Number.isInteger(value) ? value.toLocaleString("en") : short(value));
}

function table(head, rows) {
  const top = element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  const made = element("table", {}, element("thead", {}, top), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": head.filter(Boolean).join(", ") }, made);
}

function duration(seconds) {
  const total = Math.round(seconds);
  return `${Math.floor(total / 3600)}:${String(Math.floor(total / 60) % 60).padStart(2, "0")}:${String(total % 60).padStart(2, "0")}`;
}

function summary() {
  const metrics = [...new Set(runs.flatMap((one) => one.validations.flatMap((v) => Object.keys(v.scores))))];
  const rows = runs.map((one, at) => {
    const best = one.validations.findLast((v) => v.best) ?? one.validations.at(-1);
    const name = element("span", {}, element("span", { class: "key", style: `background: ${colourOf(at)}` }), one.name);
    return [name, one.finished ? "finished" : "training", one.step, duration(one.seconds), one.started?.parameters, ...metrics.map((metric) => best?.scores[metric]), best?.step];
  });
  return section("Summary", table(["run", "", "steps", "time", "parameters", ...metrics.map((metric) => `dev ${metric}`), "at step"], rows));
}

function curves() {
  const made = [
    ["Training loss, nats per token", "loss"], ["Learning rate", "rate"], ["Gradient norm", "gradient_norm"], ["Target tokens per second", "tokens_per_second"],
  ].map(([title, key]) => chart(title, runs.map((one, at) => ({ name: one.name, colour: colourOf(at), points: one.curves[key].map(([step, , value]) => [step, value]) }))));
  const metrics = [...new Set(runs.flatMap((one) => one.validations.flatMap((v) => Object.keys(v.scores))))];
  for (const metric of metrics)
    made.push(chart(`Dev ${metric}`, runs.map((one, at) => ({ name: one.name, colour: colourOf(at), points: one.validations.map((v) => [v.step, v.scores[metric]]) }))));
  return section("Curves", element("div", { class: "charts" }, ...made.filter(Boolean)));
}

function examples(one) {
  const last = one.validations.at(-1);
  if (!last?.examples.length) return null;
  return section(`Examples over training${runs.length > 1 ? ` · ${one.name}` : ""}`, ...last.examples.map((example, number) => {
    let before = null;
    const rows = one.validations.flatMap((v) => {
      const now = v.examples[number];
      if (!now || now.source !== example.source || now.output === before) return [];
      before = now.output;
      return [[v.step, element("span", { class: now.output === now.reference ? "right" : "" }, now.output || "(empty)")]];
    });
    return element("details", { open: number === 0 }, element("summary", {}, example.source), element("p", { class: "note" }, `Reference: ${example.reference}`), table(["step", "output"], rows));
  }));
}

function distributions(one) {
  const last = one.validations.findLast((v) => v.histograms);
  if (!last) return null;
  const tenths = (scale) => [...Array(10)].map((_, at) => (at * scale).toFixed(1).replace(/\.0$/, ""));
  return section(`Dev sentences at step ${last.step}${runs.length > 1 ? ` · ${one.name}` : ""}`, element("div", { class: "charts" },
    bars("Output length divided by reference length", last.histograms.length, tenths(0.2)), bars("Share of correct words", last.histograms.right, tenths(0.1))));
}

function attention(one) {
  const seen = one.validations.filter((v) => v.attention?.percent.length);
  if (!seen.length) return null;
  const chosen = [...new Set([0, Math.floor(seen.length / 3), Math.floor((2 * seen.length) / 3), seen.length - 1])].map((at) => seen[at]);
  const pictures = chosen.map((v) => {
    const { source, target, percent, labels } = v.attention;
    const matrix = { rows: target.length, columns: source.length, values: Float32Array.from(percent.flat(), (value) => value / 100) };
    return new Heatmap({ queries: target, keys: source, matrix, headings: labels, label: `Step ${v.step}`, say: () => {} }).root;
  });
  return section(`Attention over training${runs.length > 1 ? ` · ${one.name}` : ""}`, element("p", { class: "note" }, "Attention of one dev example, the mean over all layers and heads."), element("div", { class: "pictures" }, ...pictures));
}

function details(one) {
  const machine = one.started ? Object.entries(one.started.machine).map(([key, value]) => `${key}: ${value}`).join("\n") : "";
  return section(runs.length > 1 ? one.name : "Details",
    element("p", {}, `${duration(one.seconds)} of training, ${one.step} steps${one.started ? `, ${one.started.how}` : ""}.`),
    ...(machine ? [element("details", {}, element("summary", {}, "Machine"), element("pre", { class: "text", tabindex: 0 }, machine))] : []),
    ...(one.notes.length ? [element("details", {}, element("summary", {}, `Notes (${one.notes.length})`), element("pre", { class: "text", tabindex: 0 }, one.notes.map(([step, text]) => `step ${step}: ${text}`).join("\n")))] : []),
    ...(one.card ? [element("details", {}, element("summary", {}, "Card"), element("pre", { class: "text", tabindex: 0 }, one.card))] : []),
    element("details", {}, element("summary", {}, "Recipe"), element("pre", { class: "text", tabindex: 0 }, one.recipe)));
}

page.append(...[summary(), curves(), ...runs.flatMap((one) => [examples(one), distributions(one), attention(one)]), ...runs.map(details)].filter(Boolean));
