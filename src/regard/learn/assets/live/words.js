// What the figures say, in the language of the page. English is the key; what is missing in Chinese stays English.

const CHINESE = {
  // The sentence of a reader
  Compute: "计算",
  "Your sentence, in English": "你的英文句子",
  "Loading the model: 12 MB, once.": "正在载入模型：12 MB，只需一次。",
  "The sentence is cut to {count} tokens.": "句子截短为 {count} 个词元。",
  "The figure cannot be computed: {reason}": "这幅图无法计算：{reason}",
  "The model translates: {text}": "模型的译文：{text}",

  // How a number was computed
  "How this number was computed": "这个数字是怎样算出来的",
  "Choose any number or coloured cell: how it was computed is shown here.": "选择任何一个数字或彩色方格，这里会显示它是怎样算出来的。",
  "{count} smaller terms": "其余较小的 {count} 项",

  // 3.2 Attention
  "The engine, compiled to WebAssembly, computed all attention weights of this sentence too. The largest difference to those here is {difference}.":
    "编译成 WebAssembly 的引擎也算出了这个句子的全部注意力权重，与这里的最大差别是 {difference}。",
  "The word that asks": "提问的词",
  Layer: "层",
  Head: "头",
  "dot product": "点积",
  score: "分数",
  weight: "权重",
  "The word “{word}” enters this layer as {count} numbers, x.": "“{word}” 进入这一层时是 {count} 个数，即 x。",
  "Three matrices make three vectors of {count} numbers of it: a query q, a key k and a value v.":
    "三个矩阵由它得到三个各有 {count} 个数的向量：查询 q、键 k 和值 v。",
  "Every word has a key. The query of “{word}” is multiplied with each of them: the dot product q·k. It is divided by √{count} = {root}, and the softmax makes weights α that sum to 1.":
    "每个词都有一个键。“{word}” 的查询与每个键相乘，得到点积 q·k。再除以 √{count} = {root}，由 softmax 变成总和为 1 的权重 α。",
  "Every word has a value too. The output z of this head is the sum of all values, each times its weight.":
    "每个词也有一个值。这个头的输出 z 是所有值乘以各自权重之后的和。",
  "{name} of “{word}”": "“{word}” 的 {name}",
  "x_{number} of “{word}”": "“{word}” 的 x_{number}",
  "x = √d_{model} · E + PE: the row of this token in the embedding matrix E, times {root}, plus the encoding of position {pos}":
    "x = √d_{model} · E + PE：词嵌入矩阵 E 中这个词元的那一行，乘以 {root}，加上位置 {pos} 的位置编码",
  "x = LayerNorm(y + FFN(y)): what layer {layer} gives out": "x = LayerNorm(y + FFN(y))：第 {layer} 层的输出",
  "minus the mean": "减去均值",
  "divided by the deviation": "除以标准差",
  "times gain, plus bias": "乘以增益，加上偏置",
  "{kind}_{number} of “{word}”": "“{word}” 的 {kind}_{number}",
  "q of “{word}” · k of “{other}”": "“{word}” 的 q · “{other}” 的 k",
  "score of “{word}”": "“{word}” 的分数",
  "Each of the {count} products has a variance near 1, so their sum has one near {count}. Dividing by √{count} brings it back.":
    "{count} 个乘积各自的方差接近 1，所以总和的方差接近 {count}。除以 √{count} 就把它拉回来。",
  "α of “{word}”": "“{word}” 的 α",
  "of this word": "这个词",
  "in the sum: {word}": "总和里的 {word}",
};

/** A text with values in it: say("layer {number}", { number: 1 }). */
export function say(text, values = {}) {
  const found = document.documentElement.dataset.lang === "zh" ? (CHINESE[text] ?? text) : text;
  return found.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

/** Calls `draw` again when another language or other colours are chosen, or a window becomes narrow. */
export function redrawn(draw) {
  for (const event of ["regard-language", "regard-theme"]) document.addEventListener(event, draw);
  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 40rem)"]) matchMedia(query).addEventListener("change", draw);
}
