// The page of one sentence: its translation with what else could have stood there, and attention.
import { AttentionView, element, percent, shown } from "./attention.js";

const trace = JSON.parse(document.getElementById("trace").textContent);

function translation() {
  const line = document.getElementById("translation"), panel = document.getElementById("others");
  trace.target.tokens.slice(0, -1).forEach((piece, at) => {
    const sure = trace.probabilities[at] ?? 1;
    const text = piece.replaceAll("\u2581", " ");
    if (/^\s/.test(text) && at) line.append(" ");
    if (!trace.alternatives[at]?.length) {
      line.append(text.trimStart());
      return;
    }
    line.append(
      element("button", { type: "button", class: "token", style: `--sure: ${sure}`, title: percent(sure), "aria-expanded": "false", "aria-controls": "others", onclick: (event) => open(event.currentTarget, at, panel) }, text.trimStart()),
    );
  });
}

function open(button, at, panel) {
  const already = button.getAttribute("aria-expanded") === "true";
  for (const one of document.querySelectorAll(".token[aria-expanded=true]")) one.setAttribute("aria-expanded", "false");
  panel.hidden = already;
  if (already) return;
  button.setAttribute("aria-expanded", "true");
  const list = element("ul");
  for (const one of trace.alternatives[at])
    list.append(
      element("li", {}, element("button", { type: "button", onclick: () => instead(one) },
        element("span", { class: "p" }, percent(one.probability)), element("strong", {}, shown(one.piece)), element("span", { class: "text" }, one.text || "")),
      ),
    );
  panel.replaceChildren(element("p", { class: "note" }, `Instead of “${shown(trace.target.tokens[at])}” (${percent(trace.probabilities[at])}):`), list);
}

function instead(one) {
  const line = document.getElementById("instead");
  line.textContent = one.text;
  line.hidden = !one.text;
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const opened = document.querySelector(".token[aria-expanded=true]");
  document.getElementById("others").hidden = true;
  opened?.setAttribute("aria-expanded", "false");
  opened?.focus();
});

translation();
const root = document.getElementById("attention");
if (trace.attentions.length) new AttentionView(root, trace);
else root.append(element("p", { class: "note" }, "This model has no attention: all it knows of the source is one vector."));
