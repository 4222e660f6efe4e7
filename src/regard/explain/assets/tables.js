// Tables of a report.
import { short } from "./chart.js";
import { colourOf, element } from "./elements.js";
import { duration, labelOf, metricsOf } from "./curves.js";

function cell(value) {
  if (value instanceof Node) return element("td", {}, value);
  if (typeof value !== "number") return element("td", {}, value ?? "");
  return element("td", { class: "number", title: value }, Number.isInteger(value) ? value.toLocaleString("en") : short(value));
}

export function table(head, rows) {
  const top = element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  const made = element("table", {}, element("thead", {}, top), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": head.filter(Boolean).join(", ") }, made);
}

export const section = (title, ...children) => element("section", {}, element("h2", {}, title), ...children);

/** Returns a section with one column per run, those without content left out. */
export function sideBySide(title, runs, contentOf) {
  const columns = runs.map((one) => [one, contentOf(one)]).filter(([, content]) => content);
  if (!columns.length) return null;
  if (runs.length === 1) return section(title, columns[0][1]);
  return section(title, element("div", { class: "side scroll", tabindex: 0, role: "group", "aria-label": title }, ...columns.map(([one, content]) => element("div", {}, element("h3", {}, one.name), content))));
}

export function summary(runs) {
  const metrics = metricsOf(runs);
  const rows = runs.map((one, at) => {
    const best = one.validations.findLast((v) => v.best) ?? one.validations.at(-1);
    const name = element("span", { class: "run" }, element("span", { class: "key", style: `background: ${colourOf(at)}` }), one.name);
    return [name, one.finished ? "finished" : "training", one.step, duration(one.seconds), one.started?.parameters, ...metrics.map((metric) => best?.scores[metric]), best?.step, one.settings["train.final"] === "best" ? "of the best step" : "of the last step"];
  });
  return section("Summary", table(["run", "", "steps", "time", "parameters", ...metrics.map((metric) => `dev ${labelOf(metric)}`), "best at step", "final weights"], rows));
}

/** Returns the settings that are not the same in all runs. */
export function differingSettings(runs) {
  if (runs.length < 2) return null;
  const text = (value) => (value === undefined ? "\u2013" : typeof value === "string" ? value : JSON.stringify(value));
  const names = [...new Set(runs.flatMap((one) => Object.keys(one.settings)))];
  const rows = names.map((name) => [name, ...runs.map((one) => text(one.settings[name]))]).filter(([, first, ...rest]) => rest.some((one) => one !== first));
  return section("Settings that differ", rows.length ? table(["setting", ...runs.map((one) => one.name)], rows) : element("p", {}, "All settings are the same."));
}
