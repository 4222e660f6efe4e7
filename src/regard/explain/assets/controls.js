// The controls of a view of attention: kind, layer, heads, units, and the kind of picture.
import { colourOf, element } from "./elements.js";

const capitalized = (name) => name.slice(0, 1).toUpperCase() + name.slice(1);

/** Returns the controls of a view that shows one of `layers`. */
export function attentionControls(view, layers) {
  const { name, layer, heads, words, view: picture, hidden } = view.choice;
  const names = [...new Set(view.trace.attentions.map((one) => one.name))];
  const slider = element("input", { type: "range", min: 1, max: layers.length, value: layer, "data-control": "layer", id: "layer", oninput: (event) => view.choose({ layer: Number(event.target.value) }) });
  return [
    ...(names.length > 1 ? [radio("Attention", "name", names.map((one) => [one, capitalized(one)]), name, (one) => view.choose({ name: one }))] : []),
    ...(layers.length > 1 ? [element("label", { class: "slider", for: "layer" }, `Layer ${layer} of ${layers.length}`, slider)] : []),
    element("div", { class: "heads" }, element("span", { "aria-hidden": "true" }, "Heads"), chips(view, layers)),
    radio("Between", "unit", [["words", "words"], ["tokens", "tokens"]], words ? "words" : "tokens", (one) => view.choose({ words: one === "words" })),
    checks("Hide", [["special", "</s>"], ["punctuation", "punctuation"]], hidden, (chosen) => view.choose({ hidden: chosen })),
    radio("As", "view", [["lines", "lines"], ["heatmap", "heatmap"], ["both", "side by side"], ["overview", "all heads"]], picture, (one) => view.choose({ view: one })),
    ...silenceButton(view, heads),
  ];
}

function chips(view, layers) {
  const { layer, heads } = view.choice, { self_attention, shape } = layers[layer - 1];
  const group = element("div", { class: "chips", role: "group", "aria-label": "Heads" });
  const chip = (head, text, colour) =>
    element("button", { type: "button", class: "chip", "data-control": `head-${head}`, "aria-pressed": String(heads.has(head)), style: colour ? `--chip: ${colour}` : "", onclick: () => view.toggle(head) }, text);
  group.append(chip("mean", "mean"));
  if (self_attention && layers.length > 1) group.append(chip("rollout", "rollout"));
  if (shape[0] > 1) for (let head = 0; head < shape[0]; head++) group.append(chip(head, String(head + 1), colourOf(head)));
  return group;
}

function radio(label, name, options, value, change) {
  const group = element("fieldset", {}, element("legend", {}, label));
  for (const [key, text] of options)
    group.append(element("label", {}, element("input", { type: "radio", name, value: key, "data-control": `${name}-${key}`, checked: key === value, onchange: () => change(key) }), text));
  return group;
}

function checks(label, options, chosen, change) {
  const group = element("fieldset", {}, element("legend", {}, label));
  for (const [key, text] of options) {
    const changed = (event) => change(new Set(event.target.checked ? [...chosen, key] : [...chosen].filter((one) => one !== key)));
    group.append(element("label", {}, element("input", { type: "checkbox", "data-control": `hide-${key}`, checked: chosen.has(key), onchange: changed }), text));
  }
  return group;
}

/** Returns a button that silences the one head that is shown, where the page can do that. */
function silenceButton({ silence, choice }, heads) {
  const [head] = heads;
  if (!silence || heads.size !== 1 || typeof head !== "number") return [];
  const part = [choice.name, choice.layer, head], silent = silence.has(...part);
  const text = `${silent ? "Use" : "Silence"} head ${head + 1} of layer ${choice.layer}`;
  return [element("button", { type: "button", class: "silence", "data-control": "silence", onclick: () => silence.toggle(...part) }, text)];
}
