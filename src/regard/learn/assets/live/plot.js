// Lines in a coordinate system, as SVG, and sliders.
import { SVG, element } from "./elements.js";

const MARGIN = { left: 56, right: 26, top: 12, bottom: 40 };

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Round numbers from one end of a range to the other. */
function ticks([from, to], wanted) {
  const rough = (to - from) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  return Array.from({ length: Math.floor(to / step + 1e-9) - Math.ceil(from / step - 1e-9) + 1 }, (_, at) => (Math.ceil(from / step - 1e-9) + at) * step);
}

/** `lines` are [{name, points, colour, dashed}]; `mark` is a point that is emphasized. Returns an element that is `width` wide. */
export function plot({ label, lines, x, y, width, height = 250, mark }) {
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const across = (value) => MARGIN.left + ((value - x.range[0]) / (x.range[1] - x.range[0])) * inner.width;
  const down = (value) => MARGIN.top + (1 - (value - y.range[0]) / (y.range[1] - y.range[0])) * inner.height;
  const write = (text, at, anchor) => svg("text", { x: at[0], y: at[1], "text-anchor": anchor }, text);
  const inside = ([, value]) => value >= y.range[0] && value <= y.range[1];
  const drawn = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const value of ticks(x.range, Math.max(3, inner.width / 90)))
    drawn.append(svg("line", { class: "grid", x1: across(value), x2: across(value), y1: MARGIN.top, y2: height - MARGIN.bottom }), write(x.format(value), [across(value), height - MARGIN.bottom + 16], "middle"));
  for (const value of ticks(y.range, 5))
    drawn.append(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: down(value), y2: down(value) }), write(y.format(value), [MARGIN.left - 6, down(value) + 4], "end"));
  drawn.append(write(x.name, [MARGIN.left + inner.width / 2, height - 4], "middle"));
  for (const { points, colour, dashed } of lines)
    drawn.append(svg("polyline", { points: points.filter(inside).map(([a, b]) => `${across(a).toFixed(1)},${down(b).toFixed(1)}`).join(" "), stroke: colour, class: dashed ? "dashed" : "" }));
  if (mark && inside(mark)) drawn.append(svg("circle", { cx: across(mark[0]), cy: down(mark[1]), r: 5 }));
  const key = lines.map(({ name, colour, dashed }) => {
    const sample = svg("svg", { width: 26, height: 10, "aria-hidden": "true" }, svg("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: colour, class: dashed ? "dashed" : "" }));
    return element("span", {}, sample, " ", name);
  });
  return element("div", { class: "plotted" }, element("p", { class: "y-name" }, y.name), drawn, element("p", { class: "key" }, ...key));
}

/** A slider with its value; `change` gets the value. `steps`, if given, are the values to choose from. */
export function slider({ name, from = 0, to, step = 1, steps, value, show = String, change }) {
  const given = (at) => (steps ? steps[at] : at), shownValue = element("span", { class: "value", "aria-hidden": "true" }, show(value));
  const input = element("input", {
    type: "range", min: steps ? 0 : from, max: steps ? steps.length - 1 : to, step, value: steps ? steps.indexOf(value) : value, "aria-valuetext": show(value),
    oninput: () => {
      const chosen = given(Number(input.value));
      shownValue.textContent = show(chosen);
      input.setAttribute("aria-valuetext", show(chosen));
      change(chosen);
    },
  });
  const root = element("label", { class: "slide" }, element("span", {}, name), shownValue, input);
  root.set = (chosen) => {
    input.value = steps ? steps.indexOf(chosen) : chosen;
    shownValue.textContent = show(chosen);
    input.setAttribute("aria-valuetext", show(chosen));
  };
  return root;
}

/** The width that a plot in a figure may have. */
export function roomIn(host) {
  const style = getComputedStyle(host);
  return Math.min(760, Math.floor(host.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)));
}
