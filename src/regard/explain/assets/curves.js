// The curves of runs: training and dev together, a logarithmic axis, smoothing, and a crosshair across all charts.
import { Chart } from "./chart.js";
import { colourOf, element } from "./elements.js";

const CURVES = [["Gradient norm", "gradient_norm"], ["Learning rate", "rate"], ["Target tokens per second", "tokens_per_second"]];

// What metrics are called elsewhere, where it is not their name with spaces.
const LABELS = { bleu: "BLEU", chrf: "chrF", exact: "exact match" };

export const labelOf = (metric) => LABELS[metric] ?? metric.replaceAll("_", " ");

export function duration(seconds) {
  const total = Math.round(seconds);
  return `${Math.floor(total / 3600)}:${String(Math.floor(total / 60) % 60).padStart(2, "0")}:${String(total % 60).padStart(2, "0")}`;
}

export const metricsOf = (runs) => [...new Set(runs.flatMap((one) => one.validations.flatMap((v) => Object.keys(v.scores))))];

export class Curves {
  constructor(runs) {
    this.runs = runs;
    this.choice = { log: false, smoothing: 0, time: false };
    this.charts = element("div", { class: "charts" });
    const check = (name, text) => element("label", {}, element("input", { type: "checkbox", onchange: (event) => this.choose({ [name]: event.target.checked }) }), text);
    const slider = element("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, id: "smoothing", oninput: (event) => this.choose({ smoothing: Number(event.target.value) }) });
    const controls = element("div", { class: "controls" }, check("log", "logarithmic values"), check("time", "over time"), element("label", { class: "slider", for: "smoothing" }, "Smoothing", slider));
    this.root = element("section", {}, element("h2", {}, "Curves"), controls, this.legend(), this.charts);
    this.draw();
  }

  legend() {
    const keys = this.runs.map((one, at) => element("span", {}, element("span", { class: "key", style: `background: ${colourOf(at)}` }), one.name));
    return element("p", { class: "note legend" }, ...(this.runs.length > 1 ? keys : []), "Dashed lines with dots: dev. Loss in training is with label smoothing, on dev without.");
  }

  choose(change) {
    Object.assign(this.choice, change);
    this.draw();
  }

  draw() {
    const { log, smoothing, time } = this.choice;
    const pointed = (x) => this.drawn.forEach((chart) => chart.point(x));
    const options = { log, smoothing, pointed, unit: time ? "time" : "steps", format: time ? duration : (step) => Math.round(step).toLocaleString("en") };
    this.drawn = this.contents().map(([title, lines]) => new Chart(title, lines, options)).filter((chart) => !chart.empty);
    this.charts.replaceChildren(...this.drawn.map((chart) => chart.root));
  }

  /** Returns the title and the lines of each chart. */
  contents() {
    const { runs } = this, several = runs.length > 1;
    const name = (one, what) => [several ? one.name : "", what].filter(Boolean).join(", ");
    const train = (key, what = "") => runs.map((one, at) => ({ name: name(one, what), colour: colourOf(at), points: one.curves[key].map(([step, seconds, value]) => [this.choice.time ? seconds : step, value]) }));
    const dev = (metric, what = "") => runs.map((one, at) => ({ name: name(one, what), colour: colourOf(at), dots: true, points: one.validations.map((v) => [this.choice.time ? secondsAt(one, v.step) : v.step, v.scores[metric]]) }));
    const metrics = metricsOf(runs);
    const loss = ["Loss, nats per token", [...train("loss", "training"), ...(metrics.includes("loss") ? dev("loss", "dev") : [])]];
    return [loss, ...metrics.filter((metric) => metric !== "loss").map((metric) => [`Dev ${labelOf(metric)}`, dev(metric)]), ...CURVES.map(([title, key]) => [title, train(key)])];
  }
}

/** Returns how long a run had been training at a step, as far as the log says. */
function secondsAt(run, step) {
  return run.curves.loss.findLast(([at]) => at <= step)?.[1] ?? 0;
}
