// Numbers that can be chosen: buttons, vectors as rows of cells, and the panel that shows how a number was computed.
import { element, walk } from "./elements.js";
import { say } from "./words.js";

const LISTED = 8; // terms of a long sum, largest first
export const NARROW = matchMedia("(max-width: 40rem)"); // as in live.css

/** A number as it is displayed, with a true minus. */
export function digits(value, places = 3) {
  return value.toFixed(places).replace("-", "\u2212").replace(/^\u2212(0\.0+)$/, "$1");
}

const LITERAL = "\ue000"; // of the private use area: in front of a mark that is none of an index

/** A text, such as a word of the reader, as a formula displays it: its own _ and ^ begin no index. */
export function literal(text) {
  return text.replace(/[_^]/g, `${LITERAL}$&`);
}

/** A formula with indices, as the pages write it: x_i, W^Q_{i,5}. */
export function formula(text) {
  const parts = text.split(/(?<!\ue000)([_^])(?:\{([^{}]*)\}|([\w\u2032]+))/).map((part) => part?.replaceAll(LITERAL, ""));
  const made = element("span", { class: "formula" });
  for (let at = 0; at < parts.length; at += 4) {
    made.append(parts[at]);
    if (at + 1 < parts.length) made.append(element(parts[at + 1] === "_" ? "sub" : "sup", {}, parts[at + 2] ?? parts[at + 3]));
  }
  return made;
}

/** A number as a button; `choose` is called with it. */
export function numberButton(value, name, choose, places = 3) {
  return element("button", { type: "button", class: "number", "aria-label": `${name}: ${digits(value, places)}`, onclick: choose }, digits(value, places));
}

/** A vector as a picture of one pixel per entry. It is a slider to the keyboard; `choose` gets the place of an entry. */
export class Strip {
  constructor({ values, label, scale, choose }) {
    Object.assign(this, { values, scale, choose, at: 0 });
    this.columns = Math.min(values.length, NARROW.matches ? 32 : 64);
    this.rows = Math.ceil(values.length / this.columns);
    this.canvas = element("canvas", { width: this.columns, height: this.rows, onclick: (event) => this.point(event) });
    this.frame = element("span", { class: "frame", hidden: true });
    this.root = element("div", {
      class: "strip", role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 1, "aria-valuemax": values.length, onkeydown: (event) => this.key(event),
    }, this.canvas, this.frame);
    this.canvas.style.height = `${this.rows * (values.length > 64 ? 0.8 : 1.15)}rem`;
    this.draw();
    this.describe();
  }

  draw() {
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const [above, below] = ["--accent", "--head-1"].map((name) => style.getPropertyValue(name));
    this.values.forEach((value, at) => {
      pen.fillStyle = value < 0 ? below : above;
      pen.globalAlpha = Math.min(1, Math.abs(value) / this.scale);
      pen.fillRect(at % this.columns, Math.floor(at / this.columns), 1, 1);
    });
  }

  describe() {
    this.root.setAttribute("aria-valuenow", this.at + 1);
    this.root.setAttribute("aria-valuetext", `${this.at + 1}: ${digits(this.values[this.at])}`);
  }

  take(at) {
    this.at = at;
    this.describe();
    this.choose(at);
  }

  /** Frames the entry that is explained; none with null. */
  mark(at) {
    this.frame.hidden = at === null;
    if (at === null) return;
    const { columns, rows } = this, place = { left: (at % columns) / columns, top: Math.floor(at / columns) / rows, width: 1 / columns, height: 1 / rows };
    for (const [name, share] of Object.entries(place)) this.frame.style[name] = `${100 * share}%`;
  }

  point({ offsetX, offsetY }) {
    const { clientWidth, clientHeight } = this.canvas, inside = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    const at = inside(offsetY / clientHeight, this.rows) * this.columns + inside(offsetX / clientWidth, this.columns);
    if (at < this.values.length) this.take(at);
  }

  key(event) {
    const last = this.values.length - 1;
    const moves = { ArrowRight: this.at + 1, ArrowUp: this.at + 1, ArrowLeft: this.at - 1, ArrowDown: this.at - 1, Home: 0, End: last, Enter: this.at, " ": this.at };
    const next = moves[event.key];
    if (next === undefined || next < 0 || next > last) return;
    event.preventDefault();
    this.take(next);
  }
}

/** The largest magnitude of some vectors, at which cells have their full colour. */
export function scaleOf(vectors) {
  return Math.max(1e-9, ...vectors.map((one) => Math.max(...Array.from(one, Math.abs))));
}

/** Buttons of which one is pressed, for the words of a sentence. */
export function choices(texts, label, chosen, choose) {
  const buttons = texts.map((text, at) =>
    element("button", {
      type: "button", class: "word", "aria-pressed": String(at === chosen), tabindex: at === chosen ? 0 : -1,
      onclick: () => choose(at), onkeydown: (event) => walk(event, buttons, at),
    }, text),
  );
  return element("div", { class: "words", role: "group", "aria-label": label }, ...buttons);
}

/** A list to choose from. */
export function dropDown(label, options, chosen, choose) {
  const select = element("select", { onchange: () => choose(select.selectedIndex) }, ...options.map((text, at) => element("option", { selected: at === chosen }, text)));
  return element("label", { class: "choice" }, label, " ", select);
}

/** How a number was computed. Its height is fixed from the first number on, so that nothing moves when another one is chosen. */
export class Panel {
  constructor() {
    this.inside = element("div", { class: "inside", tabindex: 0, role: "group" });
    this.root = element("div", { class: "panel unused", "aria-live": "polite" }, this.inside);
    this.clear();
  }

  clear() {
    this.inside.setAttribute("aria-label", say("How this number was computed"));
    this.inside.replaceChildren(element("p", { class: "note" }, say("Choose any number or coloured cell: how it was computed is shown here.")));
  }

  /** `title` and `rule` are formulas; `terms` are [{name, parts, value}], and a part is {text} or {value, choose, name}. */
  show({ title, rule, terms, result, sum = true }) {
    const listed = sum && terms.length > LISTED ? [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, LISTED) : terms;
    const rest = terms.length - listed.length, total = listed.reduce((all, { value }) => all + value, 0);
    const rows = listed.map(({ name, parts, value }) =>
      element("tr", {}, element("th", { scope: "row" }, formula(name)), element("td", {}, ...parts.flatMap(shownPart)), element("td", { class: "value" }, value === undefined ? "" : digits(value, 4))));
    if (rest) rows.push(element("tr", {}, element("th", { scope: "row" }, say("{count} smaller terms", { count: rest })), element("td"), element("td", { class: "value" }, digits(result - total, 4))));
    this.inside.replaceChildren(
      element("p", { class: "title" }, formula(title), " = ", element("strong", {}, digits(result, 4))),
      element("p", {}, formula(rule)),
      element("table", {}, element("tbody", {}, ...rows)),
    );
    this.inside.scrollTop = 0;
    if (this.root.classList.contains("unused")) this.grow();
  }

  /** Takes the height of a computation, and scrolls if what was chosen would be behind it. */
  grow() {
    this.root.classList.remove("unused");
    const chosen = document.activeElement, behind = chosen.getBoundingClientRect().bottom - this.root.getBoundingClientRect().top;
    if (behind > 0 && this.root.parentElement?.contains(chosen) && !this.root.contains(chosen)) scrollBy(0, behind + 8);
  }
}

function shownPart({ text, value, choose, name }) {
  if (text !== undefined) return [` ${text} `];
  return [choose ? numberButton(value, name, choose, 4) : element("span", { class: "plain" }, digits(value, 4))];
}
