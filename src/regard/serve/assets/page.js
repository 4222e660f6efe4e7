// The web page: translation while typing, alternatives of a word, and attention.
import { Advice } from "./advice.js";
import { element } from "./elements.js";
import { translateFile } from "./files.js";
import { forgetHistory, remember, showHistory } from "./history.js";
import { request } from "./requests.js";
import { TracePanel } from "./trace_panel.js";
import { TranslatedText } from "./translated_text.js";
import { translateText } from "./translating.js";

const DELAY = 250; // milliseconds from the last key to a translation

const $ = (id) => document.getElementById(id);
let models = [];
let running = null; // AbortController of the current request
let timer = 0;

const current = () => models.find((one) => one.name === $("model").value);
const translation = new TranslatedText($("output"), (number, place) => traced.show(number, { place }));
const traced = new TracePanel(translation, { model: current, status: showStatus });
const advice = new Advice($("advice"), (model) => {
  $("model").value = model.name;
  showModel();
  translate();
  $("text").focus();
});

function showStatus(text) {
  $("state").textContent = text;
}

async function translate() {
  running?.abort();
  const text = $("text").value, model = current();
  traced.hide();
  if (!text.trim()) {
    advice.clear();
    translation.show([], [""]);
    $("copy").disabled = true;
    return showStatus("");
  }
  const { signal } = (running = new AbortController());
  translation.begin();
  try {
    const progress = (share) => showStatus(`translating: ${Math.round(100 * share)} %`);
    const found = await translateText(text, model, { signal, partial: (some) => translation.partial(some), progress });
    translation.show(found.sentences, found.separators);
    $("copy").disabled = false;
    showStatus("");
    remember({ source: text, target: found.text, model: model.name }, restore);
    await advice.show(text, found.sentences, model, models, signal);
  } catch (problem) {
    if (problem.name !== "AbortError") showStatus(problem.message);
  }
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
  timer = setTimeout(translate, DELAY);
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
  await navigator.clipboard.writeText(translation.text);
  showStatus("copied");
});
$("file").addEventListener("change", (event) => translateFile(event.target.files[0], current(), showStatus));
$("forget").addEventListener("click", () => forgetHistory(restore));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") traced.close();
});
for (const name of ["dragover", "dragleave", "drop"])
  document.addEventListener(name, (event) => {
    event.preventDefault();
    document.body.classList.toggle("dropping", name === "dragover");
    if (name === "drop") translateFile(event.dataTransfer.files[0], current(), showStatus);
  });

try {
  models = await (await request("/v1/models", {})).json();
} catch (problem) {
  showStatus(problem.message);
  throw problem;
}
$("model").append(...models.map((one) => element("option", { value: one.name }, one.source ? `${one.source} \u2192 ${one.target} (${one.name})` : one.name)));
showModel();
showHistory(restore);
if ($("text").value) translate();
