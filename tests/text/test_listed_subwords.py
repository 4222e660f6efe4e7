"""Tokenizers of imported models: a SentencePiece file splits, and a list of symbols numbers."""

import pytest

from regard.errors import CheckpointError, ConfigError
from regard.storage.folder import Folder
from regard.text.listed_subwords import ListedSubwords
from regard.text.subwords import train_subwords
from regard.text.symbols import EOS, UNK
from regard.text.tokenizer_pair import Tokenizers, load_tokenizers

ENGLISH = ["the cat sat", "the cat ran", "a cat sat here"] * 5
GERMAN = ["die Katze saß", "die Katze lief", "eine Katze saß hier"] * 5


@pytest.fixture(scope="module")
def files():
    return [train_subwords(texts, kind="bpe", size=40, coverage=1.0) for texts in (ENGLISH, GERMAN)]


@pytest.fixture(scope="module")
def pair(files):
    """Two files over one vocabulary: the subwords of both, and a language tag."""
    symbols = dict.fromkeys(one for file in files for one in file.tokens(range(EOS + 1, file.size)))
    symbols[">>deu<<"] = None
    return Tokenizers(*(ListedSubwords(file.model, list(symbols)) for file in files))


def test_both_sides_have_the_same_ids_and_their_own_splits(pair, files):
    assert pair.source.size == pair.target.size and not pair.joint
    for side, file, text in zip((pair.source, pair.target), files, ("the cat sat", "die Katze saß"), strict=True):
        assert side.tokenize(text) == file.tokenize(text)
        assert side.decode(side.encode(text)) == text
    ids = pair.source.encode("the cat")
    assert pair.target.tokens(ids) == pair.source.tokenize("the cat")


def test_a_subword_of_the_other_language_is_decoded_with_its_space(pair):
    assert pair.target.decode(pair.source.encode("the cat") + pair.target.encode("saß")) == "the cat saß"


def test_a_tag_is_one_symbol_in_front_of_a_text_if_the_vocabulary_has_it(pair):
    (tag,) = pair.source.encode_all([">>deu<<"])[0][:1]
    assert pair.source.tokens([tag]) == [">>deu<<"]
    assert pair.source.encode(">>deu<< the cat") == [tag, *pair.source.encode("the cat")]
    assert pair.source.encode_all([">>deu<< the cat"]) == [pair.source.encode(">>deu<< the cat")]
    assert tag not in pair.source.encode(">>fra<< the cat") + pair.source.encode("the >>deu<< cat")


def test_a_subword_that_is_not_listed_is_unknown(files):
    few = ListedSubwords(files[0].model, ["\u2581the"])
    assert few.encode("the cat") == [3, *[UNK] * (len(few.tokenize("the cat")) - 1)]
    assert few.size == 4


def test_saved_files_are_read_again(pair, tmp_path):
    folder = Folder(tmp_path).make()
    pair.save(folder)
    found = load_tokenizers(folder)
    assert found.source.symbols == pair.source.symbols and found.target.model == pair.target.model
    (tmp_path / "target.json").write_text('["a", "a"]')
    with pytest.raises(CheckpointError, match=r"target.json has a symbol twice"):
        load_tokenizers(folder)


def test_its_texts_are_split_in_one_way(pair):
    with pytest.raises(ConfigError, match="splits a text in one way only"):
        pair.source.resampled(ENGLISH, 0.1)
