// Text before and after the model: sentences, protected spans, words. The same as in regard.text and regard.explain.
import { EOS, SPACE, SPACES, strip } from "./tokenizer.js";

// Python's classes of characters.
const [W, D, S] = ["\\p{L}\\p{N}_", "\\p{Nd}", SPACES];
const [w, d, s] = [`[${W}]`, `[${D}]`, `[${S}]`];
const ALNUM = /[\p{L}\p{N}]/u;

// Protected spans

const MOST_PLACEHOLDERS = 20;
export const PLACEHOLDERS = Array.from({ length: MOST_PLACEHOLDERS }, (_, number) => `\u27e6${number + 1}\u27e7`);
const EMOJI = "[\\u203c-\\u3299\\u{1f000}-\\u{1faff}]";
const NO_EMOJI = "[\\u2070-\\u21a8\\u21ab-\\u22ff\\u3001-\\u302f\\u3031-\\u303c\\u303e-\\u3296]";
// The first kind that fits counts.
const KINDS = {
  placeholder: `\u27e6${d}{1,3}\u27e7`,
  code: "`[^`\\n]{1,200}`",
  url: String.raw`(?:https?|ftp)://[^${S}<>"\u201c\u201d]{1,1000}|(?<!${w})www\.[^${S}<>"\u201c\u201d]{1,1000}`,
  "e-mail": String.raw`[${W}.+\-]{1,64}@[${W}\-]{1,63}(?:\.[${W}\-]{1,63}){1,8}`,
  tag: String.raw`</?[A-Za-z][${W}:\-]{0,50}(?:${s}[^<>]{0,500})?/?>|&(?:[A-Za-z]{2,12}|#${d}{1,7}|#x[${D}A-Fa-f]{1,6});`,
  format: String.raw`%(?:\(${w}{1,50}\)|${d}{1,2}\$)?[\-+#0]{0,3}${d}{0,4}(?:\.${d}{1,4})?(?:l{1,2}|h)?[sdiufgGeExXoc@](?!${w})`,
  variable: String.raw`\$?\{\{?${s}?[${W}.:,#!|\-]{0,64}${s}?\}?\}|\$[A-Za-z_]${w}{0,50}(?!${w})|(?<![${W}%])%${w}{1,50}%(?!${w})`,
  number: String.raw`(?<![${W}.,])[$\u20ac\xa3\xa5]?[+\-\u2212]?${d}{1,50}(?:[.,:/\-\u2013]${d}{1,50}){0,20}(?:${s}?%|[\u20ac\xa3\xa5])?(?![${W}@])`,
  emoji: String.raw`(?!${NO_EMOJI})(?:${EMOJI}[\ufe0f\u200d\u{1f3fb}-\u{1f3ff}]{0,3}){1,10}`,
};
const SPAN = new RegExp(Object.values(KINDS).map((pattern) => `(${pattern})`).join("|"), "gu");
const NAMES = Object.keys(KINDS);
const AFTER_URL = ".,;:!?'\"\u00bb\u201c)]}\u2026"; // marks that do not belong to a URL

function withoutMarks(url) {
  const count = (mark) => url.split(mark).length - 1;
  while (AFTER_URL.includes(url.at(-1)) && !(url.at(-1) === ")" && count("(") >= count(")"))) url = url.slice(0, -1);
  return url;
}

export function findSpans(text) {
  const found = [];
  for (let at = 0, match; (SPAN.lastIndex = at), (match = SPAN.exec(text)); ) {
    const kind = NAMES[match.slice(1).findIndex((one) => one !== undefined)];
    const span = kind === "url" ? withoutMarks(match[0]) : match[0];
    at = match.index + Math.max(span.length, 1);
    if (strip(span)) found.push({ kind, text: span, start: match.index, end: match.index + span.length });
  }
  found.forEach((span, number) => {
    const before = [...text.slice(Math.max(0, span.start - 2), span.start)].at(-1) ?? "";
    const after = [...text.slice(span.end, span.end + 2)][0] ?? "";
    span.joinedBefore = found[number - 1]?.end === span.start || ALNUM.test(before);
    span.joinedAfter = found[number + 1]?.start === span.end || ALNUM.test(after);
  });
  return found;
}

/** Return the text with placeholders in place of its first spans, and these spans. */
export function mask(text) {
  const spans = findSpans(text).slice(0, MOST_PLACEHOLDERS);
  let out = "", at = 0;
  spans.forEach((span, number) => {
    out += text.slice(at, span.start) + (span.joinedBefore ? " " : "") + PLACEHOLDERS[number] + (span.joinedAfter ? " " : "");
    at = span.end;
  });
  return { text: (out + text.slice(at)).replaceAll("\u27e7  \u27e6", "\u27e7 \u27e6"), spans };
}

/** Return tokens as they are displayed: placeholders as the spans that they stand for. */
export function display(tokens, spans) {
  return tokens.map((token) => spans[PLACEHOLDERS.indexOf(token)]?.text ?? token);
}

/** Return an output with the spans in place of their placeholders. */
export function restore(output, spans) {
  const parts = output.split(/\u27e6([1-9]\p{Nd}?)\u27e7/u);
  for (let at = 1; at < parts.length; at += 2) {
    const span = spans[Number(parts[at]) - 1];
    if (!span) {
      parts[at] = `\u27e6${parts[at]}\u27e7`;
      continue;
    }
    parts[at] = span.text;
    if (span.joinedBefore) parts[at - 1] = parts[at - 1].replace(/ $/, "");
    if (span.joinedAfter) parts[at + 1] = parts[at + 1].replace(/^ /, "");
  }
  return parts.join("");
}

/** Return the ids of the placeholders, or none if the tokenizer splits them. */
export function placeholderIds(tokenizer) {
  const found = PLACEHOLDERS.map((symbol) => tokenizer.encode(symbol).at(-1));
  return found.every((id, at) => id !== undefined && tokenizer.tokens([id])[0] === PLACEHOLDERS[at]) ? found : [];
}

// Sentences

const closing = String.raw`["'\u2019\u201d\u00bb)\]\u300d\u300f\uff09]`;
const END = new RegExp(String.raw`(?<=[.!?\u2026])${closing}*${s}+|(?<=[\u3002\uff01\uff1f])${closing}*${s}*|(?<!${s})${s}*\n${s}*`, "gu");
const CLOSING = new RegExp(`^${closing}*`, "u");
const ABBREVIATION = new RegExp(String.raw`(?<!${w})(?:[A-Za-z]|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|bzw|ca|usw|vgl|z\.B|d\.h|e\.g|i\.e|${d}{1,2})\.$`, "u");
const ABBREVIATION_WINDOW = 8; // last characters of a sentence in which an abbreviation is searched
const leading = (text) => text.match(new RegExp(`^[${S}]*`, "u"))[0];
const trailing = (text) => text.match(new RegExp(`[${S}]*$`, "u"))[0];

/** Split a text into sentences that fit the model: {sentences, spaces}, with the spaces before, between and after them. */
export function segment(text, fits) {
  const sentences = [], spaces = [leading(text)];
  for (const [sentence, space] of sentencesOf(text.slice(spaces[0].length))) {
    for (const [part, gap] of partsOf(sentence, fits)) {
      sentences.push(part);
      spaces.push(gap);
    }
    spaces[spaces.length - 1] = space;
  }
  return { sentences, spaces };
}

function sentencesOf(text) {
  const found = [];
  let begin = 0;
  for (const match of text.matchAll(END)) {
    const end = match.index + match[0].match(CLOSING)[0].length;
    const sentence = text.slice(begin, end);
    const abbreviated = !match[0].includes("\n") && ABBREVIATION.test([...sentence].slice(-ABBREVIATION_WINDOW).join(""));
    if (strip(sentence) && !abbreviated) {
      found.push([sentence, text.slice(end, match.index + match[0].length)]);
      begin = match.index + match[0].length;
    }
  }
  const rest = text.slice(begin), space = trailing(rest);
  if (strip(rest)) found.push([rest.slice(0, rest.length - space.length), space]);
  else if (rest && found.length) found.at(-1)[1] += rest;
  return found;
}

function partsOf(sentence, fits) {
  if (sentence.length < 2 || fits(sentence)) return [[sentence, ""]];
  const spaces = [...sentence.matchAll(new RegExp(`[${S}]+`, "gu"))];
  const characters = [...sentence], space = spaces[spaces.length >> 1];
  const middle = space ? space.index : characters.slice(0, characters.length >> 1).join("").length;
  const end = middle + (space ? space[0].length : 0);
  const left = partsOf(sentence.slice(0, middle), fits), right = partsOf(sentence.slice(end), fits);
  left.at(-1)[1] = sentence.slice(middle, end);
  return [...left, ...right];
}

// Words

const SPELLED_BYTE = /^<0x([0-9A-F]{2})>$/;
const CJK = /^[\u3040-\u30ff\u3400-\u9fff]/;
const APOSTROPHES = ["'", "\u2019"];

/** Return the token indices of each word. EOS, each punctuation mark and each Chinese or Japanese character are words of their
    own, unless a token holds several of them. An apostrophe between letters belongs to the word. */
export function groupWords(kind, ids, tokens) {
  const words = [], texts = kind === "word" ? tokens : textsOfTokens(kind, tokens);
  tokens.forEach((_, at) => {
    if (at === 0 || kind === "word" || ids[at - 1] === EOS || ids[at] === EOS || beginsWord(texts, at)) words.push([at]);
    else words.at(-1).push(at);
  });
  return words;
}

/** Return the text of each token. Of bytes that spell a character, the first has the character and the others nothing. */
function textsOfTokens(kind, tokens) {
  if (kind === "char") return tokens.map((token) => (token !== "" && strip(token) === "" ? SPACE : token));
  return tokens.map((token, at) => {
    if (!SPELLED_BYTE.test(token)) return token;
    if (/^<0x[89AB]/.test(token) && at && SPELLED_BYTE.test(tokens[at - 1])) return "";
    const others = tokens.slice(at, at + 4), end = others.findIndex((one) => !SPELLED_BYTE.test(one));
    const bytes = others.slice(0, end < 0 ? 4 : end).map((one) => parseInt(one.slice(3, 5), 16));
    return [...new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes))][0];
  });
}

function beginsWord(texts, at) {
  const text = texts[at], before = texts.slice(0, at).findLast(Boolean) ?? "";
  const first = (one) => [...(one ?? "")][0] ?? "", last = (one) => [...(one ?? "")].at(-1) ?? "";
  if (!text || before === SPACE) return false; // a byte within a character; or what follows a space that is a token
  if (text.startsWith(SPACE) || CJK.test(text) || CJK.test(last(before))) return true;
  if (APOSTROPHES.includes(text)) return !(ALNUM.test(last(before)) && ALNUM.test(first(texts[at + 1])));
  if (APOSTROPHES.includes(before) && at > 1) return !(ALNUM.test(first(text)) && ALNUM.test(last(texts[at - 2])));
  return !(ALNUM.test(text) && ALNUM.test(before));
}
