// The worker of the page: it keeps the model, so that the page can be used while a search runs.
import { Engine } from "./engine.js";
import { segment } from "./text.js";
import { Translator } from "./translator.js";

const MAX_REMEMBERED = 500; // sentences
const ENCODED_AT_ONCE = 1 << 18; // characters of base64 that are decoded between two reports of progress

let translator = null;
let latest = 0; // number of the newest request that changes the translation; older ones stop
let jobs = Promise.resolve(); // one after the other
const remembered = new Map(); // outputs by sentence, so that typing at the end does not translate the beginning again
let silent = []; // parts of the model that give nothing: [stack, layer, head]

const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => waiting.shift()();
/** Let messages arrive. */
const pause = () => new Promise((done) => {
  waiting.push(done);
  channel.port2.postMessage(0);
});

const fromBase64 = (text) => Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** Decode base64 and decompress it. `report` receives how many characters have been read. */
async function unpack(base64, size, report = () => {}) {
  const stream = new DecompressionStream("deflate-raw"), writer = stream.writable.getWriter(), out = new Uint8Array(size);
  const write = async () => {
    for (let at = 0; at < base64.length; at += ENCODED_AT_ONCE) {
      await writer.write(fromBase64(base64.slice(at, at + ENCODED_AT_ONCE)));
      report(Math.min(base64.length, at + ENCODED_AT_ONCE));
    }
    await writer.close();
  };
  const read = async () => {
    const reader = stream.readable.getReader();
    for (let at = 0, one; !(one = await reader.read()).done; at += one.value.length) out.set(one.value, at);
  };
  await Promise.all([write(), read()]);
  return out;
}

const handlers = {
  async load({ model, engine, tokenizers, weights }) {
    const report = (read) => postMessage({ kind: "progress", share: read / weights.length });
    const [code, text, data] = await Promise.all([
      unpack(engine, model.sizes.engine), unpack(tokenizers, model.sizes.tokenizers), unpack(weights, model.sizes.weights, report),
    ]);
    const loaded = await Engine.load(code);
    loaded.loadModel(model, data);
    translator = new Translator(loaded, model, JSON.parse(new TextDecoder().decode(text)));
  },

  /** Translate a text sentence by sentence; each is sent as soon as it is known. */
  async translate({ number, text, language }) {
    if (number !== latest) return { cancelled: true };
    const { sentences, spaces } = segment(text, (sentence) => translator.fits(sentence));
    const outputs = sentences.map((sentence) => remembered.get(`${language} ${sentence}`));
    const missing = [...new Set(sentences.filter((_, at) => !outputs[at]))];
    const send = () => postMessage({ kind: "sentences", number, sentences, spaces, texts: outputs.map((one) => one?.text ?? null) });
    send();
    const requests = missing.map((sentence) => [translator.encode(sentence, language), {}]);
    await translator.search(requests, (at, found) => {
      if (remembered.size >= MAX_REMEMBERED) remembered.delete(remembered.keys().next().value);
      const output = { text: found[0]?.text ?? "" };
      remembered.set(`${language} ${missing[at]}`, output);
      sentences.forEach((sentence, place) => sentence === missing[at] && (outputs[place] = output));
      send();
    }, async () => (await pause(), number === latest));
    return { cancelled: number !== latest };
  },

  /** Lines as they are, each with its best outputs: [[{ids, text, score}]]. */
  async lines({ texts, language, options }) {
    const found = [];
    const requests = texts.map((text) => [translator.encode(text, language), options]);
    await translator.search(requests, (at, outputs) => (found[at] = outputs), async () => (await pause(), true));
    return found;
  },

  async look({ text, language, prefix }) {
    const source = translator.encode(text, language);
    let found = [];
    const options = { prefix, nbest: translator.model.options.beam };
    await translator.search([[source, options]], (_, outputs) => (found = outputs), async () => (await pause(), true));
    if (!found.length) throw new Error("no output was found");
    return { nbest: found, trace: translator.trace(source, found[0].ids) };
  },

  /** The greedy translation that begins with each of these ids. */
  async proceed({ text, language, prefixes }) {
    const source = translator.encode(text, language), texts = prefixes.map(() => "");
    const requests = prefixes.map((prefix) => [source, { prefix, beam: 1 }]);
    await translator.search(requests, (at, outputs) => (texts[at] = outputs[0]?.text ?? ""), async () => (await pause(), true));
    return texts;
  },

  async silence({ parts }) {
    translator.engine.cancel();
    for (const [stack, layer, head] of silent) translator.engine.silence(stack, layer, head, false);
    silent = parts;
    for (const [stack, layer, head] of silent) translator.engine.silence(stack, layer, head, true);
    remembered.clear();
  },

  async encode({ texts, language }) {
    return texts.map((text) => translator.encode(text, language).ids);
  },
};

onmessage = ({ data }) => {
  if (data.number !== undefined) latest = data.number;
  jobs = jobs.then(async () => {
    try {
      postMessage({ kind: "answer", id: data.id, answer: await handlers[data.kind](data) });
    } catch (problem) {
      postMessage({ kind: "answer", id: data.id, error: String(problem?.message ?? problem) });
    }
  });
};
