// Section 3.5: the positional encodings as a picture, one row per position.
import { element } from "./elements.js";
import { positionalEncoding } from "./encoder.js";
import { digits, formula } from "./numbers.js";
import { slider } from "./plot.js";
import { FIGURES } from "./registry.js";
import { redrawn, say } from "./words.js";

const POSITIONS = 64;

FIGURES.sinusoids = (host) => {
  const now = { width: 128, pos: 10, at: 20 };
  const canvas = element("canvas", { class: "encodings" }), frame = element("span", { class: "frame" });
  const readout = element("p", { class: "readout", "aria-live": "polite" });
  let sliders = [];

  function draw() {
    const { width } = now, pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const [above, below] = ["--accent", "--head-1"].map((name) => style.getPropertyValue(name));
    Object.assign(canvas, { width, height: POSITIONS });
    for (let pos = 0; pos < POSITIONS; pos++)
      positionalEncoding(pos, width).forEach((value, at) => {
        pen.fillStyle = value < 0 ? below : above;
        pen.globalAlpha = Math.abs(value);
        pen.fillRect(at, pos, 1, 1);
      });
    tell();
  }

  function tell() {
    const { width, pos, at } = now, even = at - (at % 2), wave = 2 * Math.PI * 10000 ** (even / width);
    Object.assign(frame.style, { left: `${(100 * at) / width}%`, top: `${(100 * pos) / POSITIONS}%`, width: `${100 / width}%`, height: `${100 / POSITIONS}%` });
    readout.replaceChildren(
      formula(`PE(${pos}, ${at}) = ${at % 2 ? "cos" : "sin"}(${pos} / 10000^{${even}/${width}})`), " = ", element("strong", { class: "entry" }, digits(positionalEncoding(pos, width)[at], 4)), ". ",
      say("This wave repeats after {count} positions.", { count: wave < 1000 ? digits(wave, 1) : Math.round(wave).toLocaleString("en") }),
    );
  }

  canvas.addEventListener("click", ({ offsetX, offsetY }) => {
    now.at = Math.min(now.width - 1, Math.floor((offsetX / canvas.clientWidth) * now.width));
    now.pos = Math.min(POSITIONS - 1, Math.floor((offsetY / canvas.clientHeight) * POSITIONS));
    sliders[1].set(now.pos);
    sliders[2].set(now.at);
    tell();
  });

  function build() {
    const largest = () => now.width - 1;
    sliders = [
      slider({ name: say("width d_model"), steps: [32, 64, 128, 256], value: now.width, change: (value) => ((now.width = value), (now.at = Math.min(now.at, largest())), build()) }),
      slider({ name: say("position"), to: POSITIONS - 1, value: now.pos, change: (value) => ((now.pos = value), tell()) }),
      slider({ name: say("entry"), to: largest(), value: now.at, change: (value) => ((now.at = value), tell()) }),
    ];
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", say("Positions 0 to 63 down, entries of the encoding across: fast waves on the left, slow ones on the right"));
    const focused = host.contains(document.activeElement) && document.activeElement.tagName === "INPUT";
    host.replaceChildren(element("div", { class: "sliders" }, ...sliders), element("div", { class: "picture" }, canvas, frame), readout);
    if (focused) sliders[0].querySelector("input").focus();
    draw();
    host.dataset.ready = 1;
  }
  build();
  redrawn(build);
};
