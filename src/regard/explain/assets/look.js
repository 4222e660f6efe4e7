// The page of one example: the output with the alternatives of each token, and attention.
import { AttentionView } from "./attention.js";
import { element } from "./elements.js";
import { markOpened, outputTokens, showAlternatives } from "./output.js";

const trace = JSON.parse(document.getElementById("trace").textContent);
const [line, panel] = ["output", "others"].map((id) => document.getElementById(id));

function open(at, token) {
  if (markOpened(document, token) === token) return close();
  showAlternatives(panel, trace, at, trace.alternatives[at], instead);
}

function close() {
  panel.hidden = true;
  markOpened(document, null)?.focus();
}

function instead(one) {
  const other = document.getElementById("instead");
  other.textContent = one.text;
  other.hidden = !one.text;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});

line.append(...outputTokens(trace, { choose: open, choosable: (at) => trace.alternatives[at]?.length }).nodes);
const root = document.getElementById("attention");
if (trace.attentions.length) new AttentionView(root, trace);
else root.append(element("p", { class: "note" }, "This model has no attention."));
