"""Characters and tags of words, and words of text as it is written."""

import numpy as np
import pytest

from regard.errors import CheckpointError, DataError
from regard.storage.folder import Folder
from regard.text.words import WORDS_FILE, WordFeatures, fit_words, hidden_words, load_words, split_words


def test_a_long_word_keeps_its_first_and_last_characters():
    words = WordFeatures(tuple("abcdef"))
    assert words.spell(["ab", "abcdef", "a?"], 4).tolist() == [[3, 4, 0, 0], [3, 4, 7, 8], [3, 1, 0, 0]]
    assert words.spell([], 4).shape == (0, 4) and words.spell(["a"], 4).dtype == np.int16


def test_tags_follow_their_words():
    words = fit_words(["a|b|X c|Y", "c|X"], spelled=True, tagged=True)
    assert words.tags == ("X", "Y") and set(words.characters) == {"a", "b", "c", "|"}
    assert words.read("a|b|Y c|X") == (["a|b", "c"], [1, 0])
    with pytest.raises(DataError, match=r"reads words with tags, as in the\|X, and 'a' has none that it knows"):
        words.read("a|Z")
    with pytest.raises(DataError, match="'c' has none"):
        words.read("c")


def test_features_are_loaded_as_they_were_saved_and_damage_is_reported(tmp_path):
    folder, words = Folder(tmp_path), WordFeatures(("a", "b"), ("X",))
    assert load_words(folder) == WordFeatures()
    words.save(folder)
    assert load_words(folder) == words
    for damaged in ({"characters": ["ab"], "tags": []}, {"characters": ["a", "a"], "tags": []}, {"tags": ["X Y"]}, []):
        folder.save_json(WORDS_FILE, damaged)
        with pytest.raises(CheckpointError, match=r"words\.json is damaged"):
            load_words(folder)


def test_text_is_split_as_in_the_penn_treebank():
    assert split_words('"Don\'t go," he said.') == ['"', "Do", "n't", "go", ",", '"', "he", "said", "."]
    assert split_words("Tom's (old) car costs $1.8 here. See Mr. Smith!") == (
        ["Tom", "'s", "(", "old", ")", "car", "costs", "$1.8", "here", ".", "See", "Mr.", "Smith", "!"]
    )
    tokenized = "Mr. Smith did n't sell U.S. stocks , he said : `` No '' ( 1.8 % ) ."
    assert split_words(tokenized) == tokenized.split()


def test_masks_are_hidden_or_else_every_seventh_word():
    assert hidden_words(["the", "[MASK]", "is", "[MASK]"]) == [1, 3]
    assert hidden_words(["a"]) == [0] and hidden_words([]) == []
    assert hidden_words(["a"] * 10) == [4] and hidden_words(["a"] * 16) == [0, 7, 14]
