"""The page of all shipped recipes: what each is, and the results on the cards of its runs."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from regard.learn.numbers import RESULTS
from regard.learn.sources import PACKAGE, find

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


class Card(NamedTuple):
    """A card of a run: its file name, and one score per test set."""

    name: str
    results: str


def recipe_page() -> str:
    """Return the page as Markdown."""
    cards = cards_by_recipe()
    parts = [
        f"# {TITLES['en']}",
        "The recipes that `regard train NAME` knows, and our results with them. Each result links to the card of its run, "
        "which has the command, the data with hashes, the seed, the time and all scores. Recipes without a card are toys, "
        "need data that we do not have, or are in the [table of rivals](/docs/rivals.md).",
    ]
    for name, words in recipes().items():
        parts += [f"### `{name}`", words]
        rows = [f"| [{card.name}](/{RESULTS}/cards/{card.name}.md) | {card.results} |" for card in cards.get(name, [])]
        if rows:
            parts.append("\n".join(["| run | results |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def recipes() -> dict[str, str]:
    """Return the recipes by name, each with the first sentence of its file."""
    found = {}
    for path in sorted((PACKAGE / "recipes").glob("*.toml")):
        comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
        assert comment is not None
        text = " ".join(line.lstrip("# ") for line in comment[0].splitlines())
        sentence = re.split(r"(?<!al)\.\s+(?=[A-Z])|:\s+(?=regard train)", text)[0]
        found[path.stem] = sentence.rstrip(":.") + "."
    return found


def cards_by_recipe() -> dict[str, list[Card]]:
    """Return the cards of each recipe."""
    found: dict[str, list[Card]] = defaultdict(list)
    folder = find(f"{RESULTS}/cards")
    assert folder is not None
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        recipe = re.search(r'^name = "([\w-]+)"', text, flags=re.M)
        if recipe is not None:
            found[recipe[1]].append(Card(path.stem, card_results(text)))
    return found


def card_results(text: str) -> str:
    """Return the most telling score of each test set of a card."""
    scores: dict[str, dict[str, str]] = defaultdict(dict)
    for test, score, value in re.findall(r"^\| ([\w.-]+) \| [\d,]+ \|[^|]*\| (\w+) ([\d.]+) \|", text, flags=re.M):
        scores[test][score] = value
    parts = []
    for test, by_name in scores.items():
        name = next((one for one in SCORES if one in by_name), next(iter(by_name)))
        parts.append(f"{test} {NAMES.get(name, name.replace('_', ' '))} {by_name[name]}")
    return ", ".join(parts)
