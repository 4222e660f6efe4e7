// The output of a model as tokens that can be chosen, and the alternatives of one of them.
import { element, percent, shown, tokenTexts } from "./elements.js";

/** Returns the tokens of a trace's output: `nodes` with the spaces between them, and `parts`, [{element, tokens}]. The less probable
    a token, the redder it is and the thicker its line. `choose(at, token)` is called for one that is clicked; where `choosable(at)` is false, a token is plain text. */
export function outputTokens(trace, { choose, choosable = () => true }) {
  const nodes = [];
  const parts = tokenTexts(trace.target).map(({ text, before }, at) => {
    const sure = trace.probabilities[at] ?? 1;
    const token = choosable(at)
      ? element("button", { type: "button", class: "token", style: `--sure: ${sure}`, title: percent(sure), "aria-expanded": "false", "aria-controls": "others", onclick: (event) => choose(at, event.currentTarget) }, text || "\u2423")
      : element("span", { class: "plain" }, text);
    nodes.push(before, token);
    return { element: token, tokens: [at] };
  });
  return { nodes, parts };
}

/** Returns the place of the token that has the character at a place of the output's text. */
export function tokenAt(trace, place) {
  let end = 0;
  const found = tokenTexts(trace.target).findIndex(({ text, before }) => (end += before.length + text.length) > place);
  return found < 0 ? null : found;
}

/** Fills a panel with the alternatives of a token: [{probability, piece, text}], where `text` may be a node. */
export function showAlternatives(panel, trace, at, alternatives, choose) {
  panel.hidden = !alternatives.length;
  panel.replaceChildren(
    element("p", { class: "note" }, `Instead of \u201c${shown(trace.target.tokens[at])}\u201d (${percent(trace.probabilities[at])}):`),
    element("ul", {}, ...alternatives.map((one, rank) =>
      element("li", {}, element("button", { type: "button", onclick: () => choose(one, rank) },
        element("span", { class: "p" }, percent(one.probability)), element("strong", {}, shown(one.piece)), element("span", { class: "text" }, one.text || ""))),
    )),
  );
}

/** Marks the token whose alternatives are shown; none with null. Returns the one that was marked before. */
export function markOpened(root, token) {
  const before = root.querySelector(".token[aria-expanded=true]");
  before?.setAttribute("aria-expanded", "false");
  token?.setAttribute("aria-expanded", "true");
  return before;
}

/** Replaces the content of an element by the text of an axis, and returns its words as elements with their tokens: [{element, tokens}]. */
export function linkedWords(line, { text, tokens, words }) {
  const parts = [];
  let at = 0;
  line.replaceChildren();
  for (const word of words) {
    const own = shown(word.map((token) => tokens[token]).join("")), begin = text.indexOf(own, at);
    if (begin < 0) continue; // EOS
    parts.push({ element: element("span", { class: "plain" }, own), tokens: word });
    line.append(text.slice(at, begin), parts.at(-1).element);
    at = begin + own.length;
  }
  line.append(text.slice(at));
  return parts;
}
