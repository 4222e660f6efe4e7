// The models of the figures: the engine in WebAssembly, tokenizers and weights. One is loaded when a figure first asks for it.
import { Engine } from "./engine.js";
import { Translator } from "./translator.js";
import { Encoder, readTensors } from "./encoder.js";

const loading = {}; // promises by name
const loaded = {}; // the scripts of models call these with what they have
globalThis.regardModel = (name, data) => loaded[name](data);

/** A model, loaded once for all figures of a page; again if that has failed. */
export function loadModel(name = "en-de") {
  const file = `assets/model-${name}.js`;
  loading[name] ??= new Promise((done, fail) => {
    loaded[name] = done;
    const script = document.createElement("script");
    script.src = `${document.documentElement.dataset.root}/${file}`;
    script.onerror = () => (script.remove(), fail(new Error(`${file} cannot be loaded`)));
    document.head.append(script);
  }).then(Model.make).catch((problem) => {
    delete loading[name];
    throw problem;
  });
  return loading[name];
}

/** Calls `begin` when an element comes near the part of the page that is seen. */
export function whenSeen(host, begin) {
  const observer = new IntersectionObserver((seen) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    begin();
  }, { rootMargin: "200px" });
  observer.observe(host);
}

async function unpack(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class Model {
  static async make({ facts, engine, tokenizers, weights }) {
    const [code, text, data] = await Promise.all([engine, tokenizers, weights].map(unpack));
    const made = new Model();
    made.engine = await Engine.load(code);
    made.engine.loadModel(facts, data);
    made.translator = new Translator(made.engine, facts, JSON.parse(new TextDecoder().decode(text)));
    made.encoder = new Encoder(facts, readTensors(facts.tensors, data));
    made.facts = facts;
    return made;
  }

  /** The tokens of a sentence as they are displayed, EOS included, and their ids. */
  read(text) {
    const source = this.translator.encode(text), { source: axis } = this.translator.axes(source, [], source.ids.length);
    return { source, ids: source.ids, tokens: axis.tokens };
  }

  /** The first tokens of a sentence, and EOS. */
  cut({ source, ids, tokens }, count) {
    const shorter = { ...source, ids: [...ids.slice(0, count - 1), ids.at(-1)], wanted: [] };
    return { source: shorter, ids: shorter.ids, tokens: [...tokens.slice(0, count - 1), tokens.at(-1)] };
  }

  /** The best output of a source, and how it came about (`Translator.trace`). One search after the other. */
  translate(source) {
    const search = async () => {
      let found = null;
      await this.translator.search([[source, {}]], (_, outputs) => (found = outputs[0]), async () => (await new Promise((done) => setTimeout(done)), true));
      return { ...found, trace: this.translator.trace(source, found.ids) };
    };
    return (this.searches = (this.searches ?? Promise.resolve()).then(search, search));
  }
}
