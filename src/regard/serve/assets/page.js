// The page: type and see the translation; choose a word for its alternatives; see what the model looked at.
import { AttentionView, element, percent, shown } from "./attention.js";

const $ = (id) => document.getElementById(id);
const KEEP = 50; // translations in the history
const [CHUNK, CHUNK_LETTERS] = [50, 20_000]; // most lines and letters of a file sent at a time
let models = [];
let running = null; // what is being translated now
let timer = 0;
let sentences = []; // of the translation shown: {source, text}
let joints = []; // what stands before, between and after them

/** Sends a request, with the key if there is one; asks for a key where the server wants one. */
async function request(path, options) {
  const key = sessionStorage.getItem("key");
  const headers = { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) {
    const given = prompt("This server wants an API key:");
    if (given) {
      sessionStorage.setItem("key", given.trim());
      return request(path, options);
    }
  }
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `the server says ${answer.status}`);
  return answer;
}

const post = (path, body, signal) => request(path, { method: "POST", body: JSON.stringify(body), signal });

function say(text) {
  $("state").textContent = text;
}

const current = () => models.find((one) => one.name === $("model").value);

async function translate() {
  running?.abort();
  const text = $("text").value;
  hideSight();
  if (!text.trim()) {
    show([], [""]);
    return say("");
  }
  const mine = (running = new AbortController());
  $("output").classList.add("old");
  try {
    if (!current().at_once) await stream(text, mine.signal);
    const answer = await (await post("/v1/translate", { text, model: current().name }, mine.signal)).json();
    const whole = answer.translations[0];
    show(whole.sentences, between(whole.text, whole.sentences.map((one) => one.text)));
    say("");
    remember(text, whole.text);
  } catch (problem) {
    if (problem.name !== "AbortError") say(problem.message);
  }
}

/** Shows a first translation as it is written. */
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

/** What stands before, between and after the parts of a text. */
function between(text, parts) {
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
  [sentences, joints] = [parts, spaces];
  const output = $("output");
  output.classList.remove("old");
  output.replaceChildren(spaces[0] ?? "");
  parts.forEach((part, number) => {
    output.append(
      element("button", { type: "button", class: "part", "aria-label": `${part.text}. Show alternatives and attention`, onclick: () => lookAt(number, []) }, part.text),
      spaces[number + 1],
    );
  });
  $("copy").disabled = !parts.length;
}

const whole = () => joints[0] + sentences.map((one, number) => one.text + joints[number + 1]).join("");

/** Asks how a sentence was translated, or would be if it began with these tokens. */
async function lookAt(number, prefix) {
  say("looking ...");
  const asked = sentences[number];
  try {
    const trace = await (await post("/v1/look", { text: asked.source, model: current().name, prefix })).json();
    if (sentences[number] !== asked) return; // the text is another by now
    sentences[number] = { ...sentences[number], text: trace.target.text };
    show(sentences, joints);
    showTokens(number, trace);
    $("looked").hidden = false;
    $("which").textContent = sentences[number].source;
    $("attention").replaceChildren();
    if (trace.attentions.length) new AttentionView($("attention"), trace);
    else $("attention").append(element("p", { class: "note" }, "This model has no attention."));
    say("");
  } catch (problem) {
    say(problem.message);
  }
}

/** The words of one sentence as buttons, the less sure ones redder. */
function showTokens(number, trace) {
  const old = $("output").querySelectorAll(".part")[number];
  const line = element("span", { class: "tokens" });
  trace.target.tokens.slice(0, -1).forEach((piece, at) => {
    const text = piece.replaceAll("\u2581", " ");
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
  const panel = $("others"), found = (trace.alternatives[at] ?? []).filter((one) => one.id > 2); // words, not the end
  panel.hidden = !found.length;
  panel.replaceChildren(
    element("p", { class: "note" }, `Instead of “${shown(trace.target.tokens[at])}” (${percent(trace.probabilities[at])}):`),
    element("ul", {}, ...found.map((one) =>
      element("li", {}, element("button", { type: "button", onclick: () => { panel.hidden = true; lookAt(number, [...trace.target.ids.slice(0, at), one.id]); } },
        element("span", { class: "p" }, percent(one.probability)), element("strong", {}, shown(one.piece)), element("span", { class: "text" }, one.text))),
    )),
  );
}

function hideSight() {
  $("others").hidden = true;
  $("looked").hidden = true;
}

// A file, line by line

/** Asks again, a few times, where the server is busy. */
async function patiently(path, body, attempts = 5) {
  try {
    return await post(path, body);
  } catch (problem) {
    if (attempts <= 1) throw problem;
    await new Promise((done) => setTimeout(done, 2000));
    return patiently(path, body, attempts - 1);
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
      const some = lines.slice(out.length, out.length + CHUNK);
      while (some.length > 1 && some.join("").length > CHUNK_LETTERS) some.pop();
      const answer = await (await patiently("/v1/translate", { text: some, model: current().name })).json();
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
    say(problem.message);
  }
}

// The history stays in this browser

const past = () => JSON.parse(localStorage.getItem("history") ?? "[]");

function remember(source, target) {
  const kept = [{ source, target, model: current().name }, ...past().filter((one) => !source.startsWith(one.source))].slice(0, KEEP);
  localStorage.setItem("history", JSON.stringify(kept));
  showPast();
}

function showPast() {
  const found = past();
  $("past").hidden = !found.length;
  $("history").replaceChildren(
    ...found.map((one) =>
      element("li", {}, element("button", { type: "button", onclick: () => again(one) }, element("span", {}, one.source), element("span", {}, one.target))),
    ),
  );
}

function again(one) {
  if (models.some((model) => model.name === one.model)) $("model").value = one.model;
  about();
  $("text").value = one.source;
  translate();
}

function about() {
  const model = current();
  $("about").textContent = `${model.kind}, ${(model.parameters / 1e6).toFixed(1)} million parameters`;
  $("text").lang = model.source ?? "";
  $("output").lang = model.target ?? "";
}

$("text").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(translate, 250);
});
$("model").addEventListener("change", () => {
  about();
  translate();
});
$("clear").addEventListener("click", () => {
  $("text").value = "";
  translate();
  $("text").focus();
});
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(whole());
  say("copied");
});
$("file").addEventListener("change", (event) => translateFile(event.target.files[0]));
$("forget").addEventListener("click", () => {
  localStorage.removeItem("history");
  showPast();
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
  say(problem.message);
  throw problem;
}
$("model").append(...models.map((one) => element("option", { value: one.name }, one.source ? `${one.source} \u2192 ${one.target} (${one.name})` : one.name)));
about();
showPast();
if ($("text").value) translate();
