// Attention weights as matrices {rows, columns, values}: unpacked, and merged over heads, layers and words.

/** Returns the bytes of text that was compressed and written in base64. */
export function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

/** Returns the record of one layer with its weights decompressed: `matrices` has one {rows, columns, values} per head. */
export async function unpack(packed) {
  const values = new Uint16Array(await inflate(packed.weights));
  const [heads, queries, keys] = packed.shape;
  const matrices = [];
  for (let head = 0; head < heads; head++) {
    const matrix = { rows: queries, columns: keys, values: new Float32Array(queries * keys) };
    for (let at = 0; at < queries * keys; at++) matrix.values[at] = values[head * queries * keys + at] / 65535;
    matrices.push(matrix);
  }
  return { ...packed, matrices };
}

export function meanOverHeads(matrices) {
  const { rows, columns } = matrices[0];
  const values = new Float32Array(rows * columns);
  for (const one of matrices) for (let at = 0; at < values.length; at++) values[at] += one.values[at] / matrices.length;
  return { rows, columns, values };
}

/** Returns how much of each input reaches each position through these layers. Half of each layer is its residual connection. */
export function attentionRollout(matrices) {
  const size = matrices[0].rows;
  let rollout = identity(size);
  for (const one of matrices) {
    const half = identity(size);
    for (let at = 0; at < half.length; at++) half[at] = 0.5 * half[at] + 0.5 * one.values[at];
    rollout = product(half, rollout, size);
  }
  return { rows: size, columns: size, values: rollout };
}

function identity(size) {
  const values = new Float32Array(size * size);
  for (let at = 0; at < size; at++) values[at * size + at] = 1;
  return values;
}

function product(left, right, size) {
  const out = new Float32Array(size * size);
  for (let row = 0; row < size; row++)
    for (let middle = 0; middle < size; middle++) {
      const factor = left[row * size + middle];
      if (factor === 0) continue;
      for (let column = 0; column < size; column++) out[row * size + column] += factor * right[middle * size + column];
    }
  return out;
}

/** Returns weights between words: the sum over the tokens of a key word, the mean over those of a query word. */
export function mergeWords(matrix, queries, keys) {
  const values = new Float32Array(queries.length * keys.length);
  queries.forEach((query, row) =>
    keys.forEach((key, column) => {
      let sum = 0;
      for (const q of query) for (const k of key) sum += matrix.values[q * matrix.columns + k];
      values[row * keys.length + column] = sum / query.length;
    }),
  );
  return { rows: queries.length, columns: keys.length, values };
}
