// Tokenizers: the same ids as those of regard.text. The page holds the parsed model of SentencePiece, not its file.
//
// BPE and unigram follow SentencePiece 0.2: normalization, symbols that are never split, bytes for unknown characters.

export const [UNK, BOS, EOS] = [0, 1, 2];
export const RESERVED = ["\u2047", "<s>", "</s>"];
export const SPACE = "\u2581"; // SentencePiece's symbol for a space
const [NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE] = [1, 2, 3, 4, 5, 6]; // types of pieces
const UNKNOWN_PENALTY = 10; // of the unigram model
// What Python's str.split and \s take for a space.
export const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

const utf8 = new TextEncoder(), fromUtf8 = new TextDecoder("utf-8", { ignoreBOM: true });

export function strip(text) {
  return text.replace(new RegExp(`^[${SPACES}]+`, "u"), "").replace(new RegExp(`[${SPACES}]+$`, "u"), "");
}

export function makeTokenizer(data) {
  const text = data.symbols && !data.pieces ? new SymbolTokenizer(data) : data.symbols ? new ListedSubwords(data) : new SubwordTokenizer(data);
  return data.tags?.length ? new TaggedTokenizer(text, data.tags) : text;
}

/** Characters, or words separated by spaces. */
class SymbolTokenizer {
  constructor({ kind, symbols }) {
    this.kind = kind;
    this.symbols = [...RESERVED, ...symbols];
    this.ids = new Map(symbols.map((symbol, at) => [symbol, at + RESERVED.length]));
    this.size = this.symbols.length;
  }
  tokenize(text) {
    return this.kind === "char" ? [...text] : text.split(new RegExp(`[${SPACES}]+`, "u")).filter((word) => word);
  }
  encode(text) {
    return this.tokenize(text).map((symbol) => this.ids.get(symbol) ?? UNK);
  }
  tokens(ids) {
    return ids.map((id) => this.symbols[id]);
  }
  decode(ids) {
    return this.tokens(ids.filter((id) => id !== BOS && id !== EOS)).join(this.kind === "char" ? "" : " ");
  }
}

/** Subwords whose ids are those of the SentencePiece file. */
class SubwordTokenizer {
  constructor(data) {
    this.kind = data.kind;
    this.pieces = new Pieces(data);
    this.size = data.pieces.length;
    // An output is one line of text.
    const left_out = ["<0x00>", "<0x0A>", "<0x0D>"].map((name) => this.pieces.bytes.get(name) ?? BOS);
    this.notDecoded = new Set([BOS, EOS, ...left_out]);
  }
  tokenize(text) {
    return this.pieces.split(text.replaceAll("\t", " ")).map((one) => one.piece);
  }
  encode(text) {
    return this.pieces.split(text.replaceAll("\t", " ")).map((one) => one.id);
  }
  tokens(ids) {
    return ids.map((id) => (id <= EOS ? RESERVED[id] : this.pieces.names[id]));
  }
  decode(ids) {
    return this.pieces.join(ids.filter((id) => !this.notDecoded.has(id)).map((id) => ({ id, piece: this.pieces.names[id] })));
  }
}

/** A SentencePiece file, and a list that numbers its subwords: the tokenizer of an imported model. */
class ListedSubwords {
  constructor(data) {
    this.kind = "sentencepiece";
    this.pieces = new Pieces(data);
    this.symbols = [...RESERVED, ...data.symbols];
    this.ids = new Map(data.symbols.map((symbol, at) => [symbol, at + RESERVED.length]));
    this.size = this.symbols.length;
  }
  tokenize(text) {
    const tag = text.match(new RegExp(`^>>[^${SPACES}<>]{1,100}<<`, "u"))?.[0];
    const known = tag !== undefined && this.ids.has(tag);
    const split = this.pieces.split((known ? text.slice(tag.length) : text).replaceAll("\t", " ")).map((one) => one.piece);
    return known ? [tag, ...split] : split;
  }
  encode(text) {
    return this.tokenize(text).map((symbol) => this.ids.get(symbol) ?? UNK);
  }
  tokens(ids) {
    return ids.map((id) => this.symbols[id]);
  }
  decode(ids) {
    const found = this.tokens(ids.filter((id) => id !== BOS && id !== EOS)).map((piece) => ({ id: this.pieces.idOf(piece), piece }));
    return strip(this.pieces.join(found).replaceAll(SPACE, " "));
  }
}

/** A tokenizer with ids of tags behind its own. */
class TaggedTokenizer {
  constructor(text, tags) {
    Object.assign(this, { text, tags, kind: text.kind, size: text.size + tags.length });
  }
  tokenize(text) {
    return this.text.tokenize(text);
  }
  encode(text) {
    return this.text.encode(text);
  }
  tokens(ids) {
    return ids.map((id) => (id < this.text.size ? this.text.tokens([id])[0] : this.tags[id - this.text.size]));
  }
  decode(ids) {
    return this.text.decode(ids.filter((id) => id < this.text.size));
  }
}

/** The model of SentencePiece. */
class Pieces {
  constructor({ kind, pieces, scores, types, unknown_surface, byte_fallback, normalizer }) {
    this.names = pieces;
    this.scores = Float32Array.from(scores);
    this.types = Uint8Array.from(types, Number);
    this.split_normalized = kind === "unigram" ? this.unigram : this.bpe;
    Object.assign(this, { unknown_surface, byte_fallback, normalizer });
    this.unknown = this.types.indexOf(UNKNOWN);
    this.text = new Map(); // pieces that text is split into
    this.bytes = new Map();
    this.reserved = new Map();
    let [least, most] = [Infinity, -Infinity];
    pieces.forEach((piece, id) => {
      const type = this.types[id];
      if (type === NORMAL || type === USER_DEFINED || type === UNUSED) this.text.set(piece, id);
      else this.reserved.set(piece, id);
      if (type === BYTE) this.bytes.set(piece, id);
      if (type === NORMAL) [least, most] = [Math.min(least, this.scores[id]), Math.max(most, this.scores[id])];
    });
    [this.least, this.most] = [least, most];
    this.longest = Math.max(0, ...[...this.text.keys()].map((piece) => piece.length)); // UTF-16 units
    this.userDefined = pieces.filter((_, id) => this.types[id] === USER_DEFINED).sort((a, b) => b.length - a.length);
    this.firsts = new Set(this.userDefined.map((piece) => piece.charCodeAt(0)));
    this.charsmap = normalizer.charsmap ? new Charsmap(normalizer.charsmap) : null;
  }

  idOf(piece) {
    return this.reserved.get(piece) ?? this.text.get(piece) ?? this.unknown;
  }

  /** The user-defined symbol at a place of a text, or "". */
  symbolAt(text, at) {
    if (!this.firsts.has(text.charCodeAt(at))) return "";
    return this.userDefined.find((symbol) => text.startsWith(symbol, at)) ?? "";
  }

  normalize(text) {
    const { add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_as_suffix } = this.normalizer;
    const space = escape_whitespaces ? SPACE : " ";
    const parts = [...this.normalizedParts(text)];
    let first = 0;
    if (remove_extra_whitespaces) while (first < parts.length && parts[first] === " ") first++;
    if (first === parts.length) return "";
    let out = add_dummy_prefix && !whitespace_as_suffix ? space : "", after_space = remove_extra_whitespaces;
    for (let part of parts.slice(first)) {
      if (after_space) part = part.replace(/^ +/, "");
      if (part) {
        out += escape_whitespaces ? part.replaceAll(" ", SPACE) : part;
        after_space = part.endsWith(" ");
      }
      if (!remove_extra_whitespaces) after_space = false;
    }
    if (remove_extra_whitespaces) while (out.endsWith(space)) out = out.slice(0, -space.length);
    return add_dummy_prefix && whitespace_as_suffix ? out + space : out;
  }

  /** The parts of a text that are normalized at once: symbols, keys of the map, or characters. */
  *normalizedParts(text) {
    for (let at = 0; at < text.length; ) {
      const symbol = this.symbolAt(text, at);
      const character = String.fromCodePoint(text.codePointAt(at));
      const found = symbol || !this.charsmap ? null : this.charsmap.longest(text, at);
      yield symbol || (found ? found.value : character);
      at += symbol ? symbol.length : found ? found.length : character.length;
    }
  }

  /** Return {id, piece} for each subword. Neighbours that are unknown are one; with `byte_fallback` they are bytes. */
  split(text) {
    const found = [];
    for (const piece of this.split_normalized(this.normalize(text.toWellFormed?.() ?? text))) {
      const id = this.idOf(piece);
      if (id !== this.unknown) found.push({ id, piece });
      else if (this.byte_fallback)
        for (const byte of utf8.encode(piece)) {
          const name = `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
          found.push({ id: this.idOf(name), piece: name });
        }
      else if (found.at(-1)?.id === this.unknown) found.at(-1).piece += piece;
      else found.push({ id, piece });
    }
    return found;
  }

  // BPE

  bpe(text) {
    const symbols = [];
    for (let at = 0; at < text.length; ) {
      const symbol = this.symbolAt(text, at), piece = symbol || String.fromCodePoint(text.codePointAt(at));
      symbols.push({ piece, frozen: symbol !== "", before: symbols.length - 1, after: symbols.length + 1 });
      at += piece.length;
    }
    if (symbols.length) symbols.at(-1).after = -1;
    const agenda = new Heap((a, b) => a.score > b.score || (a.score === b.score && a.left < b.left));
    const merged = new Map(); // what unused pieces are made of
    const consider = (left, right) => {
      if (left < 0 || right < 0 || symbols[left].frozen || symbols[right].frozen) return;
      const piece = symbols[left].piece + symbols[right].piece, id = piece.length <= this.longest ? this.text.get(piece) : undefined;
      if (id === undefined) return;
      agenda.push({ left, right, score: this.scores[id], length: piece.length });
      if (this.types[id] === UNUSED) merged.set(piece, [symbols[left].piece, symbols[right].piece]);
    };
    for (let at = 1; at < symbols.length; at++) consider(at - 1, at);
    for (let top; (top = agenda.pop()); ) {
      const left = symbols[top.left], right = symbols[top.right];
      if (!left.piece || !right.piece || left.piece.length + right.piece.length !== top.length) continue; // merged meanwhile
      left.piece += right.piece;
      left.after = right.after;
      if (right.after >= 0) symbols[right.after].before = top.left;
      right.piece = "";
      consider(left.before, top.left);
      consider(top.left, left.after);
    }
    const found = [];
    const add = (piece) => {
      const parts = this.types[this.idOf(piece)] === UNUSED ? merged.get(piece) : undefined;
      if (parts) parts.forEach(add);
      else found.push(piece);
    };
    for (let at = symbols.length ? 0 : -1; at >= 0; at = symbols[at].after) add(symbols[at].piece);
    return found;
  }

  // Unigram

  /** The likeliest split, computed in the same precision as SentencePiece does. */
  unigram(text) {
    const scores = new Float64Array(text.length + 1), starts = new Int32Array(text.length + 1).fill(-1);
    const unknown = Math.fround(this.least - UNKNOWN_PENALTY);
    const reach = (end, start, candidate) => {
      if (starts[end] >= 0 && !(candidate > scores[end])) return;
      [starts[end], scores[end]] = [start, Math.fround(candidate)];
    };
    for (let at = 0; at < text.length; ) {
      const width = text.codePointAt(at) > 0xffff ? 2 : 1;
      let single = false;
      for (let end = at + width; end <= Math.min(text.length, at + this.longest); end += text.codePointAt(end) > 0xffff ? 2 : 1) {
        const piece = text.slice(at, end), id = this.text.get(piece);
        if (id === undefined || this.types[id] === UNUSED) continue;
        const chosen = this.types[id] === USER_DEFINED ? utf8.encode(piece).length * this.most - 0.1 : this.scores[id];
        reach(end, at, chosen + scores[at]);
        single ||= end === at + width;
      }
      if (!single) reach(at + width, at, Math.fround(unknown + scores[at]));
      at += width;
    }
    const found = [];
    for (let end = text.length; end > 0; end = starts[end]) found.push(text.slice(starts[end], end));
    return found.reverse();
  }

  // Decoding

  /** Return the text of {id, piece} objects. */
  join(pieces) {
    const { add_dummy_prefix, remove_extra_whitespaces } = this.normalizer;
    let text = "", at_start = true, space_seen = false, bytes = [];
    const flush = () => {
      if (bytes.length) text += decodeBytes(bytes);
      bytes = [];
    };
    for (const { id, piece } of pieces) {
      const type = this.types[id];
      if (type === BYTE) {
        bytes.push(parseInt(piece.slice(3, 5), 16));
        continue;
      }
      flush();
      if (space_seen || text) at_start = false;
      space_seen = false;
      if (type === CONTROL) continue;
      if (type === UNKNOWN) {
        text += piece === this.names[id] ? this.unknown_surface : piece;
        continue;
      }
      let own = piece;
      if (at_start && (add_dummy_prefix || remove_extra_whitespaces) && own.startsWith(SPACE)) {
        own = own.slice(1);
        space_seen = !remove_extra_whitespaces;
      }
      text += own.replaceAll(SPACE, " ");
    }
    flush();
    return text;
  }
}

/** Characters of UTF-8; each byte that is not part of one becomes U+FFFD. */
function decodeBytes(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const length = [4, 3, 2, 1].find((count) => isCharacter(bytes.slice(at, at + count), count));
    text += length ? fromUtf8.decode(Uint8Array.from(bytes.slice(at, at + length))) : "\ufffd";
    at += length ?? 1;
  }
  return text;
}

function isCharacter(bytes, count) {
  if (bytes.length < count || bytes.slice(1).some((byte) => byte >> 6 !== 2)) return false;
  const lead = bytes[0];
  if (count === 1) return lead < 0x80;
  if (count === 2) return lead >= 0xc2 && lead <= 0xdf;
  const second = bytes[1];
  if (count === 3) return lead >> 4 === 0xe && (lead !== 0xe0 || second >= 0xa0) && (lead !== 0xed || second < 0xa0);
  return lead >= 0xf0 && lead <= 0xf4 && (lead !== 0xf0 || second >= 0x90) && (lead !== 0xf4 || second < 0x90);
}

/** The map of a normalizer: a double-array trie over the bytes of UTF-8, and the strings that its keys become. */
class Charsmap {
  constructor(base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const size = new DataView(bytes.buffer).getUint32(0, true);
    this.units = new Uint32Array(bytes.slice(4, 4 + size).buffer);
    this.values = bytes.slice(4 + size);
  }

  /** The longest key at a place of a text: {length in the text, value}, or null. */
  longest(text, at) {
    const offset = (unit) => (unit >>> 10) << ((unit & 512) >>> 6);
    let node = offset(this.units[0]), found = null;
    for (let end = at; end < text.length; ) {
      const character = String.fromCodePoint(text.codePointAt(end));
      end += character.length;
      for (const byte of utf8.encode(character)) {
        node ^= byte;
        const unit = this.units[node];
        if (unit === undefined || ((unit & 0x800000ff) >>> 0) !== byte) return found;
        node ^= offset(unit);
        // Keys end between characters.
        if ((unit >>> 8) & 1) found = { length: end - at, value: this.units[node] & 0x7fffffff };
      }
      if (found && typeof found.value === "number") found.value = this.valueAt(found.value);
    }
    return found;
  }

  valueAt(start) {
    let end = start;
    while (this.values[end]) end++;
    return fromUtf8.decode(this.values.subarray(start, end));
  }
}

/** A priority queue; `before(a, b)` says whether a comes first. */
class Heap {
  constructor(before) {
    this.before = before;
    this.items = [];
  }
  push(item) {
    const { items, before } = this;
    let at = items.push(item) - 1;
    for (let parent; at > 0 && before(item, items[(parent = (at - 1) >> 1)]); at = parent) items[at] = items[parent];
    items[at] = item;
  }
  pop() {
    const { items, before } = this;
    const top = items[0], last = items.pop();
    if (!items.length) return top;
    let at = 0;
    for (let child; (child = 2 * at + 1) < items.length; at = child) {
      if (child + 1 < items.length && before(items[child + 1], items[child])) child++;
      if (!before(items[child], last)) break;
      items[at] = items[child];
    }
    items[at] = last;
    return top;
  }
}
