// The encoder of a model with the paper's layers, in plain JavaScript, so that every number on the way can be shown.

/** Numbers of 16 bits as floats. */
function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** The weights by name: {rows, columns, data, scales}. A matrix of 8-bit integers has one scale per row. */
export function readTensors(tensors, bytes) {
  const found = {};
  let at = 0;
  const take = (size) => bytes.slice(at, (at += size)).buffer;
  for (const [name, type, rows, columns] of tensors) {
    const size = rows * columns;
    if (type === "I8") found[name] = { rows, columns, data: new Int8Array(take(size)), scales: new Float32Array(take(4 * rows)) };
    else if (type === "F16") found[name] = { rows, columns, data: Float32Array.from(new Uint16Array(take(2 * size)), fromHalf) };
    else found[name] = { rows, columns, data: new Float32Array(take(4 * size)) };
  }
  return found;
}

/** One entry of a matrix. */
export function entry({ columns, data, scales }, row, column) {
  return data[row * columns + column] * (scales ? scales[row] : 1);
}

/** The matrix times a vector. */
export function product({ rows, columns, data, scales }, x, bias) {
  const out = new Float64Array(rows);
  for (let row = 0, at = 0; row < rows; row++) {
    let sum = 0;
    for (let column = 0; column < columns; column++) sum += data[at++] * x[column];
    out[row] = sum * (scales ? scales[row] : 1) + (bias ? bias.data[row] : 0);
  }
  return out;
}

export function dot(a, b) {
  return a.reduce((sum, one, at) => sum + one * b[at], 0);
}

export function softmax(scores) {
  const most = Math.max(...scores), powers = scores.map((one) => Math.exp(one - most)), sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((one) => one / sum);
}

/** PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same). */
export function positionalEncoding(pos, width) {
  return Float64Array.from({ length: width }, (_, at) => {
    const angle = pos / 10000 ** ((at - (at % 2)) / width);
    return at % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

export class Encoder {
  constructor({ layers, heads, norm_eps }, weights) {
    Object.assign(this, { weights, heads, eps: norm_eps, layers: layers.encoder });
    this.embedding = weights.source_embedding ?? weights.target_embedding;
    this.width = this.embedding.columns;
    this.headWidth = this.width / heads;
  }

  /** Embedding times the root of the width, plus the encoding of the position: {token, position, x}. */
  embed(id, pos) {
    const token = Float64Array.from({ length: this.width }, (_, at) => entry(this.embedding, id, at) * Math.sqrt(this.width));
    const position = positionalEncoding(pos, this.width);
    return { token, position, x: token.map((one, at) => one + position[at]) };
  }

  /** All numbers of a sentence: {embedded, layers}. In a layer, `x` are its inputs and `out` its outputs, one per token. */
  run(ids) {
    const embedded = ids.map((id, pos) => this.embed(id, pos)), layers = [];
    let x = embedded.map((one) => one.x);
    for (let layer = 0; layer < this.layers; layer++) {
      layers.push(this.layer(layer, x));
      x = layers.at(-1).out.map((one) => one.out);
    }
    return { embedded, layers };
  }

  layer(number, x) {
    const named = (name) => this.weights[`encoder.${number}.${name}`], { width, headWidth } = this;
    const projected = x.map((one) => product(named("attention.project.weight"), one));
    const split = (part) => Array.from({ length: this.heads }, (_, head) =>
      projected.map((one) => one.subarray(part * width + head * headWidth, part * width + (head + 1) * headWidth)));
    const [q, k, v] = [0, 1, 2].map(split); // [head][token][headWidth]
    const dots = q.map((queries, head) => queries.map((query) => k[head].map((key) => dot(query, key))));
    const scores = dots.map((rows) => rows.map((row) => row.map((one) => one / Math.sqrt(headWidth))));
    const alpha = scores.map((rows) => rows.map(softmax));
    const z = alpha.map((rows, head) => rows.map((row) => weightedSum(row, v[head])));
    const attended = x.map((_, token) => product(named("attention.output.weight"), z.flatMap((rows) => [...rows[token]])));
    const middle = x.map((one, token) => this.addNorm(one, attended[token], named("around_attention.norm.weight"), named("around_attention.norm.bias")));
    const out = middle.map(({ out: one }) => {
      const inner = product(named("feed_forward.inner.weight"), one, named("feed_forward.inner.bias")).map((value) => Math.max(0, value));
      const outer = product(named("feed_forward.outer.weight"), inner, named("feed_forward.outer.bias"));
      return { inner, ...this.addNorm(one, outer, named("around_feed_forward.norm.weight"), named("around_feed_forward.norm.bias")) };
    });
    return { x, q, k, v, dots, scores, alpha, z, attended, middle, out };
  }

  /** LayerNorm(x + Sublayer(x)): {sum, mean, deviation, out}. */
  addNorm(x, sublayer, gain, bias) {
    const sum = x.map((one, at) => one + sublayer[at]);
    const mean = sum.reduce((a, b) => a + b, 0) / sum.length;
    const deviation = Math.sqrt(sum.reduce((a, b) => a + (b - mean) ** 2, 0) / sum.length + this.eps);
    return { x, sublayer, sum, mean, deviation, gain, bias, out: sum.map((one, at) => ((one - mean) / deviation) * gain.data[at] + bias.data[at]) };
  }
}

function weightedSum(weights, vectors) {
  return Float64Array.from(vectors[0], (_, at) => weights.reduce((sum, weight, token) => sum + weight * vectors[token][at], 0));
}
