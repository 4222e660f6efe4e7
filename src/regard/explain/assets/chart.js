// A chart of lines over steps, for reports and the pages of `regard learn`.
import { SVG, element } from "./elements.js";

export const CHART = { width: 420, height: 220, left: 52, bottom: 28 };

export function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function short(number) {
  if (number === null || number === undefined) return "";
  const size = Math.abs(number);
  if (size >= 1e6) return `${+(number / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(number / 1e3).toPrecision(3)}k`;
  return size !== 0 && size < 1e-3 ? number.toExponential(1) : String(+number.toPrecision(4));
}

/** Draws lines over steps: [{name, colour, points: [[step, value]]}]. */
export function chart(title, lines) {
  const { width, height, left, bottom } = CHART;
  const points = lines.flatMap((line) => line.points).filter(([, value]) => Number.isFinite(value));
  if (!points.length) return null;
  const [most, low, high] = [Math.max(...points.map((p) => p[0])), Math.min(...points.map((p) => p[1])), Math.max(...points.map((p) => p[1]))];
  const span = high - low || 1;
  const x = (step) => left + ((width - left - 8) * step) / (most || 1);
  const y = (value) => height - bottom - ((height - bottom - 10) * (value - low)) / span;
  const last = lines.map((line) => `${lines.length > 1 ? `${line.name} ` : ""}${short(line.points.at(-1)?.[1])}`).join(", ");
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} over steps; last: ${last}` });
  for (const share of [0, 0.5, 1]) {
    const value = low + share * span;
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }), drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    svg.append(drawn("text", { x: x(share * most), y: height - 8, "text-anchor": share === 1 ? "end" : share ? "middle" : "start" }, short(share * most)));
  }
  for (const line of lines) {
    const path = line.points.filter(([, value]) => Number.isFinite(value)).map(([step, value], at) => `${at ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    svg.append(drawn("path", { d: path, stroke: line.colour }));
  }
  const said = element("p", { class: "said" }, last);
  svg.addEventListener("mousemove", (event) => {
    const step = ((event.offsetX / svg.clientWidth) * width - left) / (width - left - 8) * most;
    said.textContent = lines.map((line) => {
      const near = line.points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best), line.points[0] ?? [0, NaN]);
      return `${line.name}: step ${near[0]}, ${short(near[1])}`;
    }).join(" · ");
  });
  svg.addEventListener("mouseleave", () => (said.textContent = last));
  return element("figure", { class: "chart" }, element("figcaption", {}, title), svg, said);
}
