// The page: translation while typing, alternatives, attention, and parts of the model that can be silenced.
import { AttentionView } from "./attention.js";
import { element, spaceBetween, wordSpans } from "./elements.js";
import { linkedWords, markOpened, outputTokens, showAlternatives, tokenAt } from "./output.js";

const $ = (id) => document.getElementById(id);
const DELAY = 60; // milliseconds from the last key to a translation
const ATTENTIONS = ["encoder", "decoder", "encoder-decoder"]; // in the order of the engine
const STACKS = [["Encoder", "encoder"], ["Decoder", "decoder"], ["Encoder-decoder attention", "decoder"]]; // in the order of the engine

const model = JSON.parse($("model").textContent);
const worker = new Worker(URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" })));
const open = new Map(); // requests that have not been answered
let requests = 0, translations = 0, timer = 0;
let shownText = { sentences: [], spaces: [""], texts: [] };
let silenced = new Map(); // "stack layer head" to [stack, layer, head]
let unchanged = { source: "", target: "" }; // the newest translation by all parts of the model
const timings = { parsed: null, ready: null, first: null }; // milliseconds since the page was opened

const LISTENERS = {
  progress({ share }) {
    $("progress").value = share;
  },
  sentences(found) {
    if (found.number === translations) showArriving(found);
  },
  answer({ id, answer, error }) {
    const { done, fail } = open.get(id);
    open.delete(id);
    if (error === undefined) done(answer);
    else fail(new Error(error));
  },
};
worker.onmessage = ({ data }) => LISTENERS[data.kind](data);
worker.onerror = (event) => showStatus(`the page cannot translate: ${event.message}`);

function ask(kind, fields) {
  const id = ++requests;
  return new Promise((done, fail) => {
    open.set(id, { done, fail });
    worker.postMessage({ kind, id, ...fields });
  });
}

const language = () => Number($("language").value);

function showStatus(text) {
  $("state").textContent = text;
}

/** Translate another text: nothing of the one before is looked at any more. */
function translateAnew() {
  looked = null;
  return translate();
}

/** Translate the text and return whether this is still the newest translation. */
async function translate() {
  const number = ++translations, text = $("text").value;
  hideTrace();
  showStatus("");
  try {
    const { cancelled } = await ask("translate", { number, text, language: language() });
    if (cancelled || number !== translations) return false;
    if (timings.first === null && text.trim()) timings.first = performance.now();
    if (!silenced.size) unchanged = { source: text, target: fullText() };
    showUnchanged();
    document.body.dataset.translated = String(number);
    return true;
  } catch (problem) {
    showStatus(problem.message);
    return false;
  }
}

/** Show with which text the silenced parts changed the translation. */
function showUnchanged() {
  const line = $("unchanged"), comparable = silenced.size > 0 && unchanged.source === $("text").value && unchanged.target.trim() !== "";
  line.hidden = !comparable;
  line.textContent = comparable ? (unchanged.target === fullText() ? "All parts together say the same." : `All parts together: ${unchanged.target}`) : "";
}

/** Show what there is of a new translation once it is as long as the old one, which is dimmed until then: typing does not empty the page. */
function showArriving(found) {
  if (found.texts.includes(null) && fullText(found).length < fullText().length) $("output").classList.add("old");
  else show(found);
}

function show(found) {
  shownText = found;
  const output = $("output"), spaces = spacesOf(found);
  output.classList.remove("old");
  output.replaceChildren(spaces[0] ?? "");
  found.sentences.forEach((sentence, number) => {
    const text = found.texts[number];
    output.append(
      text === null
        ? element("span", { class: "pending" }, "\u2026")
        : sentenceButton(text, number),
      spaces[number + 1],
    );
  });
  $("copy").disabled = !found.sentences.length;
}

/** A sentence that can be clicked. Not a button element, in which some browsers do not say which word was clicked. */
function sentenceButton(text, number) {
  const look = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    const word = event.target.closest("[data-at]");
    lookAt(number, [], { place: word ? Number(word.dataset.at) : null });
  };
  return element("span", { role: "button", tabindex: 0, class: "part", "aria-label": `${text || "nothing"}. Show alternatives and attention`, onclick: look, onkeydown: look }, ...wordSpans(text));
}

/** The spaces before, between and after the translations of sentences. */
const spacesOf = ({ sentences, spaces, texts }) => spaces.map((space, at) => (at && at < spaces.length - 1 ? spaceBetween(sentences[at - 1], space, texts[at - 1], texts[at]) : space));

function fullText(found = shownText) {
  const spaces = spacesOf(found);
  return spaces[0] + found.texts.map((text, number) => (text ?? "") + spaces[number + 1]).join("");
}

// How a sentence is translated

/** A view of attention whose weights are there already. */
class WeightsView extends AttentionView {
  async unpackedOf(layer) {
    return layer;
  }
}

let looked = null; // number of the sentence that is looked at, also while parts are silenced
let view = null; // of its attention

/** Show how a sentence is translated, optionally with forced first tokens. With a place in its text, the alternatives there are shown. */
async function lookAt(number, prefix, { focus = true, place = null } = {}) {
  showStatus("computing attention ...");
  const before = shownText, text = before.sentences[number];
  looked = number;
  try {
    const { nbest, trace } = await ask("look", { text, language: language(), prefix });
    if (shownText !== before) return; // the text has changed meanwhile
    const at = place === null || nbest[0].text !== before.texts[number] ? null : tokenAt(trace, place);
    show({ ...before, texts: before.texts.map((one, at) => (at === number ? nbest[0].text : one)) });
    showOthers(nbest);
    $("looked").hidden = false;
    const { nodes, parts } = outputTokens(trace, { choose: (place, token) => choose(number, trace, place, token) });
    $("output").querySelectorAll(".part")[number].replaceWith(element("span", { class: "tokens" }, ...nodes));
    drawAttention(trace, parts);
    if (focus) parts[at ?? 0]?.element.focus();
    if (at !== null) parts[at].element.click();
    showStatus("");
  } catch (problem) {
    showStatus(problem.message);
  }
}

function showOthers(nbest) {
  $("nbest").replaceChildren(...nbest.map((one) => element("li", {}, element("span", {}, one.text || "(nothing)"), element("span", { class: "p" }, one.score.toFixed(2)))));
}

/** Draw the attention of a trace with the layer, the heads and the picture that were chosen before. */
function drawAttention(trace, parts) {
  $("attention").replaceChildren();
  const texts = [{ axis: "source", parts: linkedWords($("which"), trace.source) }, { axis: "target", parts }];
  view = new WeightsView($("attention"), trace, { texts, choice: view?.choice, silence: SILENCE });
}

/** Show the likeliest other tokens at a position, and where they lead. */
async function choose(number, trace, at, token) {
  markOpened($("output"), token);
  const found = trace.alternatives[at].filter((one) => one.id > 2); // without special tokens
  const texts = found.map(() => element("span", {}, "\u2026"));
  const prefixes = found.map((one) => [...trace.target.ids.slice(0, at), one.id]);
  const others = found.map((one, rank) => ({ ...one, piece: one.token, text: texts[rank] }));
  showAlternatives($("others"), trace, at, others, (_, rank) => {
    $("others").hidden = true;
    lookAt(number, prefixes[rank]);
  });
  const continued = await ask("proceed", { text: trace.source.text, language: language(), prefixes });
  continued.forEach((text, rank) => (texts[rank].textContent = text));
}

function closeOthers() {
  $("others").hidden = true;
  markOpened($("output"), null)?.focus();
}

function hideTrace() {
  $("others").hidden = true;
  $("looked").hidden = true;
}

// Parts of the model

function makeStacks() {
  const heads = Array.from({ length: model.heads }, (_, head) => head);
  STACKS.forEach(([name, stack], number) => {
    if (!model.layers[stack]) return;
    const box = (layer, head, what) =>
      element("td", {}, element("input", { type: "checkbox", "data-part": [number, layer, head].join(" "), "aria-label": `Silence ${what} of layer ${layer + 1}, ${name}`, onchange: (event) => silence([number, layer, head], event.target.checked) }));
    const whole = number === 2 ? "the attention" : "all";
    $("stacks").append(element("div", { class: "scroll" }, element("table", {},
      element("caption", {}, name),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "layer"), ...heads.map((head) => element("th", { scope: "col" }, `head ${head + 1}`)), element("th", { scope: "col" }, whole))),
      element("tbody", {}, ...Array.from({ length: model.layers[stack] }, (_, layer) =>
        element("tr", {}, element("th", { scope: "row" }, String(layer + 1)), ...heads.map((head) => box(layer, head, `head ${head + 1}`)), box(layer, -1, whole)))),
    )));
  });
}

const boxOf = (part) => $("stacks").querySelector(`[data-part="${part.join(" ")}"]`);

/** How the pictures of attention silence a head. */
const SILENCE = {
  part: (name, layer, head) => [ATTENTIONS.indexOf(name), layer - 1, head],
  has: (...place) => silenced.has(SILENCE.part(...place).join(" ")),
  toggle: (...place) => boxOf(SILENCE.part(...place)).click(),
};

async function silence(part, silent) {
  if (silent) silenced.set(part.join(" "), part);
  else silenced.delete(part.join(" "));
  $("restore").disabled = !silenced.size;
  try {
    await ask("silence", { number: ++translations, parts: [...silenced.values()] }); // what is being searched stops
    if ((await translate()) && looked !== null && looked < shownText.sentences.length) await lookAt(looked, [], { focus: false });
  } catch (problem) {
    showStatus(problem.message);
  }
}

$("restore").addEventListener("click", () => {
  silenced = new Map();
  for (const box of $("stacks").querySelectorAll("input")) box.checked = false;
  silence([0, 0, -1], false);
});

// Beginning

$("text").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(translateAnew, DELAY);
});
$("language").addEventListener("change", () => {
  showLanguage();
  translateAnew();
});
$("clear").addEventListener("click", () => {
  $("text").value = "";
  translateAnew();
  $("text").focus();
});
$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(fullText());
    showStatus("copied");
  } catch {
    showStatus("this browser does not let the page copy; select the text instead");
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeOthers();
});

function showLanguage() {
  const { source, target } = model.languages[language()];
  $("text").lang = source ?? "";
  $("output").lang = target ?? "";
}

$("language").append(...model.languages.map((one, number) => element("option", { value: number }, one.name)));
$("pick").hidden = model.languages.length < 2;
$("about").textContent = model.about;
showLanguage();
makeStacks();

const loaded = ask("load", { model });
new MutationObserver(sendData).observe(document.body, { childList: true });
document.addEventListener("DOMContentLoaded", sendData);

/** Send what has been parsed of the data behind this script, so that the worker decompresses it meanwhile. */
function sendData() {
  for (const block of document.querySelectorAll("script[data-name]")) {
    if (document.readyState === "loading" && !block.nextElementSibling) return; // not complete
    worker.postMessage({ kind: "data", name: block.dataset.name, last: "last" in block.dataset, text: block.textContent });
    block.remove();
  }
  timings.parsed = performance.now();
}

/** For other scripts: `await regard.translate(["..."])` returns the outputs of each line, best first; `look("...")` how the
    best one came about. */
globalThis.regard = {
  timings,
  ready: loaded,
  translate: (texts, options = {}) => loaded.then(() => ask("lines", { texts, language: language(), options })),
  look: (text) => loaded.then(() => ask("look", { text, language: language(), prefix: [] })),
  encode: (texts) => loaded.then(() => ask("encode", { texts, language: language() })),
};
try {
  await loaded;
  timings.ready = performance.now();
  $("loading").hidden = true;
  if (!translations && $("text").value) await translate(); // a browser may have kept it
} catch (problem) {
  $("loading").textContent = `The model cannot be loaded: ${problem.message}`;
}
