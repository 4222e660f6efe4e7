"""Words that a vocabulary does not have get ids behind it, and are decoded letter for letter."""

from regard.text.tokenizer import UNK, train_tokenizer
from regard.text.unknown_words import extend

WORDS = train_tokenizer(["a b", "b a"], kind="word", size=10)  # ids 3 and 4, so that V is 5


def test_unknown_words_are_numbered_behind_the_vocabulary():
    ids, vocabulary = extend(WORDS, "a Zoë b 42 Zoë")
    assert ids == [3, 5, 4, 6, 5] and vocabulary.words == ("Zoë", "42")
    assert vocabulary.encode("42 b Zoë c") == [6, 4, 5, UNK]
    assert vocabulary.decode([6, 4, 5]) == "42 b Zoë" and vocabulary.tokens([5, 3]) == ["Zoë", "a"]


def test_a_cut_source_has_only_the_words_that_are_left():
    ids, vocabulary = extend(WORDS, "Zoë a 42", most=2)
    assert ids == [5, 3] and vocabulary.encode("42") == [UNK]


def test_subwords_spell_every_word_and_are_not_extended():
    tokenizer = train_tokenizer(["abc abc bca"] * 20, kind="bpe", size=12)
    ids, vocabulary = extend(tokenizer, "abc!")
    assert ids == tokenizer.encode("abc!") and vocabulary.words == ()
    assert vocabulary.decode(tokenizer.encode("abc bca")) == "abc bca"
