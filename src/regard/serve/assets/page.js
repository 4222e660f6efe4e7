// The web page: translation while typing, alternatives of a word, and attention.
import { AttentionView } from "./attention.js";
import { element, percent, shown } from "./elements.js";

const $ = (id) => document.getElementById(id);
const MAX_HISTORY = 50; // translations
const [SURE, UNSURE] = [0.6, 0.3]; // confidence in a word, below which it is underlined with dots, or with a wave
const [MAX_LINES, MAX_CHARACTERS] = [50, 20_000]; // of a file, sent in one request
let models = [];
let running = null; // AbortController of the current request
let timer = 0;
let sentences = []; // of the current translation: {source, text}
let separators = []; // text before, between and after them

/** Send a request, with the API key if there is one; ask the user for a key if the server requires it. */
async function request(path, options) {
  const key = sessionStorage.getItem("key");
  const headers = { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) {
    const given = prompt("This server requires an API key:");
    if (given) {
      sessionStorage.setItem("key", given.trim());
      return request(path, options);
    }
  }
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error ?? `the server responded with status ${response.status}`);
  return response;
}

const post = (path, body, signal) => request(path, { method: "POST", body: JSON.stringify(body), signal });

function showStatus(text) {
  $("state").textContent = text;
}

const current = () => models.find((one) => one.name === $("model").value);

async function translate() {
  running?.abort();
  const text = $("text").value;
  hideTrace();
  if (!text.trim()) {
    show([], [""]);
    return showStatus("");
  }
  const controller = (running = new AbortController());
  $("output").classList.add("old");
  try {
    if (!current().non_autoregressive) await stream(text, controller.signal);
    const answer = await (await post("/v1/translate", { text, model: current().name, confidence: current().calibrated }, controller.signal)).json();
    const translation = answer.translations[0];
    show(translation.sentences, separatorsOf(translation.text, translation.sentences.map((one) => one.text)));
    showStatus("");
    remember(text, translation.text);
  } catch (problem) {
    if (problem.name !== "AbortError") showStatus(problem.message);
  }
}

/** Show a first translation token by token. */
async function stream(text, signal) {
  const reader = (await post("/v1/stream", { text, model: current().name }, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = JSON.parse(event.slice("data: ".length));
      if (data.error) throw new Error(data.error);
      $("output").textContent = data.text;
    }
  }
}

/** Return the text before, between and after the given parts of a text. */
function separatorsOf(text, parts) {
  const found = [];
  let at = 0;
  for (const part of parts) {
    const begin = text.indexOf(part, at);
    found.push(text.slice(at, begin));
    at = begin + part.length;
  }
  return [...found, text.slice(at)];
}

function show(parts, spaces) {
  [sentences, separators] = [parts, spaces];
  const output = $("output");
  output.classList.remove("old");
  output.replaceChildren(spaces[0] ?? "");
  parts.forEach((part, number) => {
    output.append(
      element("button", { type: "button", class: "part", "aria-label": `${part.text}.${unsureOf(part)} Show alternatives and attention`, onclick: () => lookAt(number, []) }, ...markedWords(part)),
      spaces[number + 1],
    );
  });
  $("copy").disabled = !parts.length;
}

const wordsOf = (part) => part.nbest?.[0]?.text === part.text ? part.nbest[0].words ?? [] : [];

/** Return which words the model is unsure of, to be read aloud. */
function unsureOf(part) {
  const found = wordsOf(part).filter(([, sure]) => sure < SURE).map(([word, sure]) => `${word} (${percent(sure)})`);
  return found.length ? ` Less sure of: ${found.join(", ")}.` : "";
}

/** Return the text of a sentence; words that the model is unsure of are underlined. */
function markedWords(part) {
  const found = [];
  let at = 0;
  for (const [word, sure] of wordsOf(part)) {
    const begin = part.text.indexOf(word, at);
    if (begin < 0) continue;
    if (sure < SURE) {
      found.push(part.text.slice(at, begin), element("span", { class: sure < UNSURE ? "unsure" : "less-sure", title: percent(sure) }, word));
      at = begin + word.length;
    }
  }
  return [...found, part.text.slice(at)];
}

const fullText = () => separators[0] + sentences.map((one, number) => one.text + separators[number + 1]).join("");

/** Show how a sentence is translated, optionally with forced first tokens. */
async function lookAt(number, prefix) {
  showStatus("computing attention ...");
  const sentence = sentences[number];
  try {
    const trace = await (await post("/v1/look", { text: sentence.source, model: current().name, prefix })).json();
    if (sentences[number] !== sentence) return; // the text has changed meanwhile
    sentences[number] = { ...sentences[number], text: trace.target.text };
    show(sentences, separators);
    showTokens(number, trace);
    $("looked").hidden = false;
    $("which").textContent = sentences[number].source;
    $("attention").replaceChildren();
    if (trace.attentions.length) new AttentionView($("attention"), trace);
    else $("attention").append(element("p", { class: "note" }, "This model has no attention."));
    showStatus("");
  } catch (problem) {
    showStatus(problem.message);
  }
}

/** Show the tokens of one sentence as buttons; the less probable, the redder. */
function showTokens(number, trace) {
  const old = $("output").querySelectorAll(".part")[number];
  const line = element("span", { class: "tokens" });
  trace.target.tokens.slice(0, -1).forEach((token, at) => {
    const text = token.replaceAll("\u2581", " ");
    if (/^\s/.test(text) && at) line.append(" ");
    const sure = trace.probabilities[at] ?? 1;
    line.append(
      element("button", { type: "button", class: "token", style: `--sure: ${sure}`, title: percent(sure), "aria-controls": "others", onclick: () => choose(number, trace, at) }, text.trimStart() || "\u2423"),
    );
  });
  old.replaceWith(line);
  line.querySelector("button")?.focus();
}

function choose(number, trace, at) {
  const panel = $("others"), found = (trace.alternatives[at] ?? []).filter((one) => one.id > 2); // without special tokens
  panel.hidden = !found.length;
  panel.replaceChildren(
    element("p", { class: "note" }, `Instead of “${shown(trace.target.tokens[at])}” (${percent(trace.probabilities[at])}):`),
    element("ul", {}, ...found.map((one) =>
      element("li", {}, element("button", { type: "button", onclick: () => { panel.hidden = true; lookAt(number, [...trace.target.ids.slice(0, at), one.id]); } },
        element("span", { class: "p" }, percent(one.probability)), element("strong", {}, shown(one.piece)), element("span", { class: "text" }, one.text))),
    )),
  );
}

function hideTrace() {
  $("others").hidden = true;
  $("looked").hidden = true;
}

// Translation of a file, line by line

/** Post a request; retry a few times if it fails. */
async function postWithRetry(path, body, attempts = 5) {
  try {
    return await post(path, body);
  } catch (problem) {
    if (attempts <= 1) throw problem;
    await new Promise((done) => setTimeout(done, 2000));
    return postWithRetry(path, body, attempts - 1);
  }
}

async function translateFile(file) {
  if (!file) return;
  const lines = (await file.text()).split("\n"), out = [];
  $("job").hidden = false;
  $("download").hidden = true;
  $("jobname").textContent = file.name;
  try {
    while (out.length < lines.length) {
      const some = lines.slice(out.length, out.length + MAX_LINES);
      while (some.length > 1 && some.join("").length > MAX_CHARACTERS) some.pop();
      const answer = await (await postWithRetry("/v1/translate", { text: some, model: current().name })).json();
      out.push(...answer.translations.map((one) => one.text));
      $("progress").value = out.length / lines.length;
    }
    const link = $("download");
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(new Blob([out.join("\n")], { type: "text/plain" }));
    link.download = file.name.replace(/(\.[^.]*)?$/, `.${current().target ?? "translated"}$1`);
    link.hidden = false;
    link.focus();
  } catch (problem) {
    showStatus(problem.message);
  }
}

// The history is stored only in this browser

const readHistory = () => JSON.parse(localStorage.getItem("history") ?? "[]");

function remember(source, target) {
  const kept = [{ source, target, model: current().name }, ...readHistory().filter((one) => !source.startsWith(one.source))].slice(0, MAX_HISTORY);
  localStorage.setItem("history", JSON.stringify(kept));
  showHistory();
}

function showHistory() {
  const found = readHistory();
  $("past").hidden = !found.length;
  $("history").replaceChildren(
    ...found.map((one) =>
      element("li", {}, element("button", { type: "button", onclick: () => restore(one) }, element("span", {}, one.source), element("span", {}, one.target))),
    ),
  );
}

function restore(one) {
  if (models.some((model) => model.name === one.model)) $("model").value = one.model;
  showModel();
  $("text").value = one.source;
  translate();
}

function showModel() {
  const model = current();
  $("about").textContent = `${model.kind}, ${(model.parameters / 1e6).toFixed(1)} million parameters`;
  $("legend").hidden = !model.calibrated;
  $("text").lang = model.source ?? "";
  $("output").lang = model.target ?? "";
}

$("text").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(translate, 250);
});
$("model").addEventListener("change", () => {
  showModel();
  translate();
});
$("clear").addEventListener("click", () => {
  $("text").value = "";
  translate();
  $("text").focus();
});
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(fullText());
  showStatus("copied");
});
$("file").addEventListener("change", (event) => translateFile(event.target.files[0]));
$("forget").addEventListener("click", () => {
  localStorage.removeItem("history");
  showHistory();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") $("others").hidden = true;
});
for (const name of ["dragover", "dragleave", "drop"])
  document.addEventListener(name, (event) => {
    event.preventDefault();
    document.body.classList.toggle("dropping", name === "dragover");
    if (name === "drop") translateFile(event.dataTransfer.files[0]);
  });

try {
  models = await (await request("/v1/models", {})).json();
} catch (problem) {
  showStatus(problem.message);
  throw problem;
}
$("model").append(...models.map((one) => element("option", { value: one.name }, one.source ? `${one.source} \u2192 ${one.target} (${one.name})` : one.name)));
showModel();
showHistory();
if ($("text").value) translate();
