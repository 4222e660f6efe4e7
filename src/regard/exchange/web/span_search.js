// Beam search whose outputs have each placeholder of the source exactly once, as regard.decoding.automaton demands it.
// The engine computes the logits of each step; candidates are ranked here.
import { BOS, EOS } from "./tokenizer.js";

export class SpanSearch {
  /** `symbols` come once each, those of `in_order` in this order. */
  constructor(engine, source, options, { symbols, in_order }, columns) {
    Object.assign(this, { engine, options, symbols, in_order, columns, c: engine.c });
    const ids = engine.copy(Int32Array.from(source)), offsets = engine.copy(BigInt64Array.from([0n, BigInt(source.length)]));
    this.rows = this.c.regard_rows_new(engine.model, ids, offsets, 1n, options.beam, 0);
    engine.c.free(ids), engine.c.free(offsets);
    engine.check(!this.rows);
    this.memory = engine.allocate(4 * columns * options.beam);
    this.beams = [{ ids: [], sum: 0, token: BOS }];
    this.ended = [];
  }

  end() {
    this.c.regard_rows_free(this.rows);
    this.c.free(this.memory);
  }

  get outputs() {
    return this.ranked().slice(0, this.options.nbest).map(({ ids, score }) => ({ ids, score }));
  }

  ranked() {
    return [...this.ended].sort((a, b) => b.score - a.score);
  }

  penalty(length) {
    const { length_penalty_kind, length_penalty } = this.options;
    return (length_penalty_kind === "power" ? length : (5 + length) / 6) ** length_penalty;
  }

  /** One more token for each beam. Returns whether the search is done. */
  step() {
    const { beam, limit } = this.options, length = this.beams[0].ids.length + 1;
    const tokens = this.engine.copy(Int32Array.from(this.beams.map((one) => one.token)));
    const failed = this.c.regard_rows_step(this.rows, tokens, this.memory);
    this.c.free(tokens);
    this.engine.check(failed);
    const found = this.beams.flatMap((one, row) => (one.sum === -Infinity ? [] : this.candidates(one, row)));
    found.sort((a, b) => b.score - a.score || a.row - b.row || a.token - b.token);
    found.length = Math.min(found.length, 2 * beam);
    const finish = ({ row, token, score }) => {
      const { ids } = this.beams[row];
      this.ended.push({ ids: token === EOS ? ids : [...ids, token], score: score / this.penalty(length) });
    };
    found.slice(0, beam).filter((one) => one.token === EOS).forEach(finish);
    const open = found.filter((one) => one.token !== EOS);
    if (length >= limit) {
      const all = this.options.early_stopping === true;
      (all ? open.slice(0, Math.max(0, beam - this.ended.length)) : found.slice(0, beam).filter((one) => one.token !== EOS)).forEach(finish);
    }
    if (length >= limit || this.isDone(open[0]?.score ?? -Infinity, length)) return true;
    this.extend(open);
    return false;
  }

  extend(open) {
    const { beam } = this.options;
    // Beams without a candidate repeat the last one, and are impossible.
    const chosen = Array.from({ length: beam }, (_, at) => open[at] ?? { ...(open.at(-1) ?? { row: 0, token: EOS }), score: -Infinity });
    if (this.beams.length < beam) this.engine.check(this.c.regard_rows_expand(this.rows));
    const parents = this.engine.copy(BigInt64Array.from(chosen, (one) => BigInt(one.row)));
    const failed = this.c.regard_rows_reorder(this.rows, parents, BigInt(beam));
    this.c.free(parents);
    this.engine.check(failed);
    this.beams = chosen.map(({ row, token, score }) => ({ ids: [...this.beams[row].ids, token], sum: score, token }));
  }

  isDone(best_open, length) {
    const { beam, nbest, early_stopping, limit } = this.options, ranked = this.ranked();
    if (ranked.length >= beam && early_stopping === true) return true;
    if (ranked.length < nbest) return best_open === -Infinity;
    if (ranked.length >= beam && early_stopping === false && best_open / this.penalty(length) <= ranked[beam - 1].score) return true;
    return best_open / this.penalty(limit) <= ranked[nbest - 1].score;
  }

  /** The best continuations of a beam. */
  candidates({ ids, sum }, row) {
    const logits = new Float32Array(this.c.memory.buffer, this.memory + 4 * row * this.columns, this.columns);
    let [most, likeliest] = [-Infinity, -1], total = 0;
    for (let id = 0; id < logits.length; id++) if (logits[id] > most && id !== BOS) [most, likeliest] = [logits[id], id];
    const largest = Math.max(most, logits[BOS]);
    for (const value of logits) total += Math.exp(value - largest);
    const more = Math.fround(sum - Math.fround(largest + Math.log(total)));
    const { only, banned } = this.allowed(ids, likeliest);
    const places = [];
    for (let id = 0; id < logits.length; id++)
      if (only ? only.has(id) : !banned.has(id)) keepBest(places, logits, id, 2 * this.options.beam);
    return places.map((token) => ({ token, row, score: Math.fround(logits[token] + more) })).filter((one) => one.score > -Infinity);
  }

  /** Which tokens may come next: `only` these, or all but those that are `banned`. */
  allowed(ids, likeliest) {
    const { prefix, never, limit } = this.options;
    if (ids.length < prefix.length) return { only: new Set([prefix[ids.length]]) };
    const missing = this.symbols.filter((symbol) => !ids.includes(symbol));
    const waiting = this.in_order.filter((symbol) => missing.includes(symbol)).slice(1);
    const now = missing.filter((symbol) => !waiting.includes(symbol));
    const banned = new Set(never.filter((id) => !now.includes(id)));
    if (missing.length < limit - ids.length) {
      if (!missing.length) return { banned };
      banned.add(EOS);
      // If the model has nothing more to say, what is missing comes now.
      return likeliest === EOS ? { only: new Set(now) } : { banned };
    }
    const only = new Set(missing.length ? now : [EOS]);
    return only.size ? { only } : { banned };
  }
}

/** Keep the places of the `count` largest values, largest first; of equal ones the first. */
function keepBest(places, values, place, count) {
  if (places.length === count && values[place] <= values[places[count - 1]]) return;
  let at = places.length;
  while (at > 0 && values[places[at - 1]] < values[place]) at--;
  places.splice(at, 0, place);
  if (places.length > count) places.pop();
}
