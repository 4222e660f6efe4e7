// A bet before the result: what happens without a part of the Transformer? Then curves, scores and outputs of `regard ablate`.
import { chart, short } from "./chart.js";
import { colourOf, element } from "./elements.js";
import { FIGURES } from "./registry.js";
import { redrawn, say } from "./words.js";

const LONGEST = 60; // characters of an output
const SIDES = ["with_it", "without_it"];

FIGURES.bet = (host) => {
  const result = JSON.parse(host.querySelector("script").textContent);
  const bets = host.dataset.bets.split("|").map((text) => text.trim());
  let chosen = null;
  const draw = () => {
    const shown = host.querySelector(".bet"), made = chosen === null ? question(bets, choose) : outcome(host.dataset, result, bets, chosen);
    if (shown) shown.replaceWith(made);
    else host.append(made);
    return made;
  };
  const choose = (at) => {
    chosen = at;
    draw().querySelector(".verdict").focus();
  };
  draw();
  redrawn(draw);
  host.dataset.ready = 1;
};

function question(bets, choose) {
  const buttons = bets.map((text, at) => element("button", { type: "button", onclick: () => choose(at) }, text));
  return element("div", { class: "bet", role: "group", "aria-label": say("Your bet") }, element("p", {}, say("Your bet? The result is shown when you have chosen.")), element("div", { class: "bets" }, ...buttons));
}

function outcome({ answer, lesson }, result, bets, chosen) {
  const right = Number(answer) - 1;
  const won = chosen === right ? say("You were right: {bet}.", { bet: bets[right] }) : say("You said: {bet}. It was: {answer}.", { bet: bets[chosen], answer: bets[right] });
  return element("div", { class: "bet" }, element("p", { class: "verdict", tabindex: -1 }, element("strong", {}, won)), element("p", {}, lesson), curves(result), scores(result), outputs(result.seeds[0]));
}

/** The training loss and the dev score, of the first seed. */
function curves(result) {
  const [first] = result.seeds, { metric } = result;
  const lines = (points) => SIDES.map((side, at) => ({ name: say(first[side].name), colour: colourOf(at), points: points(first[side]) }));
  const made = [chart(say("Training loss, nats per token"), lines((side) => side.losses), say)];
  if (metric !== "loss") made.push(chart(say("Right on the dev set, %"), lines((side) => side.dev.map(([step, found]) => [step, found[metric]])), say));
  const keys = SIDES.map((side, at) => element("span", {}, element("span", { class: "dot", style: `background: ${colourOf(at)}` }), say(first[side].name)));
  return element("div", {}, element("p", { class: "keys" }, ...keys), element("div", { class: "charts" }, ...made.filter(Boolean)));
}

/** Dev loss and score at the end, for every seed. */
function scores({ seeds, metric }) {
  const names = [...new Set(["loss", metric])];
  const heads = names.flatMap((name) => SIDES.map((side) => say("{score}: {model}", { score: name === "loss" ? say("dev loss") : say("right, %"), model: say(seeds[0][side].name) })));
  const rows = seeds.map((one) => [one.seed, ...names.flatMap((name) => SIDES.map((side) => short(one[side].scores[name]) || "–"))]);
  const row = (cells, name) => element("tr", {}, ...cells.map((cell, at) => element(name === "th" || !at ? "th" : "td", { scope: name === "th" ? "col" : at ? undefined : "row" }, String(cell))));
  const table = element("table", {}, element("thead", {}, row([say("seed"), ...heads], "th")), element("tbody", {}, ...rows.map((cells) => row(cells, "td"))));
  return element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": say("Scores") }, table);
}

/** What both models write for a line of the dev set. */
function outputs(first) {
  const [line] = first.with_it.examples;
  if (!line) return element("div");
  const other = first.without_it.examples.find((one) => one.source === line.source);
  const rows = [[say("input"), line.source], [say("expected"), line.reference], [say(first.with_it.name), line.output], [say(first.without_it.name), other?.output ?? ""]];
  return element("dl", { class: "outputs" }, ...rows.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, cut(text) || say("(empty)"))]));
}

/** A model that never ends writes until it is stopped. */
function cut(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text;
}
