"""`regard align`: links between words."""

import json

import pytest
from typer.testing import CliRunner

from regard.aligning import WORD, align, grow
from regard.cli import app

NOUNS = {"dog": "hund", "cat": "katze", "house": "haus", "tree": "baum", "child": "kind", "boat": "boot"}
COLOURS = {"red": "rot", "blue": "blau", "green": "grün", "old": "alt"}
# The colour changes places with the noun.
PAIRS = [
    (f"The {colour} {noun} , here", f"Der {theirs} {name} , hier")
    for noun, theirs in NOUNS.items()
    for colour, name in COLOURS.items()
]
EXPECTED = [(0, 0), (1, 2), (2, 1), (3, 3), (4, 4)]


@pytest.mark.parametrize("method", ["grow-diag-final-and", "intersection", "source-to-target"])
def test_exchanged_words_are_linked(method):
    found = align(PAIRS, method=method)
    assert sum(one.links == EXPECTED for one in found) >= 0.9 * len(PAIRS)
    assert found[0].source == ["The", "red", "dog", ",", "here"]


def test_methods_by_hand():
    first, second = frozenset({(0, 0), (1, 1), (3, 2)}), frozenset({(0, 0), (1, 1), (2, 2), (1, 2), (5, 5)})
    # Both have 0-0 and 1-1. 1-2 is next to 1-1, and target 2 has no link yet; then 2-2 has a source without one.
    # 3-2 is next to 2-2, and source 3 has none. 5-5 is next to nothing, but both its words are free.
    assert grow(first, second) == {(0, 0), (1, 1), (1, 2), (2, 2), (3, 2), (5, 5)}
    assert grow(frozenset(), frozenset()) == frozenset()


def test_words():
    assert WORD.findall("Don't go, 3.5 km") == ["Don't", "go", ",", "3", ".", "5", "km"]
    assert WORD.findall("我爱 attention。") == ["我", "爱", "attention", "。"]


def test_the_command_prints_links_and_words(tmp_path):
    file, source, target = tmp_path / "my.tsv", tmp_path / "my.en", tmp_path / "my.de"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    source.write_text("".join(f"{a}\n" for a, _ in PAIRS), encoding="utf-8")
    target.write_text("".join(f"{b}\n" for _, b in PAIRS), encoding="utf-8")
    plain = CliRunner().invoke(app, ["align", str(file)])
    assert plain.exit_code == 0, plain.output
    assert plain.stdout.splitlines().count("0-0 1-2 2-1 3-3 4-4") >= 0.9 * len(PAIRS)
    both = CliRunner().invoke(app, ["align", str(source), "--reference", str(target), "--json"])
    lines = [json.loads(line) for line in both.stdout.splitlines()]
    assert [" ".join(f"{s}-{t}" for s, t in one["links"]) for one in lines] == plain.stdout.splitlines()
    assert lines[0]["target"] == ["Der", "hund", "rot", ",", "hier"]


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "name a file of pairs"), (["--run", "x", "--json"], "--run takes files of pairs alone")],
)
def test_mistakes(words, message):
    done = CliRunner().invoke(app, ["align", *words])
    assert done.exit_code == 2 and message in " ".join(done.output.replace("│", " ").split())
