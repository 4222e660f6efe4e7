// Section 3.5: the dot product of two positional encodings depends on their distance alone.
import { element } from "./elements.js";
import { dot, positionalEncoding } from "./encoder.js";
import { digits } from "./numbers.js";
import { plot, roomIn, slider } from "./plot.js";
import { FIGURES } from "./registry.js";
import { redrawn, say } from "./words.js";

const FARTHEST = 50;

FIGURES.distances = (host) => {
  const now = { width: 256, pos: 60, k: 1 };
  const picture = element("div"), readout = element("p", { class: "readout", "aria-live": "polite" });

  function draw() {
    const { width, pos, k } = now, own = positionalEncoding(pos, width);
    const value = (distance) => dot(own, positionalEncoding(pos + distance, width));
    const points = Array.from({ length: 2 * FARTHEST + 1 }, (_, at) => [at - FARTHEST, value(at - FARTHEST)]);
    picture.replaceChildren(plot({
      label: say("PE({pos}) · PE({pos} + k) by k, for width {width}", now), width: roomIn(host), mark: [k, value(k)],
      x: { name: say("distance k"), range: [-FARTHEST, FARTHEST], format: (one) => digits(one, 0) },
      y: { name: say("dot product"), range: [0, width / 2 + 4], format: (one) => digits(one, 0) },
      lines: [{ name: `PE(${pos}) · PE(${pos} + k)`, points, colour: "var(--accent)" }],
    }));
    readout.replaceChildren(`PE(${pos}) · PE(${pos + k}) = `, element("strong", { class: "product" }, digits(value(k), 3)), "; ", `PE(${pos}) · PE(${pos - k}) = `, element("strong", {}, digits(value(-k), 3)), ". ",
      say("Another position gives the same curve."));
  }

  function build() {
    const take = (name) => (value) => ((now[name] = value), draw());
    host.replaceChildren(
      element("div", { class: "sliders" },
        slider({ name: say("width d_model"), steps: [32, 64, 128, 256, 512], value: now.width, change: take("width") }),
        slider({ name: say("position"), from: FARTHEST, to: 500, value: now.pos, change: take("pos") }),
        slider({ name: say("distance k"), from: -FARTHEST, to: FARTHEST, value: now.k, change: take("k") })),
      picture, readout);
    draw();
    host.dataset.ready = 1;
  }
  build();
  redrawn(build);
};
