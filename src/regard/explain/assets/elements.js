// What the pages share: elements, the keyboard, and how tokens and numbers are displayed.

const PALETTE = 8;
const END = "</s>"; // how the token EOS is displayed

export const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key === "style") made.style.cssText = value; // a strict content security policy refuses the attribute
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Moves the focus through a list of buttons with the arrow keys. */
export function walk(event, buttons, at) {
  const moves = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 };
  const next = buttons[moves[event.key]];
  if (moves[event.key] === undefined || !next) return;
  event.preventDefault();
  buttons[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/** Returns a token or a word as it is displayed. Bytes that spell characters are displayed as these characters. */
export function shown(token) {
  return token.replace(/(?:<0x[0-9A-F]{2}>)+/g, spellBytes).replaceAll("\u2581", " ").trim() || "\u2423";
}

function spellBytes(text) {
  const bytes = text.match(/[0-9A-F]{2}/g).map((one) => parseInt(one, 16));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
  } catch {
    return text;
  }
}

/** Returns a text with values in it: fill("layer {number}", { number: 1 }). Pages in several languages translate it first. */
export function fill(text, values = {}) {
  return text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

export function percent(weight) {
  return weight > 0 && weight < 0.01 ? "<1 %" : `${Math.round(100 * weight)} %`;
}

/** Returns [{text, before}] for the tokens of an axis without EOS: how each is displayed, and the spaces of the text before it. */
export function tokenTexts({ text, tokens }) {
  let at = 0;
  return (tokens.at(-1) === END ? tokens.slice(0, -1) : tokens).map((token) => {
    const own = token.replaceAll("\u2581", " ").trim();
    const begin = text.indexOf(own, at);
    if (begin < 0) return { text: own, before: /^[\s\u2581]/.test(token) && at ? " " : "" };
    const before = text.slice(at, begin);
    at = begin + own.length;
    return { text: own, before };
  });
}

export function colourOf(head) {
  return `var(--head-${head % PALETTE})`;
}

const SEGMENTER = new Intl.Segmenter(undefined, { granularity: "word" });

/** Returns a text as elements, one per word or punctuation mark, that know their place in it; `offset` is that of the text itself. */
export function wordSpans(text, offset = 0) {
  return [...SEGMENTER.segment(text)].map(({ segment, index }) => (segment.trim() ? element("span", { "data-at": offset + index }, segment) : segment));
}

/** Returns the space between two translations: one where they need it and what was translated, Chinese or Japanese, has none. */
export function spaceBetween(original, space, left, right) {
  const ends = (text) => /[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]["'\u2019\u201d\u00bb)\]\u300d\u300f\uff09]{0,4}$/.test(text.slice(-5));
  const begins = (text) => /^[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]/.test(text);
  return !space && left && right && ends(original) && !ends(left) && !begins(right) ? " " : space;
}
