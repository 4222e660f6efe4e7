// The engine in WebAssembly (src/regard/engine/engine.h): a model, searches in steps, and given outputs with their attention.

export const [ENCODER, DECODER, CROSS] = [0, 1, 2]; // stacks of `silence`
const TYPES = { F32: 0, F16: 1, I8: 2 };
const EARLY_STOPPING = { false: 0, true: 1, never: 2 };
const OPTIONS_BYTES = 112, RESULT_BYTES = 40; // of the structs RegardOptions and RegardResult, with pointers of 4 bytes
const [ROWS, TOKENS] = [32, 4096]; // of the sentences that are searched together, times the beam

export class Engine {
  /** `bytes` is the compiled engine. It imports nothing. */
  static async load(bytes) {
    const { instance } = await WebAssembly.instantiate(bytes, {});
    instance.exports._initialize();
    return new Engine(instance.exports);
  }

  constructor(exports) {
    this.c = exports;
  }

  // Memory

  /** Views of the memory are made anew each time, because they end when it grows. */
  get view() {
    return new DataView(this.c.memory.buffer);
  }

  allocate(bytes) {
    const at = this.c.malloc(Math.max(bytes, 1));
    if (!at) throw new Error("there is no memory left");
    return at;
  }

  copy(array) {
    const at = this.allocate(array.byteLength);
    new Uint8Array(this.c.memory.buffer).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), at);
    return at;
  }

  copyText(text) {
    return this.copy(new TextEncoder().encode(`${text}\0`));
  }

  read(kind, at, count) {
    return new kind(this.c.memory.buffer.slice(at, at + count * kind.BYTES_PER_ELEMENT));
  }

  get error() {
    const bytes = new Uint8Array(this.c.memory.buffer), at = this.c.regard_error();
    return new TextDecoder().decode(bytes.slice(at, bytes.indexOf(0, at)));
  }

  check(failed) {
    if (failed) throw new Error(this.error);
  }

  // The model

  /** `words` are the numbers of RegardConfig; `tensors` are [name, type, rows, columns], concatenated in `data`. */
  loadModel({ words, tensors }, data) {
    const config = this.copy(Int32Array.from(words));
    this.model = this.c.regard_model_new(config);
    this.c.free(config);
    this.check(!this.model);
    let at = 0;
    const take = (bytes) => data.subarray(at, (at += bytes));
    for (const [name, type, rows, columns] of tensors) {
      const numbers = this.copy(take(rows * columns * { F32: 4, F16: 2, I8: 1 }[type]));
      const scales = type === "I8" ? this.copy(take(4 * rows)) : 0, text = this.copyText(name);
      const failed = this.c.regard_model_set(this.model, text, TYPES[type], numbers, scales, BigInt(rows), BigInt(columns));
      for (const one of [numbers, scales, text]) this.c.free(one);
      this.check(failed);
    }
    this.check(this.c.regard_model_ready(this.model));
    this.session = this.c.regard_session_new(this.model, 0, ROWS, TOKENS);
    this.check(!this.session);
  }

  /** Make a head give nothing, or with head -1 a layer. Not while there are searches. */
  silence(stack, layer, head, silent) {
    this.check(this.c.regard_model_silence(this.model, stack, layer, head, silent ? 1 : 0));
  }

  // Search

  /** Queue a source, EOS included. Returns its ticket. */
  add(source, { beam, nbest, limit, length_penalty, length_penalty_kind, early_stopping, prefix = [], never = [] }) {
    const options = this.allocate(OPTIONS_BYTES), ids = this.copy(Int32Array.from(source));
    const lists = [prefix, never].map((list) => this.copy(Int32Array.from(list)));
    const view = this.view;
    new Uint8Array(this.c.memory.buffer, options, OPTIONS_BYTES).fill(0);
    const integers = [beam, nbest, limit, 0, length_penalty_kind === "power" ? 1 : 0, EARLY_STOPPING[early_stopping], 1];
    integers.forEach((value, at) => view.setInt32(options + 4 * at, value, true));
    [length_penalty, 1, -1, -1].forEach((value, at) => view.setFloat64(options + 40 + 8 * at, value, true));
    lists.forEach((list, at) => view.setUint32(options + 76 + 4 * at, list, true));
    [prefix, never].forEach((list, at) => view.setBigInt64(options + 88 + 8 * at, BigInt(list.length), true));
    const ticket = this.c.regard_session_add(this.session, ids, BigInt(source.length), options);
    for (const one of [options, ids, ...lists]) this.c.free(one);
    this.check(ticket < 0n);
    return Number(ticket);
  }

  /** One step of all searches. Returns null, or {ticket, outputs} of one that has ended: [{ids, score}], best first. */
  next() {
    const result = this.allocate(RESULT_BYTES);
    const status = this.c.regard_session_next(this.session, 0n, result);
    const view = this.view, count = view.getInt32(result + 8, true);
    let found = null;
    if (status > 0 && count >= 0) {
      const [lengths, ids, scores] = [12, 16, 20].map((at) => view.getUint32(result + at, true));
      const outputs = [];
      for (let one = 0, at = ids; one < count; one++) {
        const length = view.getInt32(lengths + 4 * one, true);
        outputs.push({ ids: [...this.read(Int32Array, at, length)], score: view.getFloat64(scores + 8 * one, true) });
        at += 4 * length;
      }
      found = { ticket: Number(view.getBigInt64(result, true)), outputs };
    }
    if (status > 0) this.c.regard_result_free(result);
    this.c.free(result);
    this.check(status < 0);
    if (count < 0) throw new Error("there is no memory left for a search");
    return found;
  }

  cancel() {
    this.c.regard_session_cancel(this.session, -1n);
    this.next(); // forgets those that have begun
  }

  /** What the model says of a given output: {logp, columns, values, attention}, T = target.length + 1 positions. */
  force(source, target, { best, layers, heads, sources }) {
    const T = target.length + 1, S = sources;
    const sizes = [layers.encoder * heads * S * S, layers.decoder * heads * T * T, layers.decoder * heads * T * S];
    const given = [source, target].map((ids) => this.copy(Int32Array.from(ids)));
    const [logp, columns, values] = [T, T * best, T * best].map((count) => this.allocate(4 * count));
    const weights = this.allocate(4 * sizes.reduce((sum, size) => sum + size, 0));
    const failed = this.c.regard_force(this.model, given[0], BigInt(source.length), given[1], BigInt(target.length), 0, logp, best, columns, values, weights, 0);
    let at = weights;
    const found = failed ? null : {
      logp: this.read(Float32Array, logp, T),
      columns: this.read(Int32Array, columns, T * best),
      values: this.read(Float32Array, values, T * best),
      attention: sizes.map((size) => [this.read(Float32Array, at, size), (at += 4 * size)][0]),
    };
    for (const one of [...given, logp, columns, values, weights]) this.c.free(one);
    this.check(failed);
    return found;
  }
}
