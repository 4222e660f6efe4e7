// Section 5.4: the target of label smoothing, and the loss by the probability that a model gives to the right token.
import { element } from "./elements.js";
import { digits, formula } from "./numbers.js";
import { plot, roomIn, slider } from "./plot.js";
import { FIGURES } from "./registry.js";
import { redrawn, say } from "./words.js";

/** Cross-entropy with the smoothed target, where the model gives p to the right token and the rest to all others alike. */
function loss(p, epsilon, V) {
  const right = 1 - epsilon + epsilon / V, others = 1 - right; // of all others together
  return -(right * Math.log(p)) - (others ? others * Math.log((1 - p) / (V - 1)) : 0);
}

FIGURES.smoothing = (host) => {
  const now = { epsilon: 0.1, V: 8, p: 0.7 };
  const picture = element("div"), readout = element("p", { class: "readout", "aria-live": "polite" }), bars = element("div", { class: "targets" });

  function draw() {
    const { epsilon, V, p } = now, right = 1 - epsilon + epsilon / V, other = epsilon / V, modelOther = (1 - p) / (V - 1);
    const pair = (name, target, model) => {
      const bar = (share, kind) => {
        const made = element("span", { class: `bar ${kind}` });
        made.style.width = `${100 * share}%`;
        return made;
      };
      return element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "bars" }, bar(target, ""), bar(model, "model")),
        element("td", { class: "value target" }, digits(target, 4)), element("td", { class: "value" }, digits(model, 4)));
    };
    bars.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, element("td"), element("td"), element("th", { scope: "col" }, say("target")), element("th", { scope: "col" }, say("model")))),
      element("tbody", {}, pair(say("the right token"), right, p), pair(say("each of the other {count}", { count: (V - 1).toLocaleString("en") }), other, modelOther))));
    const points = (e) => Array.from({ length: 499 }, (_, at) => (at + 1) / 500).map((one) => [one, loss(one, e, V)]);
    picture.replaceChildren(plot({
      label: say("Loss by the probability of the right token"), width: roomIn(host), mark: [p, loss(p, epsilon, V)],
      x: { name: say("probability that the model gives to the right token"), range: [0, 1], format: (value) => digits(value, 1) },
      y: { name: say("loss"), range: [0, 4], format: (value) => String(value) },
      lines: [
        { name: say("without smoothing"), points: points(0), colour: "var(--quiet)", dashed: true },
        { name: say("with ε = {epsilon}", { epsilon: digits(epsilon, 2) }), points: points(epsilon), colour: "var(--accent)" },
      ],
    }));
    const least = epsilon ? loss(right, epsilon, V) : 0;
    readout.replaceChildren(
      say("loss"), " ", element("strong", { class: "loss" }, digits(loss(p, epsilon, V), 4)), "; ", say("the least that is possible, at p = {p}:", { p: digits(right, 3) }), " ", element("strong", { class: "least" }, digits(least, 4)), ". ",
      say("Gradient for the logit of the right token:"), " ", formula("p − target"), " = ", element("strong", { class: "gradient" }, digits(p - right, 4)), ". ",
      p > right ? say("The model is surer than the target, and is pushed back.") : say("The model is less sure than the target, and is pushed on."),
    );
  }

  function build() {
    const take = (name) => (value) => ((now[name] = value), draw());
    host.replaceChildren(
      element("div", { class: "sliders" },
        slider({ name: say("smoothing ε"), from: 0, to: 0.5, step: 0.01, value: now.epsilon, show: (value) => digits(value, 2), change: take("epsilon") }),
        slider({ name: say("vocabulary V"), steps: [2, 4, 8, 100, 8000, 37_000], value: now.V, show: (value) => value.toLocaleString("en"), change: take("V") }),
        slider({ name: say("model: p of the right token"), from: 0.01, to: 0.99, step: 0.01, value: now.p, show: (value) => digits(value, 2), change: take("p") })),
      bars, picture, readout);
    draw();
    host.dataset.ready = 1;
  }
  build();
  redrawn(build);
};
