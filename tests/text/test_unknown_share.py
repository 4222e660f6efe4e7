"""How much of a text a tokenizer does not know."""

import pytest

import regard
from regard.decoding.requests import Request
from regard.text.tokenizer import train_tokenizer
from regard.text.unknown_share import UnknownText, unknown_share


@pytest.mark.parametrize(("text", "share"), [("abba", 0.0), ("ab xyz", 0.6), ("xyz", 1.0), ("", 0.0), ("  ", 0.0)])
def test_unknown_characters_are_counted(text, share):
    tokenizer = train_tokenizer(["a b", "b a"], kind="char", size=20)
    assert unknown_share(tokenizer, text) == pytest.approx(share)


def test_a_character_that_is_spelled_in_bytes_counts_once():
    tokenizer = regard.load("en-de", device="cpu").tokenizers.source
    assert unknown_share(tokenizer, "book 我们") == pytest.approx(2 / 6)


def sentence_about(tokenizer, *lines):
    unknown = UnknownText(tokenizer)
    for number, line in enumerate(lines, start=1):
        unknown.read(line, number)
    return unknown.sentence()


def test_unknown_characters_of_many_lines_are_one_sentence():
    tokenizer = train_tokenizer(["abc de", "fgh"], kind="char", size=100)
    unknown = UnknownText(tokenizer)
    for number, line in enumerate(["abc", "aXb", "", "😀 fX", "h"], start=1):
        unknown.read(line, number)
    assert unknown.sentence() == (
        "2 lines have characters that the model does not know (X 😀), the first is line 2; their translations may be wrong"
    )
    single = UnknownText(tokenizer)
    single.read("aXb", 7)
    assert single.sentence() == (
        "line 7 has a character that the model does not know (X); its translation may be wrong"
    )
    known = UnknownText(tokenizer)
    known.read("fed cab", 1)
    assert known.sentence() == ""


def test_unknown_words_are_named_where_words_are_tokens():
    tokenizer = train_tokenizer(["forty two", "thousand"], kind="word", size=100)
    assert sentence_about(tokenizer, "two thousand", "forty-twoo thousand") == (
        "line 2 has a word that the model does not know (forty-twoo); its translation may be wrong"
    )
    many = sentence_about(tokenizer, "two", " ".join(map(str, range(12))), "x" * 99)
    assert many.startswith("2 lines have words that the model does not know (0 1 10 11 2 3 4 5 6 7 and 3 more)")
    assert f"({'x' * 30})" in sentence_about(tokenizer, "x" * 99)
    assert sentence_about(tokenizer, "two", "", "  thousand ") == ""


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_characters_that_are_read_as_bytes_are_named_where_most_letters_of_a_line_are(kind):
    tokenizer = train_tokenizer(["abcd efgh"] * 9, kind=kind, size=300, byte_fallback=True)
    assert sentence_about(tokenizer, "abc", "я d", "яж d").startswith(
        "line 3 has characters that the model does not know (ж я)"
    )
    assert sentence_about(tokenizer, "我").startswith("line 1 has a character")
    # Half of the letters, and characters that are no letters.
    assert sentence_about(tokenizer, "ab яж", "😀 !? 12", "a 😀😀😀", "") == ""


def test_protected_spans_are_not_looked_at():
    translator = regard.load("en-de", device="cpu")
    for text in ("😀", "https://example.org/привет", "See `привет мир` now", "⟦1⟧ 21.5 €"):
        assert sentence_about(translator.tokenizers.source, translator.unprotected(Request(text))) == ""
    kept = Request("привет book", keep=["привет"])
    assert translator.unprotected(kept).split() == ["book"]
    assert translator.unprotected(Request("😀"), protect=False) == "😀"
    assert sentence_about(translator.tokenizers.source, translator.unprotected(Request("привет 😀")))
