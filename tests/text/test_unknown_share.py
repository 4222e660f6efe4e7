"""How much of a text a tokenizer does not know."""

import pytest

import regard
from regard.text.tokenizer import train_tokenizer
from regard.text.unknown_share import unknown_share


@pytest.mark.parametrize(("text", "share"), [("abba", 0.0), ("ab xyz", 0.6), ("xyz", 1.0), ("", 0.0), ("  ", 0.0)])
def test_unknown_characters_are_counted(text, share):
    tokenizer = train_tokenizer(["a b", "b a"], kind="char", size=20)
    assert unknown_share(tokenizer, text) == pytest.approx(share)


def test_a_character_that_is_spelled_in_bytes_counts_once():
    tokenizer = regard.load("en-de", device="cpu").tokenizers.source
    assert unknown_share(tokenizer, "book 我们") == pytest.approx(2 / 6)
