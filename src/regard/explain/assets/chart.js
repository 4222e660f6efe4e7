// A chart of lines over steps or time, for reports and the pages of `regard learn`.
import { SVG, element, fill } from "./elements.js";

const CHART = { width: 420, height: 220, right: 16, top: 10, bottom: 28, character: 6.6 }; // pixels; a character of a label is that wide

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
  return size !== 0 && size < 1e-3 ? number.toExponential(1).replace(".0e", "e") : String(+number.toPrecision(4));
}

/** Returns round numbers from `low` to `high`, about `count` of them. */
export function roundTicks(low, high, count = 4) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at++) found.push(+(at * step).toPrecision(12));
  return found;
}

/** Returns powers of ten between two positive numbers; round numbers if there are fewer than two. */
export function logTicks(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power++) found.push(10 ** power);
  return found.length > 1 ? found : roundTicks(low, high);
}

/** Returns the exponential moving average of points: s = w s + (1 - w) value, divided by 1 - w^n, since it begins at 0. */
export function movingAverage(points, weight) {
  let sum = 0, scale = 0;
  return points.map(([x, value]) => {
    sum = weight * sum + (1 - weight) * value;
    scale = weight * scale + (1 - weight);
    return [x, sum / scale];
  });
}

/** Draws lines: [{name, colour, points: [[x, value]], dots}], with dots for lines of few points. `pointed(x)` is called with where
    the pointer is, or where arrow keys have moved, and with null when it leaves. `say` translates what a chart says. */
export class Chart {
  constructor(title, lines, { log, smoothing, unit, format, pointed, say = fill }) {
    Object.assign(this, { title, unit, format, say });
    this.lines = lines
      .map((line) => ({ ...line, points: line.points.filter(([, value]) => Number.isFinite(value) && (!log || value > 0)) }))
      .filter((line) => line.points.length);
    const all = this.lines.flatMap((line) => line.points);
    this.empty = !all.length;
    if (this.empty) return;
    const values = all.map(([, value]) => value), [low, high] = [Math.min(...values), Math.max(...values)];
    this.scale(Math.max(...all.map(([x]) => x)), low, high, log);
    this.places = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b);
    this.svg = drawn("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "slider", tabindex: 0, "aria-label": say("{title} over {unit}", { title, unit: say(unit) }), "aria-valuemin": 0, "aria-valuemax": this.bounds.most });
    this.axes();
    for (const line of this.lines) this.line(line, line.dots ? 0 : smoothing);
    this.cross = drawn("line", { class: "cross", y1: CHART.top, y2: CHART.height - CHART.bottom, visibility: "hidden" });
    this.svg.append(this.cross);
    this.said = element("p", { class: "said" });
    this.root = element("figure", { class: "chart" }, element("figcaption", {}, title), this.svg, this.said);
    this.point(null);
    this.svg.addEventListener("pointermove", (event) => pointed(this.place(event)));
    this.svg.addEventListener("pointerleave", () => pointed(null));
    this.svg.addEventListener("keydown", (event) => this.key(event, pointed));
    this.svg.addEventListener("blur", () => pointed(null));
  }

  scale(most, low, high, log) {
    const room = high > low ? 0 : Math.abs(high) * 0.1 || 1;
    this.bounds = { most: most || 1, low: log && room ? low / 2 : low - room, high: log && room ? high * 2 : high + room, log };
    this.values = log ? logTicks(this.bounds.low, this.bounds.high) : roundTicks(this.bounds.low, this.bounds.high);
    this.left = 12 + CHART.character * Math.max(...this.values.map((value) => short(value).length));
    const across = CHART.width - this.left - CHART.right, down = CHART.height - CHART.top - CHART.bottom;
    const share = log ? (value) => Math.log(value / this.bounds.low) / Math.log(this.bounds.high / this.bounds.low) : (value) => (value - this.bounds.low) / (this.bounds.high - this.bounds.low);
    this.x = (x) => this.left + (across * x) / this.bounds.most;
    this.y = (value) => CHART.top + down * (1 - share(value));
  }

  axes() {
    for (const value of this.values)
      this.svg.append(drawn("line", { class: "grid", x1: this.left, x2: CHART.width - CHART.right, y1: this.y(value), y2: this.y(value) }), drawn("text", { x: this.left - 6, y: this.y(value) + 4, "text-anchor": "end" }, short(value)));
    for (const x of roundTicks(0, this.bounds.most)) {
      const text = this.format(x), half = (CHART.character * text.length) / 2;
      const anchor = this.x(x) + half > CHART.width ? "end" : this.x(x) - half < 0 ? "start" : "middle";
      this.svg.append(drawn("text", { x: anchor === "end" ? CHART.width - 1 : this.x(x), y: CHART.height - 8, "text-anchor": anchor }, text));
    }
  }

  line({ colour, points, dots }, smoothing) {
    const path = (some) => some.map(([x, value], at) => `${at ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(value).toFixed(1)}`).join("");
    if (smoothing) this.svg.append(drawn("path", { d: path(points), stroke: colour, class: "raw" }));
    this.svg.append(drawn("path", { d: path(smoothing ? movingAverage(points, smoothing) : points), stroke: colour, ...(dots ? { "stroke-dasharray": "5 4" } : {}) }));
    if (dots || points.length === 1) for (const [x, value] of points) this.svg.append(drawn("circle", { cx: this.x(x).toFixed(1), cy: this.y(value).toFixed(1), r: 3, fill: colour }));
  }

  place(event) {
    const box = this.svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * CHART.width;
    return Math.max(0, Math.min(this.bounds.most, ((at - this.left) / (CHART.width - this.left - CHART.right)) * this.bounds.most));
  }

  /** Moves the crosshair to the next or the previous point of a line, or to the first or the last. */
  key(event, pointed) {
    const { places } = this, here = this.at ?? this.bounds.most, before = places.findLast((x) => x < here), after = places.find((x) => x > here);
    const moves = { ArrowLeft: before, ArrowDown: before, ArrowRight: after, ArrowUp: after, Home: places[0], End: places.at(-1), Escape: null };
    if (!(event.key in moves)) return;
    event.preventDefault();
    if (moves[event.key] !== undefined) pointed(moves[event.key]);
  }

  /** Shows the values near x, which another chart may have; the last ones with null. */
  point(x) {
    const inside = x !== null && x <= this.bounds.most;
    this.at = x;
    this.cross.setAttribute("visibility", inside ? "visible" : "hidden");
    if (inside) for (const end of ["x1", "x2"]) this.cross.setAttribute(end, this.x(x).toFixed(1));
    this.said.textContent = this.lines.map(({ name, points }) => {
      const near = x === null ? points.at(-1) : points.reduce((best, one) => (Math.abs(one[0] - x) < Math.abs(best[0] - x) ? one : best));
      return `${name ? `${name}: ` : ""}${this.say("{value} at {place}", { value: short(near[1]), place: this.format(near[0]) })}`;
    }).join(" \u00b7 ");
    this.svg.setAttribute("aria-valuenow", inside ? x : this.bounds.most);
    this.svg.setAttribute("aria-valuetext", this.said.textContent);
  }
}

const OVER_STEPS = { log: false, smoothing: 0, unit: "steps", format: (step) => short(Math.round(step)) };

/** Draws one chart of lines over steps, [{name, colour, points: [[step, value]]}], in a figure; null if there is nothing to draw. */
export function chart(title, lines, say) {
  const made = new Chart(title, lines, { ...OVER_STEPS, say, pointed: (x) => made.point(x) });
  return made.empty ? null : made.root;
}
