"""Scores by length, verdicts and changed sentences, in cases that a reader can redo."""

import pytest

from regard.comparing.outputs import MetricComparison, compare_outputs, length_ranges
from regard.comparing.result import verdicts
from regard.config import EvaluateConfig
from regard.metrics.corpus_metrics import bleu_metric, chrf_metric, ter_metric
from regard.metrics.significance import PairedResult, Sampling

REFERENCES = ["a b c d", "e f g h", "i j k l", "m n o p"]
SAMPLING = Sampling(resamples=40, trials=20)


def compared(outputs, references, *, sources=None, most_sentences=5):
    config = EvaluateConfig()
    metrics = [bleu_metric(references, config), chrf_metric(references, config), ter_metric(references)]
    return compare_outputs(
        "test", outputs, references, metrics, sources=sources, sampling=SAMPLING, most_sentences=most_sentences
    )


def test_the_sentences_that_differ_most_are_listed_in_both_directions():
    one = ["a b c d", "x", "i j k x", "m n"]
    other = ["x", "e f g h", "i j k l", "m n"]
    found = compared({"one": one, "other": other}, [REFERENCES], sources=["1", "2", "3", "4"])
    changes = found.changes["other"]
    assert [(row.line, row.source) for row in changes.improved] == [(2, "2"), (3, "3")]
    assert [(row.line, row.before, row.after) for row in changes.worsened] == [(1, "a b c d", "x")]
    assert changes.improved[0].change == pytest.approx(100) and changes.worsened[0].change == pytest.approx(-100)
    assert changes.equal == 1
    few = compared({"one": one, "other": other}, [REFERENCES], most_sentences=1).changes["other"]
    assert [row.line for row in few.improved] == [2] and few.improved[0].source is None


def test_a_sentence_counts_as_right_if_it_equals_one_of_several_references():
    others = ["q r s t", "e f g h", "u v w x", "m n o p"]
    found = compared({"one": REFERENCES, "other": others}, [REFERENCES, others])
    assert found.num_references == 2
    for metric in found.metrics:
        best = 100 if metric.higher_is_better else 0
        assert [one.score for one in metric.systems] == pytest.approx([best, best])
    assert compared({"one": REFERENCES, "other": others}, [REFERENCES]).metrics[0].systems[1].score < 60
    assert found.changes["other"].improved == found.changes["other"].worsened == []


def test_every_system_is_compared_with_the_first():
    found = compared({"one": REFERENCES, "two": ["x"] * 4, "three": REFERENCES}, [REFERENCES])
    bleu = found.metrics[0]
    assert [one.system for one in bleu.systems] == ["one", "two", "three"] and bleu.systems[0].paired is None
    assert [one.paired.change for one in bleu.systems[1:]] == pytest.approx([-100, 0])
    assert list(found.changes) == ["two", "three"] and found.changes["three"].equal == 4


@pytest.mark.parametrize(
    ("lengths", "ranges"),
    [
        ([3], [(3, 3)]),
        ([5] * 100, [(5, 5)]),
        (range(1, 51), [(1, 10), (11, 20), (21, 30), (31, 40), (41, 50)]),
        ([*range(1, 11), *range(31, 41)], [(1, 10), (31, 40)]),
        ([1] * 15 + [2] * 5, [(1, 1), (2, 2)]),
    ],
)
def test_groups_of_lengths_hold_about_equally_many_sentences(lengths, ranges):
    assert length_ranges(list(lengths)) == ranges


def test_each_group_has_the_scores_of_its_sentences():
    short, long = ["a b c d"] * 10, ["a b c d e f g h"] * 10
    wrong = ["x x x x x x x x"] * 10
    found = compared({"one": [*short, *wrong], "two": [*short, *long]}, [[*short, *long]]).by_length
    assert (found.side, found.unit) == ("reference", "words")
    assert [(one.shortest, one.longest, one.num_sentences) for one in found.groups] == [(4, 4, 10), (8, 8, 10)]
    assert found.groups[0].scores["BLEU"] == pytest.approx([100, 100])
    assert found.groups[1].scores["BLEU"] == pytest.approx([0, 100])
    # All eight words of each sentence must be replaced.
    assert found.groups[1].scores["TER"] == [100, 0]


def test_sources_count_if_there_are_any_and_characters_in_text_without_spaces():
    found = compared(
        {"one": REFERENCES, "two": REFERENCES}, [REFERENCES], sources=["eins zwei", "drei", "vier", "fünf"]
    )
    assert (found.by_length.side, found.by_length.unit) == ("source", "words")
    assert (found.by_length.groups[0].shortest, found.by_length.groups[0].longest) == (1, 2)
    japanese = ["これは長い文であり、単語の間に空白がありません。"] * 4
    found = compared({"one": REFERENCES, "two": REFERENCES}, [REFERENCES], sources=japanese).by_length
    assert found.unit == "characters" and found.groups[0].longest == len(japanese[0])


@pytest.mark.parametrize(
    ("change", "p", "higher", "verdict"),
    [
        (2.0, (0.01, 0.02), True, "better"),
        (-2.0, (0.01, 0.02), True, "worse"),
        (-2.0, (0.01, 0.02), False, "better"),
        (2.0, (0.01, 0.02), False, "worse"),
        (2.0, (0.01, 0.06), True, "unclear"),
        (2.0, (0.05, 0.05), True, "same"),
    ],
)
def test_a_difference_is_significant_if_both_tests_find_it(change, p, higher, verdict):
    metric = MetricComparison("some", higher, 2, "", [])
    assert metric.verdict(PairedResult(change, 0, 0, *p)) == verdict


def test_a_sentence_says_by_which_metrics_a_system_differs():
    references = [f"{a} {b} c d e" for a in "abcde" for b in "vwxyz"]
    found = compared({"bad": ["x y z"] * 25, "good": references}, [references])
    assert verdicts(found, "good") == "good is significantly better by BLEU, chrF and TER."
    found = compared({"good": references, "bad": ["x y z"] * 25, "same": references}, [references])
    assert verdicts(found, "bad") == "bad is significantly worse by BLEU, chrF and TER."
    assert verdicts(found, "same") == "same is not significantly different by BLEU, chrF and TER."
