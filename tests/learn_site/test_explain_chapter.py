"""What the chapter on explanation says about the heads of en-de is true of the committed numbers."""

import re
from statistics import mean

import pytest

from regard.learn.numbers import definitions, result
from regard.learn.sources import PAGES, read

LANGUAGES = ("en", "zh")


@pytest.fixture(scope="module")
def probed():
    return result("heads-en-de.json")


def values(probed, measure, attention=None, layer=None):
    """A measure by kind of attention, layer and head."""
    return {
        (one["attention"], one["layer"], one["head"]): one[measure]
        for one in probed["heads"]
        if attention in (None, one["attention"]) and layer in (None, one["layer"]) and one[measure] is not None
    }


def head_of(number):
    """The head that a number of the chapter is read from."""
    place = definitions()[number]["at"][1]
    return place["attention"], place["layer"], place["head"]


def test_the_heads_of_the_chapter_are_the_extremes(probed):
    entropy, distance, removal = (values(probed, measure) for measure in ("entropy", "distance", "removal"))
    first = values(probed, "entropy", "encoder", 1) | values(probed, "entropy", "decoder", 1)
    assert max(first, key=first.get) == head_of("heads-entropy-first")
    assert max(entropy, key=entropy.get) == head_of("heads-entropy-widest")
    assert min(entropy, key=entropy.get) == head_of("heads-entropy-sharpest")
    assert max(distance, key=distance.get) == head_of("heads-distance-farthest")
    assert max(removal, key=removal.get) == head_of("heads-removal-important")
    nearest, farthest = values(probed, "distance", "encoder", 1), values(probed, "distance", "encoder", 6)
    assert max(nearest, key=nearest.get) == head_of("heads-distance-first")
    assert min(farthest, key=farthest.get) == head_of("heads-distance-last")


def test_the_guide_has_the_mean_distances_of_the_first_and_last_layer(probed):
    first, last = (mean(values(probed, "distance", "encoder", layer).values()) for layer in (1, 6))
    text = " ".join(read("docs/look.md").split())
    assert f"rises from {first:.1f} positions in layer 1 to {last:.1f} in layer 6" in text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_table_of_pruning_has_the_scores_of_the_curves(probed, lang):
    text = (PAGES / lang / "explain.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([\d.]+)(?: BLEU)? \| ([\d.]+) \| ([\d.]+) \|$", text, flags=re.M)
    assert len(rows) == 5
    for removed, *scores in rows:
        points = [one for curve in probed["curves"].values() for one in curve if one["removed"] == int(removed)]
        assert scores == [f"{one['bleu']:.1f}" for one in points]
