// Section 3.5 in a trained model: how much of a score comes from positions alone, by distance, in each head of the first layer.
import { element } from "./elements.js";
import { dot, positionalEncoding, product } from "./encoder.js";
import { loadModel, whenSeen } from "./model.js";
import { digits } from "./numbers.js";
import { plot, roomIn } from "./plot.js";
import { FIGURES } from "./registry.js";
import { redrawn, say } from "./words.js";

const [FARTHEST, FIRST, LAST] = [8, 8, 20]; // distances, and the positions over which the mean is taken

/** [head][distance]: PE(pos) W^Q · PE(pos + k) W^K / √d_k, minus the mean over all distances. */
function scores(encoder) {
  const { width, heads, headWidth } = encoder, matrix = encoder.weights["encoder.0.attention.project.weight"];
  const projected = Array.from({ length: LAST + FARTHEST + 1 }, (_, pos) => product(matrix, positionalEncoding(pos, width)));
  const part = (pos, which, head) => projected[pos].subarray(which * width + head * headWidth, which * width + (head + 1) * headWidth);
  return Array.from({ length: heads }, (_, head) => {
    const rows = Array.from({ length: 2 * FARTHEST + 1 }, (_, at) => {
      let sum = 0;
      for (let pos = FIRST; pos <= LAST; pos++) sum += dot(part(pos, 0, head), part(pos + at - FARTHEST, 1, head)) / Math.sqrt(headWidth);
      return sum / (LAST - FIRST + 1);
    });
    const mean = rows.reduce((a, b) => a + b, 0) / rows.length;
    return rows.map((one) => one - mean);
  });
}

FIGURES.offsets = (host) => {
  const state = element("p", { class: "state", role: "status" }), picture = element("div");
  let found = null;

  function draw() {
    if (!found) return;
    const all = found.flat(), [least, most] = [Math.min(...all), Math.max(...all)], room = 0.06 * (most - least);
    picture.replaceChildren(plot({
      label: say("Score of positions alone by distance, one line per head of layer 1"), width: roomIn(host), height: 300,
      x: { name: say("distance k of the word that is looked at"), range: [-FARTHEST, FARTHEST], format: (one) => digits(one, 0) },
      y: { name: say("score, from positions alone"), range: [least - room, most + room], format: (one) => digits(one, Math.max(0, 1 - Math.floor(Math.log10(most - least)))) },
      lines: found.map((rows, head) => ({ name: say("head {number}", { number: head + 1 }), colour: `var(--head-${head})`, points: rows.map((value, at) => [at - FARTHEST, value]) })),
    }));
    host.dataset.values = JSON.stringify(found);
    host.dataset.ready = 1;
  }

  host.replaceChildren(state, picture);
  whenSeen(host, async () => {
    state.textContent = say("Loading the model: 12 MB, once.");
    try {
      found = scores((await loadModel()).encoder);
      state.remove();
      draw();
    } catch (problem) {
      state.textContent = say("The figure cannot be computed: {reason}", { reason: problem.message });
    }
  });
  redrawn(draw);
};
