// Section 5.3: the learning rate by step, for any width and warm-up.
import { element } from "./elements.js";
import { formula } from "./numbers.js";
import { plot, roomIn, slider } from "./plot.js";
import { FIGURES } from "./registry.js";
import { redrawn, say } from "./words.js";

const STEPS = 20_000;

function lrate(step, width, warmup) {
  return width ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);
}

const short = (value) => value.toPrecision(4);

FIGURES.schedule = (host) => {
  const now = { width: 512, warmup: 4000, step: 4000 };
  const picture = element("div"), readout = element("p", { class: "readout", "aria-live": "polite" });

  function draw() {
    const { width, warmup, step } = now;
    const points = (d, w) => Array.from({ length: 401 }, (_, at) => Math.max(1, (at * STEPS) / 400)).map((one) => [one, lrate(one, d, w)]);
    const most = Math.max(lrate(warmup, width, warmup), lrate(4000, 512, 4000)) * 1.05;
    picture.replaceChildren(plot({
      label: say("Learning rate by step, for width {width} and {warmup} steps of warm-up", now), width: roomIn(host), mark: [step, lrate(step, width, warmup)],
      x: { name: say("step"), range: [0, STEPS], format: (value) => value.toLocaleString("en") },
      y: { name: say("learning rate"), range: [0, most], format: (value) => (value ? value.toExponential(0) : "0") },
      lines: [
        { name: say("the paper's base model: 512, 4000"), points: points(512, 4000), colour: "var(--quiet)", dashed: true },
        { name: say("yours"), points: points(width, warmup), colour: "var(--accent)" },
      ],
    }));
    const rate = lrate(step, width, warmup), rising = step < warmup;
    readout.replaceChildren(
      formula(`lrate(${step}) = ${width}^{−0.5} · min(${step}^{−0.5}, ${step} · ${warmup}^{−1.5})`), element("br"),
      `= ${short(width ** -0.5)} · min(${short(step ** -0.5)}, ${short(step * warmup ** -1.5)}) = `, element("strong", { class: "rate" }, short(rate)), " ",
      rising ? say("(rising: the second is smaller)") : say("(falling: the first is smaller)"),
    );
  }

  function build() {
    const take = (name) => (value) => ((now[name] = value), draw());
    host.replaceChildren(
      element("div", { class: "sliders" },
        slider({ name: say("width d_model"), steps: [64, 128, 256, 512, 1024, 2048], value: now.width, change: take("width") }),
        slider({ name: say("warm-up steps"), from: 100, to: 16_000, step: 100, value: now.warmup, change: take("warmup") }),
        slider({ name: say("step"), from: 100, to: STEPS, step: 100, value: now.step, change: take("step") })),
      picture, readout);
    draw();
    host.dataset.ready = 1;
  }
  build();
  redrawn(build);
};
