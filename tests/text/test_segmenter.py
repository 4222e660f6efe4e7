"""Texts are split into sentences, and joined again without a change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.segmenter import segment


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
        ("\u201c\u597d\u3002\u201d\u4ed6\u8bf4\u3002", ["\u201c\u597d\u3002\u201d", "\u4ed6\u8bf4\u3002"]),
        ("  indented  ", ["indented"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_a_text_is_split_at_the_ends_of_sentences(text, sentences):
    assert segment(text).sentences == sentences


@given(st.text(alphabet="ab.!?\n \u3002\u597d\u201d\u300d\"')\t", max_size=60))
def test_a_split_text_is_joined_without_a_change(text):
    found = segment(text)
    assert found.join(found.sentences) == text
    assert all(sentence.strip() for sentence in found.sentences)


def test_other_sentences_keep_the_original_spaces():
    found = segment("  One. Two!\n\nThree?\n")
    assert found.join(["1", "2", "3"]) == "  1 2\n\n3\n"


@pytest.mark.parametrize(
    ("sentences", "joined"),
    [
        (["Hello.", "Goodbye!"], "Hello. Goodbye!\n"),  # a space, which the Chinese text does not have
        (["\u4f60\u597d\u3002", "\u8d70\u4e86\uff01"], "\u4f60\u597d\u3002\u8d70\u4e86\uff01\n"),
        (["", "Goodbye!"], "Goodbye!\n"),
    ],
)
def test_translations_of_chinese_sentences_are_separated_as_their_script_needs(sentences, joined):
    found = segment("\u4f60\u597d\u3002\u518d\u89c1\uff01\n")
    assert found.join(sentences) == joined
    assert found.begin(sentences[:1]) == sentences[0] and found.begin(sentences) == joined.rstrip("\n")


def test_translations_are_separated_after_a_chinese_quotation_too():
    found = segment("\u201c\u597d\u3002\u201d\u4ed6\u8bf4\u3002")
    assert found.join(["\u201cGood.\u201d", "He said."]) == "\u201cGood.\u201d He said."


def test_parts_of_a_long_word_are_not_separated():
    found = segment("x" * 10, fits=lambda sentence: len(sentence) <= 5)
    assert found.join(["yy", "zz"]) == "yyzz"


def test_a_sentence_that_is_too_long_is_split_between_words():
    found = segment("a b c d e f g", fits=lambda sentence: len(sentence) <= 5)
    assert all(len(sentence) <= 5 for sentence in found.sentences)
    assert " ".join(found.sentences) == "a b c d e f g" == found.join(found.sentences)


@given(st.text(alphabet="ab \t", max_size=60))
def test_spaces_inside_a_split_sentence_are_kept(text):
    found = segment(text, fits=lambda sentence: len(sentence) <= 5)
    assert found.join(found.sentences) == text
    assert all(len(sentence) <= 5 for sentence in found.sentences)


def test_a_very_long_word_is_split():
    found = segment("x" * 100, fits=lambda sentence: len(sentence) <= 5)
    assert "".join(found.sentences) == "x" * 100 and max(map(len, found.sentences)) <= 5


@pytest.mark.parametrize("text", ["a. " * 30_000, "a" + " " * 90_000 + "b", "\n" * 90_000, '."' * 40_000])
def test_splitting_takes_linear_time(text):
    found = segment(text)
    assert found.join(found.sentences) == text  # quadratic time would be noticed
