"""Recall and F1 of words by their frequency in the training text, in cases that a reader can redo."""

import pytest

import regard
from regard.comparing.word_frequency import count_words, scores_by_frequency
from regard.config import EvaluateConfig
from regard.errors import DataError


@pytest.fixture
def training(tmp_path):
    """`often` occurs 10 times, `some` twice, `Once` once."""
    (tmp_path / "train.txt").write_text("often often often often often\n" * 2 + "some some Once\n")
    return tmp_path / "train.txt"


def test_words_are_grouped_by_their_occurrences(training):
    words = count_words(training, EvaluateConfig())
    found = scores_by_frequency([["often some never"], ["often often x"]], ["often some Once never"], words)
    assert found.training == "train.txt"
    assert [(one.least, one.most, one.num_words) for one in found.groups] == [(0, 0, 1), (1, 9, 2), (10, 99, 1)]
    never, rare, often = found.groups
    assert never.recall == [100, 0]
    # The first system has `some` of `some` and `Once`: recall 1/2, precision 1/1.
    assert rare.recall == [50, 0]
    assert rare.f1 == pytest.approx([200 / 3, 0])
    # The second `often` of the second system is one too many: recall 1/1, precision 1/2.
    assert often.recall == [100, 100]
    assert often.f1 == pytest.approx([100, 200 / 3])


def test_a_word_is_right_only_in_its_own_sentence(training):
    words = count_words(training, EvaluateConfig())
    [group] = scores_by_frequency([["often", "some"]], ["some", "often"], words).groups[:1]
    assert group.recall == [0]


def test_words_are_those_of_bleu(training):
    assert count_words(training, EvaluateConfig()).split("Once, often.") == ["Once", ",", "often", "."]
    lower = count_words(training, EvaluateConfig(lowercase=True))
    assert lower.split("Once") == ["once"] and lower.counts["once"] == 1


def test_tables_have_the_numbers(training, tmp_path):
    for name, text in {"a": "often some never", "b": "often often x", "ref": "often some Once never"}.items():
        (tmp_path / name).write_text(f"{text}\n" * 3)
    paths = (tmp_path / "a", tmp_path / "b")
    found = regard.compare(*paths, reference=tmp_path / "ref", training=training, resamples=40, trials=5)
    lines = [line.split() for line in found.as_text().splitlines()]
    assert ["1", "to", "9", "6", "a", "50.0", "66.7"] in lines
    assert ["10", "to", "99", "3", "b", "100.0", "66.7"] in lines
    assert "times in train.txt" in found.as_page() and ">66.7</td>" in found.as_page()


def test_an_empty_text_is_refused(tmp_path):
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="is empty"):
        count_words(tmp_path / "empty", EvaluateConfig())
