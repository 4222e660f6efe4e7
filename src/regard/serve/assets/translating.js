// Translation of a text by the server: of a short one as a stream first, of a long one in parts.
import { spaceBetween } from "./elements.js";
import { post } from "./requests.js";

const MOST_STREAMED = 2000; // characters; longer texts are translated in parts of at most as many
const MOST = 100_000; // characters that the page translates as one text

/** Return {text, sentences, separators} of the translation. `partial(text)` is called with what is there of it. */
export async function translateText(text, model, { signal, partial, progress }) {
  if (text.length > MOST)
    throw new Error(`The text has ${text.length.toLocaleString("en")} characters; the page translates up to ${MOST.toLocaleString("en")}. Save it as a text file and choose \u201cTranslate a file\u201d.`);
  if (text.length <= MOST_STREAMED && !model.non_autoregressive) await stream(text, model, signal, partial);
  const sentences = [], parts = splitLong(text);
  let translated = "", done = 0;
  for (const [number, part] of parts.entries()) {
    const fields = { text: part, model: model.name, confidence: model.calibrated, unknown: true };
    const { translations } = await (await post("/v1/translate", fields, signal)).json();
    if (number) translated += spaceBetween(parts[number - 1], "", translated, translations[0].text);
    translated += translations[0].text;
    sentences.push(...translations[0].sentences);
    done += part.length;
    if (parts.length > 1) {
      partial(translated);
      progress(done / text.length);
    }
  }
  return { text: translated, sentences, separators: separatorsOf(translated, sentences.map((one) => one.text)) };
}

/** Read a first translation token by token. */
async function stream(text, model, signal, partial) {
  const reader = (await post("/v1/stream", { text, model: model.name }, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = JSON.parse(event.slice("data: ".length));
      if (data.error) throw new Error(data.error);
      partial(data.text);
    }
  }
}

/** Return a text in parts of at most MOST_STREAMED characters that end, if possible, where a line, a sentence or a word does. */
function splitLong(text) {
  const parts = [];
  let rest = text;
  while (rest.length > MOST_STREAMED) {
    const room = rest.slice(0, MOST_STREAMED);
    const end = [/^[^]*\n/, /^[^]*(?:[.!?\u2026]["'\u201d\u2019\u201c)\]]*\s+|[\u3002\uff01\uff1f])/, /^[^]*\s/].map((one) => room.match(one)?.[0].length ?? 0).find((length) => length > MOST_STREAMED / 4);
    parts.push(rest.slice(0, end ?? wholeCharacters(room)));
    rest = rest.slice(parts.at(-1).length);
  }
  return [...parts, rest];
}

/** Return where a text can be cut without halving a character that is two units of UTF-16. */
const wholeCharacters = (text) => (/[\ud800-\udbff]$/.test(text) ? text.length - 1 : text.length);

/** Return the text before, between and after the given parts of a text. */
function separatorsOf(text, parts) {
  const found = [];
  let at = 0;
  for (const part of parts) {
    const begin = text.indexOf(part, at);
    found.push(text.slice(at, begin));
    at = begin + part.length;
  }
  return [...found, text.slice(at)];
}
