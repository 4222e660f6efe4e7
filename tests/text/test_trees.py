"""Linearized trees, and their repair."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.trees import is_well_formed, linearize, repair, without_words

TOKENS = st.lists(st.sampled_from(["(S", ")S", "(NP", ")NP", "(VP", ")VP", "XX", "⁇", "(", ")"]), max_size=30)


def repaired(line, num_words):
    return linearize(repair(line.split(), num_words))


@pytest.mark.parametrize(
    ("written", "num_words", "expected"),
    [
        ("(S (NP XX )NP (VP XX )VP )S", 2, "(S (NP XX )NP (VP XX )VP )S"),
        ("(S (NP XX )NP (VP XX", 2, "(S (NP XX )NP (VP XX )VP )S"),  # never closed
        ("(S (NP XX )VP XX )NP )S", 2, "(S (NP XX XX )NP )S"),  # closes what is not open
        ("(S (NP (VP XX )NP XX )S", 2, "(S (NP (VP XX )VP )NP XX )S"),  # closes an outer one
        ("(S (NP XX )NP )S", 3, "(S (NP XX )NP XX XX )S"),  # too few words
        ("(S XX XX (NP XX )NP )S", 2, "(S XX XX )S"),  # too many words
        ("(S (NP )NP XX )S", 1, "(S XX )S"),  # an empty constituent
        ("(NP XX )NP (VP XX )VP", 2, "(TOP (NP XX )NP (VP XX )VP )TOP"),  # no root
        ("", 2, "(TOP XX XX )TOP"),
        ("(S XX )S", 0, ""),
    ],
)
def test_repair_closes_restores_and_drops(written, num_words, expected):
    assert repaired(written, num_words) == expected


@given(TOKENS, st.integers(0, 8))
def test_a_repaired_output_is_a_tree_over_every_word_in_order(tokens, num_words):
    words = [f"w{number}" for number in range(num_words)]
    line = linearize(repair(tokens, num_words), words)
    stack, roots, found = [], 0, []
    for token in line.split():
        if token.startswith("("):
            roots += not stack
            stack.append(token[1:])
        elif token.startswith(")"):
            assert stack.pop() == token[1:]
        else:
            assert stack, "a word outside of the root"
            found.append(token)
    assert not stack and found == words and roots == min(num_words, 1)


@given(TOKENS, st.integers(0, 8))
def test_repairing_twice_changes_nothing(tokens, num_words):
    once = repaired(" ".join(tokens), num_words)
    assert repaired(once, num_words) == once and is_well_formed(once, num_words)


def test_words_take_the_places_of_placeholders_and_cannot_be_taken_for_brackets():
    tree = repair(["(S", "(NP", "XX", ")NP", "XX", ")S"], 2)
    assert linearize(tree, ["John", "(sic)"]) == "(S (NP John )NP -LRB-sic-RRB- )S"
    assert without_words("(S (NP John )NP sleeps )S") == "(S (NP XX )NP XX )S"


def test_a_line_with_a_missing_word_is_not_well_formed():
    assert is_well_formed("(S XX )S", 1) and not is_well_formed("(S XX )S", 2) and not is_well_formed("(S XX", 1)


def test_a_word_alone_is_a_tree_with_an_added_root():
    assert is_well_formed("XX", 1) and without_words("Yes") == repaired("XX", 1) == "(TOP XX )TOP"
    assert not is_well_formed("XX XX", 2)


def test_a_very_deep_tree_needs_no_recursion():
    deep = " ".join(["(S"] * 20_000 + ["XX"] + [")S"] * 20_000)
    assert is_well_formed(deep, 1)
