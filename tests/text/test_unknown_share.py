"""How much of a text a tokenizer does not know."""

import pytest

import regard
from regard.text.tokenizer import train_tokenizer
from regard.text.unknown_share import UnknownCharacters, unknown_share


@pytest.mark.parametrize(("text", "share"), [("abba", 0.0), ("ab xyz", 0.6), ("xyz", 1.0), ("", 0.0), ("  ", 0.0)])
def test_unknown_characters_are_counted(text, share):
    tokenizer = train_tokenizer(["a b", "b a"], kind="char", size=20)
    assert unknown_share(tokenizer, text) == pytest.approx(share)


def test_a_character_that_is_spelled_in_bytes_counts_once():
    tokenizer = regard.load("en-de", device="cpu").tokenizers.source
    assert unknown_share(tokenizer, "book 我们") == pytest.approx(2 / 6)


def test_unknown_characters_of_many_lines_are_one_sentence():
    tokenizer = train_tokenizer(["abc de", "fgh"], kind="char", size=100)
    unknown = UnknownCharacters(tokenizer)
    for number, line in enumerate(["abc", "aXb", "", "😀 fX", "h"], start=1):
        unknown.read(line, number)
    assert unknown.sentence() == (
        "2 lines have characters that the model does not know (X 😀), the first is line 2; their translations may be wrong"
    )
    single = UnknownCharacters(tokenizer)
    single.read("aXb", 7)
    assert single.sentence() == (
        "line 7 has a character that the model does not know (X); its translation may be wrong"
    )
    known = UnknownCharacters(tokenizer)
    known.read("fed cab", 1)
    assert known.sentence() == ""
