"""Scores before and after, their significance, and the verdict that follows."""

import itertools

import pytest

from regard.adapting.comparing import ScoreChange, SetComparison, compare_set, score_changes
from regard.adapting.verdict import judge
from regard.config import EvaluateConfig
from regard.text.pair import Pair

CONFIG = EvaluateConfig()
REFERENCES = [f"the {one} dog sees a {other} cat" for one, other in itertools.product("abcde", "vwxyz")]
WRONG = [f"the {one} dog is a {other} cow" for one, other in itertools.product("abcde", "vwxyz")]


def comparison(*changes):
    return SetComparison("test", 10, [ScoreChange(*change, signature="") for change in changes], [], [], 0)


BETTER = comparison(("BLEU", 20.0, 25.0, 0.0001), ("chrF", 40.0, 44.0, 0.001))
SLIGHTLY = comparison(("BLEU", 20.0, 20.5, 0.3), ("chrF", 40.0, 40.1, 0.6))
SAME = comparison(("BLEU", 45.0, 44.8, 0.4), ("chrF", 60.0, 59.9, 0.5))
WORSE = comparison(("BLEU", 45.0, 43.0, 0.002), ("chrF", 60.0, 59.0, 0.01))


@pytest.mark.parametrize(
    ("domain", "general", "accept_loss", "accepted", "text"),
    [
        (
            BETTER,
            SAME,
            False,
            True,
            "Accepted: better on the new text (BLEU 20.0 to 25.0, p = 0.0001); no significant loss",
        ),
        (BETTER, WORSE, False, False, "Not accepted: worse on general text (BLEU 45.0 to 43.0, p = 0.0020)"),
        (BETTER, WORSE, True, True, "Accepted with a loss: better on the new text"),
        (BETTER, None, False, True, "general text was not tested"),
        (SLIGHTLY, SAME, False, True, "no significant gain on the new text (BLEU 20.0 to 20.5, p = 0.30)"),
        (WORSE, SAME, True, False, "Not accepted: worse on the new text (BLEU 45.0 to 43.0, p = 0.0020)"),
    ],
)
def test_a_significant_loss_is_not_accepted_unless_asked_for(domain, general, accept_loss, accepted, text):
    verdict = judge(domain, general, accept_loss=accept_loss)
    assert verdict.accepted == accepted and text in verdict.text


def test_one_metric_with_a_significant_loss_is_enough():
    general = comparison(("BLEU", 45.0, 44.8, 0.4), ("chrF", 60.0, 59.0, 0.049))
    assert not judge(BETTER, general).accepted


def test_outputs_that_are_all_right_against_all_wrong_ones_are_significant():
    bleu, chrf = score_changes(REFERENCES, WRONG, REFERENCES, CONFIG)
    assert (bleu.metric, chrf.metric) == ("BLEU", "chrF")
    assert bleu.after == pytest.approx(100) and chrf.after == pytest.approx(100)
    assert bleu.change == bleu.after - bleu.before > 30
    # 2^25 exchanges are possible, of which two give so large a difference: none of 10,000 is expected to.
    assert bleu.p == pytest.approx(1 / 10_001)


def test_there_is_no_bleu_where_no_reference_has_four_words():
    assert [one.metric for one in score_changes(["21", "32"], ["21", "33"], ["21", "32"], CONFIG)] == ["chrF"]


def test_equal_outputs_do_not_differ_significantly():
    assert [(one.change, one.p) for one in score_changes(REFERENCES, WRONG, WRONG, CONFIG)] == [(0, 1), (0, 1)]


def test_one_better_sentence_of_two_happens_by_chance_half_of_the_time():
    # Exchanging the first sentence changes nothing. The difference is as large whether the second one is exchanged or not,
    # so no exchange gives a larger one: the smallest p that the test can give is of many sentences.
    references = REFERENCES[:8]
    before = [*references[:4], *WRONG[4:8]]
    after = [*WRONG[:4], *references[4:]]
    [bleu, _] = score_changes(references, before, after, CONFIG)
    assert abs(bleu.change) < 5 and bleu.p > 0.3


def test_the_signature_says_how_p_was_found():
    bleu, chrf = score_changes(REFERENCES, WRONG, REFERENCES, CONFIG)
    assert "ar:10000|seed:12345" in bleu.signature and "tok:13a" in bleu.signature and "ar:10000" in chrf.signature


def test_the_sentences_that_changed_most_are_listed_in_both_directions():
    pairs = [Pair("1", "a b c d"), Pair("2", "e f g h"), Pair("3", "i j k l"), Pair("4", "m n o p")]
    before = ["a b c d", "x", "i j k x", "m n"]
    after = ["x", "e f g h", "i j k l", "m n"]
    found = compare_set("test", pairs, before, after, CONFIG)
    assert [one.source for one in found.improved] == ["2", "3"]
    assert [one.source for one in found.worsened] == ["1"]
    assert found.improved[0].change == pytest.approx(100) and found.worsened[0].change == pytest.approx(-100)
    assert found.equal == 1 and found.num_pairs == 4
