// Section 3.5: PE(pos + k) is PE(pos), each pair of sine and cosine turned by an angle that depends on k alone.
import { SVG, element } from "./elements.js";
import { digits, formula } from "./numbers.js";
import { slider } from "./plot.js";
import { FIGURES } from "./registry.js";
import { redrawn, say } from "./words.js";

const WIDTH = 256;

FIGURES.rotation = (host) => {
  const now = { pos: 3, k: 2, pair: 8 };
  const picture = element("div", { class: "circle" }), readout = element("div", { class: "readout", "aria-live": "polite" });

  function draw() {
    const { pos, k, pair } = now, frequency = 10000 ** ((-2 * pair) / WIDTH);
    const [before, turn] = [pos * frequency, k * frequency], after = before + turn;
    const point = (angle, length = 100) => [130 + length * Math.sin(angle), 130 - length * Math.cos(angle)]; // sine across, cosine up
    const make = (name, attributes, text) => {
      const made = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      if (text) made.textContent = text;
      return made;
    };
    const arrow = (angle, colour, label) => {
      const [x, y] = point(angle), [tx, ty] = point(angle, 116);
      return [make("line", { x1: 130, y1: 130, x2: x, y2: y, stroke: colour, "stroke-width": 3 }), make("circle", { cx: x, cy: y, r: 5, fill: colour }), make("text", { x: tx, y: ty + 4, "text-anchor": "middle", fill: colour }, label)];
    };
    const drawn = make("svg", { viewBox: "-10 -10 280 280", class: "plot", role: "img", "aria-label": say("Entries {even} and {odd} of the encoding as a point on a circle, at two positions", { even: 2 * pair, odd: 2 * pair + 1 }) });
    const arc = Array.from({ length: 41 }, (_, at) => point(before + (turn * at) / 40, 45).map((one) => one.toFixed(1)).join(",")).join(" ");
    drawn.append(make("circle", { cx: 130, cy: 130, r: 100, class: "grid", fill: "none" }), make("polyline", { points: arc, stroke: "var(--accent)", class: "dashed" }),
      ...arrow(before, "var(--head-1)", String(pos)), ...arrow(after, "var(--accent)", String(pos + k)));
    picture.replaceChildren(drawn);
    const [s, c, sk, ck] = [Math.sin(before), Math.cos(before), Math.sin(turn), Math.cos(turn)].map((one) => digits(one));
    const results = [Math.cos(turn) * Math.sin(before) + Math.sin(turn) * Math.cos(before), Math.cos(turn) * Math.cos(before) - Math.sin(turn) * Math.sin(before)];
    const row = (name, left, right) => element("tr", {}, element("th", { scope: "row" }, formula(name)), element("td", {}, `= ${left} = `, element("strong", {}, digits(right))));
    readout.replaceChildren(
      element("p", {}, formula(`ω = 10000^{−${2 * pair}/${WIDTH}} = ${frequency.toPrecision(3)}`), `. ${say("From position {pos} to {next} this pair turns by ω · {k} = {angle}°, wherever it is.", { pos, next: pos + k, k, angle: digits((turn * 180) / Math.PI, 1) })}`),
      element("table", {}, element("tbody", {},
        row(`sin(ω·${pos + k})`, `${ck} · ${s} + ${sk} · ${c}`, results[0]),
        row(`cos(ω·${pos + k})`, `${ck} · ${c} − ${sk} · ${s}`, results[1]))),
    );
    host.dataset.values = JSON.stringify(results);
  }

  function build() {
    const take = (name) => (value) => ((now[name] = value), draw());
    host.replaceChildren(
      element("div", { class: "sliders" },
        slider({ name: say("position"), to: 60, value: now.pos, change: take("pos") }),
        slider({ name: say("distance k"), from: -10, to: 10, value: now.k, change: take("k") }),
        slider({ name: say("pair i"), to: WIDTH / 2 - 1, value: now.pair, change: take("pair") })),
      element("div", { class: "side-by-side" }, picture, readout));
    draw();
    host.dataset.ready = 1;
  }
  build();
  redrawn(build);
};
