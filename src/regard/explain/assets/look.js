// The page of one example: the output with the alternatives of each token, and attention.
import { AttentionView } from "./attention.js";
import { element, percent, shown, tokenTexts } from "./elements.js";

const trace = JSON.parse(document.getElementById("trace").textContent);

function output() {
  const line = document.getElementById("output"), panel = document.getElementById("others");
  tokenTexts(trace.target).forEach(({ text, before }, at) => {
    const sure = trace.probabilities[at] ?? 1;
    line.append(before);
    if (!trace.alternatives[at]?.length) {
      line.append(text);
      return;
    }
    line.append(
      element("button", { type: "button", class: "token", style: `--sure: ${sure}`, title: percent(sure), "aria-expanded": "false", "aria-controls": "others", onclick: (event) => open(event.currentTarget, at, panel) }, text || "\u2423"),
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

output();
const root = document.getElementById("attention");
if (trace.attentions.length) new AttentionView(root, trace);
else root.append(element("p", { class: "note" }, "This model has no attention."));
