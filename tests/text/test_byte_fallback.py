"""Characters outside of the vocabulary as bytes (`tokenizer.byte_fallback`)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import TokenizerConfig
from regard.errors import ConfigError
from regard.recipe_files import load_recipe
from regard.storage.folder import Folder
from regard.text.tokenizer import UNK, train_tokenizer
from regard.text.tokenizer_pair import fit_tokenizers, load_tokenizers, train_tokenizers
from regard.toml import flat_table, from_table, to_table

TEXTS = [" ".join(words) for words in itertools.permutations(["the", "quick", "brown", "fox", "jumps"])]
SUBWORDS = ("bpe", "unigram")
# An emoji, an emoji of five characters, Cuneiform, Gothic, Thai, a mathematical letter, a private character.
STRANGE = ["the fox 😀", "👨\u200d👩\u200d👧 fox", "\U00012000 quick", "𐌰𐌱", "ไทย", "𝔸", "\ue123"]


TRAINED = {kind: train_tokenizer(TEXTS, kind=kind, size=400, byte_fallback=True) for kind in SUBWORDS}


@pytest.mark.parametrize("kind", SUBWORDS)
@pytest.mark.parametrize("text", STRANGE)
def test_text_that_the_vocabulary_does_not_have_is_decoded_from_its_ids(kind, text):
    ids = TRAINED[kind].encode(text)
    assert UNK not in ids
    assert TRAINED[kind].decode(ids) == text
    assert len(TRAINED[kind].tokenize(text)) == len(ids)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_an_unknown_character_has_one_id_per_byte(kind):
    before, after = TRAINED[kind].tokenize("fox"), TRAINED[kind].tokenize("fox😀")
    assert after == [*before, "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]


@pytest.mark.parametrize("kind", SUBWORDS)
@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_any_ids_are_decoded_to_one_line(kind, numbers):
    tokenizer = TRAINED[kind]
    text = tokenizer.decode([number % tokenizer.size for number in numbers])
    assert not set(text) & {"\0", "\n", "\r"}
    assert text == text.encode().decode()


@pytest.mark.parametrize("kind", SUBWORDS)
def test_bytes_that_form_no_character_are_marked(kind):
    tokens = {token: id for id, token in enumerate(TRAINED[kind].tokens(range(TRAINED[kind].size)))}
    assert TRAINED[kind].decode([tokens["<0xF0>"], tokens["<0x9F>"]]) == "\ufffd\ufffd"
    assert TRAINED[kind].decode([tokens["<0x66>"], tokens["<0x0A>"], tokens["<0x6F>"]]) == "fo"


@pytest.mark.parametrize("kind", SUBWORDS)
def test_sampling_spells_the_same_bytes_as_sentencepiece(kind):
    tokenizer = TRAINED[kind]
    # A unigram model with this exponent draws the best split always; BPE drops no merge.
    columns = tokenizer.resampled(STRANGE, 1e-9 if kind == "bpe" else 1e6).draw(1)
    ids = [columns[0][start:end].tolist() for start, end in itertools.pairwise(columns[1])]
    assert ids == tokenizer.encode_all(STRANGE)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_the_text_of_a_byte_token_is_ordinary_text(kind):
    ids = TRAINED[kind].encode("<0x41>")
    assert TRAINED[kind].decode(ids) == "<0x41>"
    drawn, _ = TRAINED[kind].resampled(["<0x41>"], 0.5).draw(1)
    assert TRAINED[kind].decode(drawn.tolist()) == "<0x41>"


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_vocabulary_of_2048_or_more_has_bytes_unless_the_recipe_says_otherwise(kind):
    def knows_bytes(size, byte_fallback=None):
        tokenizer = train_tokenizer(TEXTS, kind=kind, size=size, byte_fallback=byte_fallback)
        return UNK not in tokenizer.encode("😀")

    assert [knows_bytes(size) for size in (2047, 2048)] == [False, True]
    assert not knows_bytes(2048, byte_fallback=False)
    assert knows_bytes(300, byte_fallback=True)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_characters_that_leave_no_room_for_bytes_are_kept_instead_of_them(kind):
    # 1,900 characters, the symbol for a space, and three reserved ids: 2,048 has room for them, but not for 256 bytes.
    texts = ["".join(map(chr, range(start, start + 100))) for start in range(0x4E00, 0x4E00 + 1900, 100)]
    assert UNK in train_tokenizer(texts, kind=kind, size=2048).encode("😀")
    with pytest.raises(ConfigError, match="is 2048, but 256 bytes and the characters of the text need 2160"):
        train_tokenizer(texts, kind=kind, size=2048, byte_fallback=True)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_vocabulary_without_room_for_bytes_is_refused(kind):
    # 256 bytes, 19 letters, the symbol for a space, and three reserved ids.
    message = (
        r"tokenizer.size is 200, but 256 bytes and the characters of the text need 279; use at least that, or a "
        "lower tokenizer.coverage, or tokenizer.byte_fallback=false"
    )
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(TEXTS, kind=kind, size=200, byte_fallback=True)


@pytest.mark.parametrize("kind", ["char", "word"])
def test_characters_and_words_have_no_bytes(kind):
    with pytest.raises(
        ConfigError, match=rf"is for subwords \(bpe, unigram\), not for tokenizer.kind={kind}; leave it"
    ):
        train_tokenizer(TEXTS, kind=kind, size=5000, byte_fallback=True)
    assert UNK in train_tokenizer(TEXTS, kind=kind, size=5000).encode("😀")


def test_one_side_of_a_recipe_can_have_bytes():
    table = {"kind": "bpe", "size": 400, "joint": False, "source": {"byte_fallback": True}, "target": {"kind": "word"}}
    tokenizers = fit_tokenizers([(text, text) for text in TEXTS], from_table(TokenizerConfig, table, where="tokenizer"))
    assert UNK not in tokenizers.source.encode("😀")
    assert UNK in tokenizers.target.encode("😀")


def test_saved_tokenizers_keep_what_they_have(tmp_path):
    for name, given_bytes in (("with", True), ("without", False)):
        pairs = [(text, text) for text in TEXTS]
        made = train_tokenizers(pairs, kind="bpe", size=400, joint=True, byte_fallback=given_bytes)
        folder = Folder(tmp_path / name)
        folder.make()
        made.save(folder)
        loaded = load_tokenizers(folder)
        assert loaded.source.encode("fox 😀") == made.source.encode("fox 😀")
        assert (UNK in loaded.source.encode("😀")) is not given_bytes


def test_a_recipe_that_does_not_state_it_is_written_without_the_key():
    # Recipes of earlier versions have no such key, and stay equal to what they are read as.
    assert "tokenizer.byte_fallback" not in flat_table(to_table(load_recipe("multi30k-en-de")))
    stated = load_recipe("multi30k-en-de", ["tokenizer.byte_fallback=false"])
    assert flat_table(to_table(stated))["tokenizer.byte_fallback"] is False
