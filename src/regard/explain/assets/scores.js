// The product of a query and a key, number by number: how one weight of attention comes about.
import { element, percent } from "./elements.js";
import { inflate } from "./weights.js";

const digits = (value) => (Math.abs(value) < 0.005 ? 0 : value).toFixed(2).replace("-", "\u2212");

/** Returns vectors as {heads, tokens, width, values}. */
async function unpackVectors({ shape: [heads, tokens, width], step, values }) {
  return { heads, tokens, width, values: Float32Array.from(new Int16Array(await inflate(values)), (value) => value * step) };
}

/** Returns a table of the numbers of a query and a key, and how their products become a weight. `row` has the weights of all keys. */
export async function scoreTable(packed, head, query, key, words, row) {
  const [queries, keys] = await Promise.all(packed.vectors.map(unpackVectors));
  const vector = ({ tokens, width, values }, at) => values.subarray((head * tokens + at) * width, (head * tokens + at + 1) * width);
  const q = vector(queries, query), width = q.length;
  const scoreOf = (at) => vector(keys, at).reduce((sum, value, place) => sum + value * q[place], 0);
  const k = vector(keys, key), sum = scoreOf(key), score = sum / Math.sqrt(width);
  const seen = Array.from(row, (weight, at) => at).filter((at) => row[at] > 0); // keys that are masked have no weight
  const total = seen.reduce((all, at) => all + Math.exp(scoreOf(at) / Math.sqrt(width)), 0);
  const most = Math.max(...q.map((value, at) => Math.abs(value * k[at]))) || 1;
  const line = (name, values, tinted) => element("tr", {}, element("th", { scope: "row" }, name), ...Array.from(values, (value) => element("td", { style: tinted ? `--weight: ${(Math.abs(value) / most).toFixed(2)}` : "" }, digits(value))));
  const products = q.map((value, at) => value * k[at]);
  const head_row = element("tr", {}, element("th", { scope: "col" }, ""), ...Array.from(q, (_, at) => element("th", { scope: "col" }, String(at + 1))));
  return element("section", { class: "product", "aria-label": "Product of query and key" },
    element("h3", {}, `q of \u201c${words[0]}\u201d \u00b7 k of \u201c${words[1]}\u201d, layer ${packed.layer}, head ${head + 1}`),
    element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Numbers" }, element("table", {}, element("thead", {}, head_row), element("tbody", {}, line("q", q), line("k", k), line("q \u00d7 k", products, true)))),
    element("p", {}, `Sum of the products: ${digits(sum)}. Divided by \u221a${width}: ${digits(score)}. `, row[key] > 0
      ? `Softmax: e^${digits(score)} = ${digits(Math.exp(score))}, divided by the sum over ${seen.length} keys, ${digits(total)}: ${percent(Math.exp(score) / total)}.`
      : "The weight is 0: the mask hides this key, or its score is far below the others."),
  );
}
