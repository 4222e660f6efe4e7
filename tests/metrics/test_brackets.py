"""Labelled brackets as EVALB counts them."""

from collections import Counter

import numpy as np
import pytest

from regard.config import EvaluateConfig
from regard.metrics import TREES, brackets, score_all
from regard.metrics.brackets import bracket_counts, counted_brackets, f1_interval
from regard.text.trees import repair


def test_roots_functions_and_punctuation_do_not_count():
    words = ["Yes", ",", "John", "left", "."]
    line = "(TOP (S (INTJ XX )INTJ XX (NP-SBJ XX )NP-SBJ (VP XX )VP (X XX )X )S )TOP"
    found = counted_brackets(repair(line.split(), 5), words)
    # Without the comma and the full stop: Yes is 0, John is 1, left is 2.
    assert found == Counter({("S", 0, 3): 1, ("INTJ", 0, 1): 1, ("NP", 1, 2): 1, ("VP", 2, 3): 1})


def test_prt_equals_advp_and_a_doubled_bracket_needs_two_matches():
    inputs = ["give up"]
    reference, output = ["(VP XX (PRT XX )PRT )VP"], ["(VP (VP XX (ADVP XX )ADVP )VP )VP"]
    # Three brackets in the output, two in the reference; VP once and ADVP match.
    assert bracket_counts(output, reference, inputs).tolist() == [[3, 2, 2]]


def test_f1_of_a_tree_worked_by_hand():
    """The prepositional phrase is attached to the noun in the output, and to the verb in the reference."""
    inputs = ["I saw a man with glasses ."]
    reference = ["(S (NP XX )NP (VP XX (NP XX XX )NP (PP XX (NP XX )NP )PP )VP XX )S"]
    output = ["(S (NP XX )NP (VP XX (NP (NP XX XX )NP (PP XX (NP XX )NP )PP )NP )VP XX )S"]
    counts = bracket_counts(output, reference, inputs)
    # S, NP (I), VP, NP (a man), PP, NP (glasses) are right, NP (a man with glasses) is not.
    assert counts.tolist() == [[7, 6, 6]]
    f1, low, high = f1_interval(counts)
    assert f1 == low == high == pytest.approx(100 * 2 * 6 / (7 + 6))


def test_the_interval_covers_sentences_that_differ():
    inputs = ["a b", "c d"] * 50
    lines = ["(S (NP XX )NP XX )S"] * 100
    outputs = ["(S (NP XX )NP XX )S", "(S XX (VP XX )VP )S"] * 50
    f1, low, high = f1_interval(bracket_counts(outputs, lines, inputs))
    # Half of the outputs have two of two brackets right, the others one of two.
    assert f1 == pytest.approx(75) and 65 < low < 75 < high < 85


def test_resamples_are_drawn_in_blocks_and_do_not_depend_on_their_size(monkeypatch):
    counts = np.array([[2, 2, 1], [3, 4, 2], [1, 1, 1]] * 20)
    at_once = f1_interval(counts)
    monkeypatch.setattr(brackets, "BLOCK", 7 * len(counts))
    assert f1_interval(counts) == at_once


def test_trees_are_parsed_once_for_all_metrics(monkeypatch):
    parsed = []
    monkeypatch.setattr(brackets, "repair", lambda *given: parsed.append(given) or repair(*given))
    line = "(S (NP XX )NP (VP XX (NP XX )NP )VP )S"
    scores = score_all([line], [line], ["cats like fish"], EvaluateConfig(), compares=TREES)
    assert {score.name: score.value for score in scores}["bracket_recall"] == 100
    assert len(parsed) == 2  # the output and the reference
