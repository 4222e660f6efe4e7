"""Texts are cut where sentences end, and come together as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.serve.sentences import cut


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Where? There. Good!", ["Where?", "There.", "Good!"]),
        ("One.\n\nTwo", ["One.", "Two"]),
        ("a line\nanother", ["a line", "another"]),
        ("Dr. Smith came at 5. He left.", ["Dr. Smith came at 5. He left."]),
        ("He said \u201cno.\u201d Then he left.", ["He said \u201cno.\u201d", "Then he left."]),
        ("Das ist z.B. gut. Ja.", ["Das ist z.B. gut.", "Ja."]),
        ("\u4f60\u597d\u3002\u518d\u89c1\uff01", ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"]),
        ("  indented  ", ["indented"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences(text, sentences):
    assert cut(text).sentences == sentences


@given(st.text(alphabet="ab.!?\n \u3002\"')\t", max_size=60))
def test_what_is_cut_comes_together_as_it_was(text):
    found = cut(text)
    assert found.joined(found.sentences) == text
    assert all(sentence.strip() for sentence in found.sentences)


def test_other_sentences_stand_in_the_old_places():
    found = cut("  One. Two!\n\nThree?\n")
    assert found.joined(["1", "2", "3"]) == "  1 2\n\n3\n"


def test_what_is_too_long_for_the_model_is_cut_between_words():
    found = cut("a b c d e f g", fits=lambda sentence: len(sentence) <= 5)
    assert all(len(sentence) <= 5 for sentence in found.sentences)
    assert " ".join(found.sentences) == "a b c d e f g" == found.joined(found.sentences)


@given(st.text(alphabet="ab \t", max_size=60))
def test_spaces_inside_of_what_is_cut_stay(text):
    found = cut(text, fits=lambda sentence: len(sentence) <= 5)
    assert found.joined(found.sentences) == text
    assert all(len(sentence) <= 5 for sentence in found.sentences)


def test_a_word_without_end_is_cut_too():
    found = cut("x" * 100, fits=lambda sentence: len(sentence) <= 5)
    assert "".join(found.sentences) == "x" * 100 and max(map(len, found.sentences)) <= 5


@pytest.mark.parametrize("text", ["a. " * 30_000, "a" + " " * 90_000 + "b", "\n" * 90_000, '."' * 40_000])
def test_no_text_takes_long_to_cut(text):
    found = cut(text)
    assert found.joined(found.sentences) == text  # in seconds, not minutes: the suite would not end
