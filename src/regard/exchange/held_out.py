"""The lines that a certificate is about: a test set, a file, sentences of this package, or generated ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from regard.errors import DataError
from regard.exchange.portable import Portable
from regard.tasks.corpus import load_tagged
from regard.text.bitext import data_folders, new_report, refuse_outside
from regard.text.languages import languages_of
from regard.text.lines import read_lines
from regard.text.protected_spans import PLACEHOLDERS
from regard.text.symbols import RESERVED

MOST_LINES = 200  # of which a longer text gives evenly spaced ones
GENERATED = 50
OWN_SENTENCES = Path(__file__).with_name("held_out_de_en.tsv")
OWN_LANGUAGES = ("de", "en")
Row = TypeVar("Row")


@dataclass(frozen=True)
class HeldOut:
    """Lines to translate, and the references of all of them or none."""

    origin: str  # where they come from, for the certificate
    sources: list[str]
    references: list[str]


def held_out_lines(
    model: Portable, *, data: Path | str | None, lines: Path | str | None, warn: Callable[[str], None]
) -> HeldOut:
    """Return the lines of a file, of the recipe's first test set below `data`, or of our own."""
    if lines is not None:
        return _of_file(Path(lines))
    if data is not None:
        return _of_test_set(model, data, warn)
    languages = languages_of(model.recipe.data, model.recipe.name)
    if languages is not None and set(languages) == set(OWN_LANGUAGES):
        pairs = [line.split("\t") for line in OWN_SENTENCES.read_text(encoding="utf-8").splitlines()]
        source, target = (OWN_LANGUAGES.index(one) for one in languages)
        return HeldOut("sentences of this package", [one[source] for one in pairs], [one[target] for one in pairs])
    return HeldOut("generated from the vocabulary", _generated(model), [])


def _of_file(path: Path) -> HeldOut:
    """Return the lines of a text, or of a table: source, tab, reference."""
    rows = [line.split("\t") for line in read_lines(path) if line.strip()]
    if not rows:
        raise DataError(f"{path} has no lines to translate; give a file with one sentence per line")
    tables = all(len(row) == 2 and row[0].strip() for row in rows)
    if not tables and any(len(row) > 1 for row in rows):
        raise DataError(
            f"{path} has tabs in some lines only; give a source per line, or source, tab, reference in each"
        )
    chosen = _spaced(rows)
    return HeldOut(path.name, [row[0] for row in chosen], [row[1] for row in chosen] if tables else [])


def _of_test_set(model: Portable, data: Path | str, warn: Callable[[str], None]) -> HeldOut:
    recipe = model.recipe
    if not recipe.data.test:
        raise DataError("the recipe names no test set; give --lines, a file with one sentence per line")
    name, bitext = next(iter(recipe.data.test.items()))
    folders, report = data_folders(data, None), new_report(recipe.data)
    refuse_outside(bitext, folders, recipe_of=model.name)
    pairs = _spaced([one for one in load_tagged(bitext, recipe.data, folders, report) if one.source.strip()])
    for sentence in report.sentences():
        warn(sentence)
    return HeldOut(f"test set {name}", [one.source for one in pairs], [one.target for one in pairs])


def _spaced(rows: Sequence[Row]) -> list[Row]:
    step = max(1, len(rows) // MOST_LINES)
    return list(rows[::step])[:MOST_LINES]


def _generated(model: Portable) -> list[str]:
    """Return lines of random subwords of the source vocabulary, each behind a tag if there are tags."""
    tokenizer, draw = model.tokenizers.source, random.Random(1)
    ids = range(len(RESERVED), tokenizer.size)
    plain = [
        id
        for id, symbol in zip(ids, tokenizer.tokens(ids), strict=True)
        if symbol not in (*PLACEHOLDERS, *model.tags) and not (symbol.startswith("<") and symbol.endswith(">"))
    ]
    texts = (tokenizer.decode(draw.choices(plain, k=draw.randint(2, 12))) for _ in range(4 * GENERATED))
    lines = [" ".join(text.split()) for text in texts if text.strip()][:GENERATED]
    return [f"{draw.choice(model.tags)} {line}" for line in lines] if model.tags else lines
