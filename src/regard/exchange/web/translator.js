// Translation of sentences: text to ids, search, ids to text; and how an output came about. The same as in regard.decoding.
import { BOS, EOS, RESERVED, makeTokenizer, strip } from "./tokenizer.js";
import { display, groupWords, mask, placeholderIds, restore } from "./text.js";
import { SpanSearch } from "./span_search.js";

const ALTERNATIVES = 5; // tokens that are shown at each position
const STEP_MILLISECONDS = 12; // after which a search lets other work happen

export class Translator {
  constructor(engine, model, tokenizers) {
    Object.assign(this, { engine, model });
    this.source = makeTokenizer(tokenizers.source);
    this.target = tokenizers.target ? makeTokenizer(tokenizers.target) : this.source;
    const sides = [placeholderIds(this.source), placeholderIds(this.target)];
    this.placeholders = sides.every((ids) => ids.length) ? sides : null; // ids on both sides, if the model knows them
    this.never = [BOS, ...(this.placeholders?.[1] ?? [])];
  }

  get longestSource() {
    const { max_source } = this.model.options, { max_length } = this.model;
    return max_length ? Math.min(max_source, max_length - 1) : max_source;
  }

  fits(text) {
    return this.encode(text).count <= Math.min(this.longestSource, this.model.longest_sentence);
  }

  /** The ids of a source with EOS, and what is needed to show its translation. */
  encode(text, language = 0) {
    const { tags } = this.model.languages[language];
    const masked = this.placeholders ? mask(text) : { text, spans: [] };
    const all = [...tags, ...this.source.encode(masked.text)], ids = all.slice(0, this.longestSource);
    // Spans whose placeholder was cut off with the end of the source are not asked for.
    const wanted = masked.spans.map((_, number) => number).filter((number) => ids.includes(this.placeholders[0][number]));
    return { text, masked: masked.text, spans: masked.spans, wanted, tags, ids: [...ids, EOS], count: all.length, empty: all.length === tags.length || !strip(text) };
  }

  decode(ids, source) {
    const text = this.target.decode(ids);
    return source.spans.length ? restore(text, source.spans) : text;
  }

  /** Search a source: [{ids, score, text}], best first. `options` are those of the model, and a prefix of ids. */
  searchOptions(source, options = {}) {
    const combined = { ...this.model.options, nbest: 1, prefix: [], ...options };
    const { max_extra, max_length } = this.model.options;
    let limit = Math.max(1, Math.min(source.ids.length - 1 + max_extra, max_length ?? Infinity));
    limit = Math.max(limit, combined.prefix.length + 1);
    return { ...combined, limit: this.model.max_length ? Math.min(limit, this.model.max_length) : limit, never: this.never };
  }

  /** Search several requests [source, options]. `found(number, outputs)` is called as each ends; `pause` lets messages arrive
      and returns whether to go on. */
  async search(requests, found, pause) {
    const tickets = new Map(), special = [];
    requests.forEach(([source, options], number) => {
      if (source.empty) found(number, [{ ids: [], score: 0, text: "" }]);
      else if (source.wanted.length) special.push(number);
      else tickets.set(this.engine.add(source.ids, this.searchOptions(source, options)), number);
    });
    const finish = (number, outputs) => found(number, outputs.map((one) => ({ ...one, text: this.decode(one.ids, requests[number][0]) })));
    let began = performance.now();
    const goesOn = async () => {
      if (performance.now() - began < STEP_MILLISECONDS) return true;
      const go = await pause();
      began = performance.now();
      return go;
    };
    while (tickets.size) {
      if (!(await goesOn())) return this.engine.cancel();
      const ended = this.engine.next();
      if (!ended || !tickets.has(ended.ticket)) continue;
      finish(tickets.get(ended.ticket), ended.outputs);
      tickets.delete(ended.ticket);
    }
    for (const number of special) {
      const [source, options] = requests[number];
      const search = new SpanSearch(this.engine, source.ids, this.searchOptions(source, options), this.demands(source), this.target.size);
      try {
        while (!search.step()) if (!(await goesOn())) return;
        finish(number, search.outputs);
      } finally {
        search.end();
      }
    }
  }

  /** Which placeholders an output must have, each once, and those that keep their order. */
  demands({ wanted, spans }) {
    const symbols = wanted.map((number) => this.placeholders[1][number]);
    return { symbols, in_order: symbols.filter((_, at) => spans[wanted[at]].kind === "tag") };
  }

  /** How the best output of a source came about: tokens, probabilities, alternatives and attention. */
  trace(source, output) {
    const { layers, heads, source_eos, max_length } = this.model, count = source.ids.length;
    const ids = max_length ? output.slice(0, max_length - 1) : output; // EOS needs a position too
    const sources = source_eos || count === 1 ? count : count - 1, T = ids.length + 1;
    const best = Math.min(ALTERNATIVES + 1 + this.never.length, this.target.size);
    const forced = this.engine.force(source.ids, ids, { best, layers, heads, sources });
    const targets = [...ids, EOS], never = new Set(this.never);
    for (const id of this.demands(source).symbols) never.delete(id);
    const alternatives = targets.map((own, at) =>
      Array.from({ length: best }, (_, rank) => at * best + rank)
        .map((place) => ({ id: forced.columns[place], probability: Math.exp(forced.values[place]) }))
        .filter(({ id, probability }) => id >= 0 && id !== own && !never.has(id) && probability > 0)
        .slice(0, ALTERNATIVES)
        .map((one) => ({ ...one, token: display(this.target.tokens([one.id]), source.spans)[0] })),
    );
    return {
      ...this.axes(source, targets, sources),
      probabilities: Array.from(forced.logp, Math.exp),
      alternatives,
      attentions: [
        ...splitLayers("encoder", forced.attention[0], layers.encoder, heads, sources, sources),
        ...splitLayers("decoder", forced.attention[1], layers.decoder, heads, T, T),
        ...splitLayers("encoder-decoder", forced.attention[2], layers.decoder, heads, T, sources),
      ],
    };
  }

  axes(source, targets, sources) {
    const text_tokens = this.source.tokenize(source.masked).slice(0, source.ids.length - 1 - source.tags.length);
    const source_tokens = [...this.source.tokens(source.tags), ...text_tokens, RESERVED[EOS]].slice(0, sources);
    const source_ids = source.ids.slice(0, sources), target_tokens = this.target.tokens(targets);
    const target_words = groupWords(this.target.kind, targets, target_tokens);
    const text = this.decode(targets, source), output = display(target_tokens, source.spans);
    const source_words = groupWords(this.source.kind, source_ids, source_tokens);
    return {
      source: { label: "source", text: source.text, ids: source_ids, tokens: display(source_tokens, source.spans), words: source_words },
      target: { label: "output", text, ids: targets, tokens: output, words: target_words },
      read: {
        label: "decoder input", text, ids: [BOS, ...targets.slice(0, -1)], tokens: [RESERVED[BOS], ...output.slice(0, -1)],
        words: [[0], ...target_words.slice(0, -1).map((word) => word.map((at) => at + 1))],
      },
    };
  }
}

const KINDS_OF_ATTENTION = {
  encoder: { queries: "source", keys: "source", labels: ["source (from)", "source (to)"], self_attention: true },
  decoder: { queries: "target", keys: "read", labels: ["output", "decoder input"], self_attention: true },
  "encoder-decoder": { queries: "target", keys: "source", labels: ["output", "source"], self_attention: false },
};

/** One record per layer, as the view of attention reads them. */
function splitLayers(name, weights, layers, heads, rows, columns) {
  const size = rows * columns;
  return Array.from({ length: layers }, (_, layer) => ({
    name, layer: layer + 1, shape: [heads, rows, columns], ...KINDS_OF_ATTENTION[name],
    matrices: Array.from({ length: heads }, (_, head) => ({ rows, columns, values: weights.slice((layer * heads + head) * size, (layer * heads + head + 1) * size) })),
  }));
}
