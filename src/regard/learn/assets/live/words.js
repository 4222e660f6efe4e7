// What the figures say, in the language of the page. English is the key; what is missing in Chinese stays English.
import { fill } from "./elements.js";

const CHINESE = {
  // The sentence of a reader
  Compute: "计算",
  "Your sentence, in English": "你的英文句子",
  "Your sentence, in Chinese": "你的中文句子",
  Model: "模型",
  "English to German": "英译德",
  "Chinese to English, a small teaching model": "中译英（小型教学模型）",
  "Loading the model: 12 MB, once.": "正在载入模型：12 MB，只需一次。",
  "The sentence is cut to {count} tokens.": "句子已截短为 {count} 个词元。",
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
    "每个词都有一个键。“{word}” 的查询与每个键相乘，得到点积 q·k。点积除以 √{count} = {root}，再由 softmax 变成总和为 1 的权重 α。",
  "Every word has a value too. The output z of this head is the sum of all values, each times its weight.":
    "每个词还有一个值。这个头的输出 z 是所有的值乘以各自的权重之后的总和。",
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
    "{count} 个乘积各自的方差接近 1，所以总和的方差接近 {count}。除以 √{count} 就使它回到 1 附近。",
  "α of “{word}”": "“{word}” 的 α",
  "of this word": "这个词的一项",
  "Grey: hidden by the mask.": "灰色：被掩码遮住。",
  "in the sum: {word}": "总和中的一项：{word}",

  // 3.2.2 Heads
  "Head {number}": "第 {number} 个头",
  "{label}: {rows} down, {columns} across": "{label}：自上而下是{rows}，从左到右是{columns}",
  "Wider than the page: scroll sideways.": "图比页面宽：请左右滚动。",
  "Attention of the": "注意力：",
  "encoder, to itself": "编码器对自己",
  "decoder, to itself (masked)": "解码器对自己（带掩码）",
  "decoder, to the encoder": "解码器对编码器",
  "source (from)": "源端（查询）",
  "source (to)": "源端（键）",
  output: "输出",
  "decoder input": "解码器的输入",
  source: "源端",

  // 3.5 Positions
  position: "位置",
  "distance k": "距离 k",
  "width d_model": "宽度 d_model",
  entry: "分量",
  "pair i": "第 i 对",
  "Positions 0 to 63 down, entries of the encoding across: fast waves on the left, slow ones on the right":
    "自上而下是位置 0 到 63，从左到右是位置编码的各个分量：左边的波快，右边的波慢",
  "This wave repeats after {count} positions.": "这个波每过 {count} 个位置重复一次。",
  "Entries {even} and {odd} of the encoding as a point on a circle, at two positions": "位置编码的第 {even} 和第 {odd} 个分量作为圆上的一点，在两个位置上",
  "From position {pos} to {next} this pair turns by ω · {k} = {angle}°, wherever it is.": "从位置 {pos} 到 {next}，这一对转过 ω · {k} = {angle}°，不论在哪个位置都一样。",
  "PE({pos}) · PE({pos} + k) by k, for width {width}": "PE({pos}) · PE({pos} + k) 随 k 的变化，宽度 {width}",
  "Another position gives the same curve.": "换一个位置，曲线不变。",
  "Score of positions alone by distance, one line per head of layer 1": "仅由位置得到的分数随距离的变化，第 1 层的每个头一条线",
  "distance k of the word that is looked at": "被看的词的距离 k",
  "score, from positions alone": "仅由位置得到的分数",
  "head {number}": "第 {number} 个头",

  // 5.3 The learning rate
  "Learning rate by step, for width {width} and {warmup} steps of warm-up": "学习率随步数的变化，宽度 {width}，学习率预热 {warmup} 步",
  step: "步",
  "learning rate": "学习率",
  "the paper's base model: 512, 4000": "论文的 base 模型：512，4000",
  yours: "你的设置",
  "(rising: the second is smaller)": "（上升：第二项较小）",
  "(falling: the first is smaller)": "（下降：第一项较小）",
  "warm-up steps": "预热步数",

  // 5.4 Label smoothing
  target: "目标",
  model: "模型",
  "the right token": "正确的词元",
  "each of the other {count}": "其余 {count} 个，每个",
  "Loss by the probability of the right token": "损失随正确词元的概率的变化",
  "probability that the model gives to the right token": "模型给正确词元的概率",
  loss: "损失",
  "without smoothing": "不用平滑",
  "with ε = {epsilon}": "ε = {epsilon}",
  "the least that is possible, at p = {p}:": "所能达到的最小值，在 p = {p} 处：",
  "Gradient for the logit of the right token:": "损失对正确词元的 logit 的梯度：",
  "The model is surer than the target, and is pushed back.": "模型比目标更有把握，会被推回来。",
  "The model is less sure than the target, and is pushed on.": "模型不如目标有把握，会被继续往上推。",
  "smoothing ε": "平滑 ε",
  "vocabulary V": "词表 V",
  "model: p of the right token": "模型：正确词元的 p",

  // Take it away
  "Your bet": "你的选择",
  "Your bet? The result is shown when you have chosen.": "你押哪个？选定之后显示结果。",
  "You were right: {bet}.": "你押对了：{bet}。",
  "You said: {bet}. It was: {answer}.": "你押的是：{bet}。结果是：{answer}。",
  "Training loss, nats per token": "训练损失（纳特/词元）",
  "Right on the dev set, %": "开发集上的正确率（%）",
  "dev loss": "开发集损失",
  "right, %": "正确率（%）",
  "{title} over {unit}": "{title}，按{unit}",
  steps: "步数",
  "{value} at {place}": "{value}（第 {place} 步）",
  "{score}: {model}": "{score}：{model}",
  seed: "随机种子",
  Scores: "分数",
  input: "输入",
  expected: "正确答案",
  "(empty)": "（空）",
  "causal mask": "有因果掩码",
  "no mask": "没有掩码",
  sinusoids: "有正弦位置编码",
  "no positions": "没有位置编码",
  "scores / √d": "分数除以 √d",
  "scores as they are": "分数不作除法",
  "4 heads": "4 个头",
  "1 head": "1 个头",
  "warm-up": "有预热",
  "no warm-up": "没有预热",
  "smoothing 0.1": "标签平滑 0.1",
  "no smoothing": "没有标签平滑",
  "feed-forward": "有前馈网络",
  "no feed-forward": "没有前馈网络",
  LayerNorm: "有层归一化",
  "no norm": "没有层归一化",
};

/** A text with values in it: say("layer {number}", { number: 1 }). */
export function say(text, values = {}) {
  const found = document.documentElement.dataset.lang === "zh" ? (CHINESE[text] ?? text) : text;
  return fill(found, values);
}

/** Calls `draw` again when another language or other colours are chosen, or a window becomes narrow. */
export function redrawn(draw) {
  for (const event of ["regard-language", "regard-theme"]) document.addEventListener(event, draw);
  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 40rem)"]) matchMedia(query).addEventListener("change", draw);
}
