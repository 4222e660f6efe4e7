"""The utilities of minimum-Bayes-risk decoding are the sentence scores of sacreBLEU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu import sentence_bleu, sentence_chrf

from regard.decoding import utility
from regard.decoding.utility import UTILITIES, expected_utilities, shared_ngrams

THEIRS = {"chrf": sentence_chrf, "bleu": sentence_bleu}
TEXTS = [
    "Der Hund, der schläft, schläft.",
    "Der Hund schläft.",
    "der hund schläft .",
    "Der  Hund schläft. ",
    "1,000 Hunde!",
    "aaaaaaa",
    "aaa",
    "a b a b a b",
    "a b",
    "x",
    "",
    " ",
    "中文句子。",
    "\ud83d half of a pair",
]


def theirs(metric, texts):
    return np.array([[THEIRS[metric](one, [other]).score for other in texts] for one in texts])


@pytest.mark.parametrize("metric", UTILITIES)
def test_scores_are_those_of_sacrebleu(metric):
    np.testing.assert_allclose(UTILITIES[metric](TEXTS), theirs(metric, TEXTS), atol=1e-6)


@pytest.mark.parametrize("metric", UTILITIES)
@settings(max_examples=25)
@given(texts=st.lists(st.text("ab c.é", max_size=12), min_size=1, max_size=5))
def test_expected_utilities_are_means_over_all_candidates(metric, texts):
    expected = theirs(metric, texts).mean(axis=1)
    found = expected_utilities(texts, metric)
    assert found == pytest.approx(expected.tolist(), abs=1e-6)
    # To the bit, so that ties are broken alike in any order.
    assert expected_utilities(texts[::-1], metric)[::-1] == found


def test_a_candidate_that_occurs_more_often_counts_more_often():
    once, twice = expected_utilities(["ab", "xy"], "chrf"), expected_utilities(["ab", "xy", "xy"], "chrf")
    assert once == [50, 50]
    assert twice == pytest.approx([100 / 3, 200 / 3, 200 / 3])


def test_shared_ngrams_count_as_often_as_both_have_them(monkeypatch):
    sequences = [np.array(one) for one in ([1, 1, 1, 2], [1, 1, 3], [2, 1, 1, 1], [])]
    for most in (utility.MOST_ENTRIES, 4):  # also one column at a time
        monkeypatch.setattr(utility, "MOST_ENTRIES", most)
        matches, counts = shared_ngrams(sequences, 2)
        assert counts.tolist() == [[4, 3, 4, 0], [3, 2, 3, 0]]
        assert matches[0].tolist() == [[4, 2, 4, 0], [2, 3, 2, 0], [4, 2, 4, 0], [0, 0, 0, 0]]
        assert matches[1].tolist() == [[3, 1, 2, 0], [1, 2, 1, 0], [2, 1, 3, 0], [0, 0, 0, 0]]
