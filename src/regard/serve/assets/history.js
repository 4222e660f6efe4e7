// The history is stored only in this browser.
import { element } from "./elements.js";

const MAX_HISTORY = 50; // translations
const LONGEST = 2000; // characters of a text that is kept

const $ = (id) => document.getElementById(id);

const readHistory = () => JSON.parse(localStorage.getItem("history") ?? "[]");

/** Keep a translation: {source, target, model}. Texts that it begins with are what was typed before. */
export function remember(one, restore) {
  if (one.source.length > LONGEST) return;
  const kept = [one, ...readHistory().filter(({ source }) => !one.source.startsWith(source))].slice(0, MAX_HISTORY);
  localStorage.setItem("history", JSON.stringify(kept));
  showHistory(restore);
}

/** Show the history. `restore` is called with the translation that is chosen. */
export function showHistory(restore) {
  const found = readHistory();
  $("past").hidden = !found.length;
  $("history").replaceChildren(
    ...found.map((one) => element("li", {}, element("button", { type: "button", onclick: () => restore(one) }, element("span", {}, one.source), element("span", {}, one.target)))),
  );
}

export function forgetHistory(restore) {
  localStorage.removeItem("history");
  showHistory(restore);
}
