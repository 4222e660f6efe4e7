// The page of one example: the output with the alternatives of each token, and attention.
import { AttentionView } from "./attention.js";
import { element } from "./elements.js";
import { linkedWords, markOpened, outputTokens, showAlternatives } from "./output.js";

const $ = (id) => document.getElementById(id);
const trace = JSON.parse($("trace").textContent);
const [source, line, panel, attention] = ["source", "output", "others", "attention"].map($);
let view = null;

/** Draw the attention of a trace, whose output has these parts. */
function drawAttention(drawn, parts) {
  view?.highlight((view.pinned = null));
  attention.replaceChildren();
  if (!drawn.attentions.length) return attention.append(element("p", { class: "note" }, "This model has no attention."));
  const texts = [{ axis: "source", parts: linkedWords(source, drawn.source) }, { axis: "target", parts }];
  view = new AttentionView(attention, drawn, { texts, choice: view?.choice });
}

function showOutput() {
  const { nodes, parts } = outputTokens(trace, { choose: open, choosable: (at) => trace.alternatives[at]?.length });
  line.replaceChildren(...nodes);
  $("instead").hidden = true;
  drawAttention(trace, parts);
}

function open(at, token) {
  if (markOpened(document, token) === token) return close();
  showAlternatives(panel, trace, at, trace.alternatives[at], instead);
}

function close() {
  panel.hidden = true;
  markOpened(document, null)?.focus();
}

/** Show the output that an alternative leads to, with its attention if the page has it. */
function instead(one) {
  const other = $("instead");
  other.hidden = !one.text;
  if (!one.trace) return (other.textContent = one.text);
  const kept = trace.attentions.filter(({ queries, keys }) => !(queries in one.trace || keys in one.trace)); // the source is the same
  const drawn = { ...trace, ...one.trace, attentions: [...kept, ...one.trace.attentions] };
  const { nodes, parts } = outputTokens(drawn, { choosable: () => false });
  other.replaceChildren(...nodes, " ", element("button", { type: "button", class: "back", onclick: showOutput }, "Back to the output"));
  drawAttention(drawn, parts);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});

showOutput();
