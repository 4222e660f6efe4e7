"""The page of all shipped recipes: what each is, and the results on the cards of its runs."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from typing import NamedTuple

from regard.learn.numbers import RESULTS
from regard.learn.sources import PACKAGE, PAGES, find
from regard.run.finding import pretrained_models
from regard.run.folder import CARD_PAGE

# Of the scores of a test set, the first of these that is there.
SCORES = (
    *(
        "bleu",
        "rouge1",
        "span_f1",
        "bracket_f1",
        "hull_accuracy",
        "tour_length",
        "triangulation_accuracy",
        "bit_errors",
    ),
    *("masked_accuracy", "perplexity", "accuracy", "exact"),
)
TITLES = {"en": "All recipes, with results", "zh": "全部配方及结果"}
NAMES = {"bleu": "BLEU", "rouge1": "ROUGE-1", "span_f1": "span F1", "bracket_f1": "bracket F1"}
CHINESE_NAMES = {
    "accuracy": "准确率",
    "bit errors": "错误位数",
    "bracket F1": "括号 F1",
    "exact": "完全正确",
    "hull accuracy": "凸包准确率",
    "masked accuracy": "掩码处准确率",
    "perplexity": "困惑度",
    "span F1": "片段 F1",
    "tour length": "路线长度",
    "triangulation accuracy": "三角剖分准确率",
}
INTRODUCTIONS = {
    "en": "The recipes that `regard train NAME` knows, and our results with them. Each result links to the card of its run, "
    "which has the command, the data with hashes, the seed, the time and all scores. Recipes without a card are toys, "
    "need data that we do not have, or are in the [table of rivals](/docs/rivals.md).",
    "zh": "`regard train NAME` 认识的配方，以及我们用它们得到的结果。每个结果都链接到那次训练的模型卡片，"
    "上面有命令、数据及其哈希值、随机种子、用时和全部分数。没有卡片的配方，有的只是玩具任务，有的需要我们没有的数据，有的在[模型比较的表](/docs/rivals.md)里。",
}
HEADINGS = {"en": ("run", "results"), "zh": ("训练", "结果")}


class Card(NamedTuple):
    """A card of a run: its name and file, and one score per test set: the test set, the score, its value."""

    name: str
    path: str  # in the repository
    results: list[tuple[str, str, str]]

    def text(self, lang: str) -> str:
        names = CHINESE_NAMES if lang == "zh" else {}
        between = "，" if lang == "zh" else ", "
        return between.join(f"{test} {names.get(score, score)} {value}" for test, score, value in self.results)


def recipe_page(lang: str = "en") -> str:
    """Return the page as Markdown, in English or Chinese, with the same blocks."""
    cards = cards_by_recipe()
    parts = [f"# {TITLES[lang]}", INTRODUCTIONS[lang]]
    for name, words in recipes(lang).items():
        parts += [f"### `{name}`", words]
        rows = [f"| [{card.name}](/{card.path}) | {card.text(lang)} |" for card in cards.get(name, [])]
        if rows:
            parts.append("\n".join([f"| {' | '.join(HEADINGS[lang])} |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def recipes(lang: str = "en") -> dict[str, str]:
    """Return the recipes by name, each with the first sentence of its file, in English or Chinese."""
    chinese = tomllib.loads((PAGES / "zh" / "recipes.toml").read_text(encoding="utf-8")) if lang == "zh" else {}
    found = {}
    for path in sorted((PACKAGE / "recipes").glob("*.toml")):
        comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
        assert comment is not None
        text = " ".join(line.lstrip("# ") for line in comment[0].splitlines())
        sentence = re.split(r"(?<!al)\.\s+(?=[A-Z])|:\s+(?=regard train)", text)[0]
        found[path.stem] = chinese.get(path.stem, sentence.rstrip(":.") + ".")
    return found


def cards_by_recipe() -> dict[str, list[Card]]:
    """Return the cards of each recipe: those of our runs, and those of the pretrained models."""
    found: dict[str, list[Card]] = defaultdict(list)
    folder = find(f"{RESULTS}/cards")
    assert folder is not None
    files = {path.stem: (path, f"{RESULTS}/cards/{path.name}") for path in sorted(folder.glob("*.md"))}
    files |= {
        name: (path / CARD_PAGE, f"src/regard/shipped/{name}/{CARD_PAGE}") for name, path in pretrained_models().items()
    }
    for name, (path, address) in files.items():
        text = path.read_text(encoding="utf-8")
        recipe = re.search(r'^name = "([\w-]+)"', text, flags=re.M)
        if recipe is not None:
            found[recipe[1]].append(Card(name, address, card_results(text)))
    return found


def card_results(text: str) -> list[tuple[str, str, str]]:
    """Return the most telling score of each test set of a card: the test set, the score, its value."""
    scores: dict[str, dict[str, str]] = defaultdict(dict)
    for test, score, value in re.findall(r"^\| ([\w.-]+) \| [\d,]+ \|[^|]*\| (\w+) ([\d.]+) \|", text, flags=re.M):
        scores[test][score] = value
    found = []
    for test, by_name in scores.items():
        name = next((one for one in SCORES if one in by_name), next(iter(by_name)))
        found.append((test, NAMES.get(name, name.replace("_", " ")), by_name[name]))
    return found
