// The worker of the page: it keeps the model, so that the page can be used while a search runs.
import { Engine } from "./engine.js";
import { segment } from "./text.js";
import { Translator } from "./translator.js";

const MAX_REMEMBERED = 500; // sentences

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

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

/** Data of the page that is decompressed while it arrives, in pieces of base64. */
class Arriving {
  constructor(size, report = () => {}) {
    const stream = new DecompressionStream("deflate-raw");
    this.writer = stream.writable.getWriter();
    this.content = this.read(stream.readable.getReader(), new Uint8Array(size), report);
  }
  async read(reader, out, report) {
    for (let at = 0, one; !(one = await reader.read()).done; report(at / out.length)) {
      out.set(one.value, at);
      at += one.value.length;
    }
    return out;
  }
  add({ text, last }) {
    const fail = () => {}; // `content` fails as well
    this.writer.write(fromBase64(text)).catch(fail);
    if (last) this.writer.close().catch(fail);
  }
}

let arriving = null; // engine, tokenizers and weights

const handlers = {
  async load({ model }) {
    const [code, text, data] = await Promise.all(["engine", "tokenizers", "weights"].map((name) => arriving[name].content));
    const engine = await Engine.load(code);
    engine.loadModel(model, data);
    translator = new Translator(engine, model, JSON.parse(new TextDecoder().decode(text)));
    arriving = null;
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

function receive({ kind, model, name, ...part }) {
  if (kind === "data") return arriving[name].add(part);
  const { engine, tokenizers, weights } = model.sizes;
  const report = (share) => postMessage({ kind: "progress", share });
  arriving = { engine: new Arriving(engine), tokenizers: new Arriving(tokenizers), weights: new Arriving(weights, report) };
}

onmessage = ({ data }) => {
  if (data.kind === "data") return receive(data); // does not wait for its turn
  if (data.kind === "load") receive(data);
  if (data.number !== undefined) latest = data.number;
  jobs = jobs.then(async () => {
    try {
      postMessage({ kind: "answer", id: data.id, answer: await handlers[data.kind](data) });
    } catch (problem) {
      postMessage({ kind: "answer", id: data.id, error: String(problem?.message ?? problem) });
    }
  });
};
