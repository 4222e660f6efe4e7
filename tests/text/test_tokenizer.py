"""Properties of all tokenizers, then of each kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import CheckpointError, ConfigError, DataError
from regard.storage.folder import Folder
from regard.text import resampling
from regard.text.symbols import train_symbols
from regard.text.tokenizer import BOS, EOS, TOKENIZERS, UNK, Tokenizer, train_tokenizer
from regard.text.tokenizer_pair import Tokenizers, load_tokenizers, train_tokenizers

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
ZAHLEN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
PAIRS = [
    (
        f"{NUMBERS[n % 10]} small dogs see {NUMBERS[n * 7 // 10 % 10]} cats",
        f"{ZAHLEN[n % 10]} kleine Hunde sehen Größe 年",
    )
    for n in range(200)
]
TEXTS = [text for pair in PAIRS for text in pair]
KINDS = TOKENIZERS.names()
SUBWORD_KINDS = ("bpe", "unigram")
SYMBOL_KINDS = ("char", "word")
SPACED_KINDS = (*SUBWORD_KINDS, "sentencepiece")  # kinds whose subwords contain spaces


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizers]:
    return {kind: train_tokenizers(PAIRS, kind=kind, size=200, joint=True) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["one 😀 dogs", "😀😀 one", "cat\u2581s", "  two   dogs ", "☃x☃ 年年", "a\tb", "", " "]
)
def test_a_text_is_split_into_what_was_written_with_one_token_per_id(kind, text, trained):
    tokenizer = trained[kind].source
    written, ids = tokenizer.tokenize(text), tokenizer.encode(text)
    assert len(written) == len(ids)
    assert [token for token, id in zip(written, ids, strict=True) if id != UNK] == [
        token for token in tokenizer.tokens(ids) if token != "⁇"
    ]
    assert "⁇" not in written
    assert joined(kind, written).split() == text.replace("\u2581", " " if kind in SPACED_KINDS else "\u2581").split()


def joined(kind: str, tokens: list[str]) -> str:
    """Return the text of tokens."""
    if kind in SPACED_KINDS:
        return "".join(tokens).replace("\u2581", " ").strip()
    return {"char": "", "word": " "}[kind].join(tokens)


def splits_of(tokenizer: Tokenizer, *, seed: int, rate: float = 0.3) -> list[list[int]]:
    return drawn(tokenizer, TEXTS, seed=seed, rate=rate)


def drawn(tokenizer: Tokenizer, texts: list[str], *, seed: int, rate: float) -> list[list[int]]:
    ids, starts = tokenizer.resampled(texts, rate).draw(seed)
    return [ids[start:end].tolist() for start, end in pairwise(starts)]


# All kinds


@pytest.mark.parametrize("kind", KINDS)
def test_training_text_is_decoded_from_its_ids(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_all(TEXTS)] == TEXTS


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_below_the_size_and_three_are_reserved(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    assert (UNK, BOS, EOS) == (0, 1, 2)
    assert tokenizer.tokens([UNK, BOS, EOS]) == ["⁇", "<s>", "</s>"]
    used = {id for ids in tokenizer.encode_all(TEXTS) for id in ids}
    assert min(used) > EOS
    assert max(used) < tokenizer.size <= 200


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_encodes_to_bos_or_eos(kind: str, trained: dict[str, Tokenizers]) -> None:
    assert not {BOS, EOS} & set(trained[kind].source.encode("<s> one </s> <unk> ⁇"))


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_skips_bos_and_eos_and_marks_the_unknown(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    assert tokenizer.decode([BOS, *tokenizer.encode("two cats"), EOS]) == "two cats"
    assert tokenizer.decode(tokenizer.encode("two Ω")) == "two ⁇"
    assert tokenizer.decode([]) == tokenizer.decode([BOS, EOS]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_join_to_the_text(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    ids = tokenizer.encode("sieben kleine Hunde")
    assert len(tokenizer.tokens(ids)) == len(ids)
    assert joined(kind, tokenizer.tokens(ids)) == "sieben kleine Hunde"


@pytest.mark.parametrize("kind", KINDS)
def test_many_texts_are_encoded_like_single_ones(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    many = [*TEXTS, "", *TEXTS, "Ω", *TEXTS]
    assert len(many) > 1_000
    assert tokenizer.encode_all(many) == [tokenizer.encode(text) for text in many]
    assert tokenizer.encode_all([]) == []
    assert tokenizer.encode("") == []


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_loaded_tokenizers_equal_the_saved_ones(kind: str, joint: bool, tmp_path: Path) -> None:
    saved = train_tokenizers(PAIRS, kind=kind, size=200, joint=joint)
    saved.save(Folder(tmp_path / "run" / "tokenizer").make())
    loaded = load_tokenizers(Folder(tmp_path / "run" / "tokenizer"))
    assert loaded.joint == saved.joint == joint
    for before, after in ((saved.source, loaded.source), (saved.target, loaded.target)):
        assert (after.kind, after.size) == (kind, before.size)
        assert after.encode_all([*TEXTS, "Ω"]) == before.encode_all([*TEXTS, "Ω"])
        assert after.tokens(range(after.size)) == before.tokens(range(before.size))


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_writes_the_same_bytes(kind: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        train_tokenizers(PAIRS, kind=kind, size=60, joint=False).save(Folder(tmp_path / name).make())
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("first", "second")
    )
    assert first == second
    assert len(first) == (5 if kind == "sentencepiece" else 3)  # a list of symbols per side


@pytest.mark.parametrize("kind", KINDS)
def test_separate_tokenizers_know_only_their_own_side(kind: str) -> None:
    sides = train_tokenizers([("aa bb", "xx yy")] * 3, kind=kind, size=50, joint=False)
    assert not sides.joint
    assert UNK not in sides.source.encode("aa bb")
    assert UNK in sides.source.encode("xx")
    assert UNK in sides.target.encode("aa")


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_text_gives_fewer_ids_than_asked_for(kind: str) -> None:
    tokenizer = train_tokenizers([("ab", "ab")], kind=kind, size=8_000, joint=True, byte_fallback=False).source
    assert tokenizer.size < 12
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"


@pytest.mark.parametrize("kind", KINDS)
def test_long_texts_are_used_for_training_in_full(kind: str) -> None:
    tokenizer = train_tokenizers([("ab " * 20_000 + "cd", "x" * 90_000)], kind=kind, size=50, joint=True).source
    assert UNK not in tokenizer.encode("cd ab")


@pytest.mark.parametrize("kind", KINDS)
def test_training_without_text_is_refused(kind: str) -> None:
    for pairs in ([], [("", "")]):
        with pytest.raises(DataError, match="no text to train a tokenizer on"):
            train_tokenizers(pairs, kind=kind, size=50, joint=True)


# Invalid options


def test_an_unknown_kind_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.kind is 'unigramm'; did you mean 'unigram'\?"):
        train_tokenizers(PAIRS, kind="unigramm", size=50, joint=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reserved_ids_must_fit(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.size is 3; 3 ids are reserved"):
        train_tokenizers(PAIRS, kind=kind, size=3, joint=True)


@pytest.mark.parametrize("coverage", [0.5, 1.1])
def test_coverage_outside_its_range_is_refused(coverage: float) -> None:
    with pytest.raises(ConfigError, match=rf"tokenizer.coverage is {coverage}; it must be from 0.98 to 1"):
        train_tokenizers(PAIRS, kind="char", size=50, joint=True, coverage=coverage)


@pytest.mark.parametrize(("kind", "needed"), [("bpe", 6), ("unigram", 6), ("char", 5)])
def test_every_character_must_fit(kind: str, needed: int) -> None:
    """There are three reserved ids, "a" and "b". SentencePiece adds its symbol for a space."""
    assert train_tokenizers([("ab", "ba")], kind=kind, size=needed, joint=True).source.size == needed
    with pytest.raises(ConfigError, match=rf"tokenizer.size is {needed - 1}, .*{needed}"):
        train_tokenizers([("ab", "ba")], kind=kind, size=needed - 1, joint=True)


# Subwords


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
@pytest.mark.parametrize("text", ["ﬁn … Ａ é e\u0301", "a\u00a0b\u3000c", "👩‍👩‍👧 🇩🇪", "x\u200by"])
def test_subwords_do_not_normalize_characters(kind: str, text: str) -> None:
    tokenizer = train_tokenizers([(text, text)], kind=kind, size=100, joint=True).source
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
def test_subwords_treat_repeated_spaces_and_tabs_as_one_space(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    assert tokenizer.encode("  two \t cats ") == tokenizer.encode("two\tcats") == tokenizer.encode("two cats")


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
def test_sampling_depends_on_its_seed(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    first = splits_of(tokenizer, seed=1)
    assert splits_of(tokenizer, seed=2) != first
    assert splits_of(tokenizer, seed=1) == first
    assert first != tokenizer.encode_all(TEXTS)


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
def test_another_process_draws_the_same_splits(kind: str, tmp_path: Path, trained: dict[str, Tokenizers]) -> None:
    trained[kind].save(Folder(tmp_path).make())
    program = """
import sys
from regard.storage.folder import Folder
from regard.text.tokenizer_pair import load_tokenizers
tokenizer = load_tokenizers(Folder(sys.argv[1])).source
print(tokenizer.resampled(["seven small dogs"] * 100, 0.3).draw(1)[0].tolist())
"""
    here = trained[kind].source.resampled(["seven small dogs"] * 100, 0.3).draw(1)[0].tolist()
    path = os.pathsep.join(sys.path)
    there = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(there.stdout) == here


@pytest.mark.parametrize(("kind", "rate"), [("bpe", 1e-12), ("unigram", 1e4)])
def test_sampling_without_variation_equals_sentencepiece(
    kind: str, rate: float, trained: dict[str, Tokenizers]
) -> None:
    """One merge in a trillion is dropped; and the best split to the power of 10,000 outweighs all others."""
    tokenizer = trained[kind].source
    texts = [*TEXTS, "", "ΩΩ seΩven", "a\u2581b", " ein  Hund\t", "dogs" * 200]
    assert drawn(tokenizer, texts, seed=1, rate=rate) == tokenizer.encode_all(texts)


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
def test_sampling_does_not_depend_on_other_calls(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    first = splits_of(tokenizer, seed=7)
    for other in SUBWORD_KINDS:
        drawn(trained[other].source, TEXTS[:33], seed=8, rate=0.5)
        trained[other].source.encode_all(TEXTS[:5])
    assert splits_of(tokenizer, seed=7) == first


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
def test_sampling_in_several_threads_equals_sampling_in_sequence(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    in_sequence = [splits_of(tokenizer, seed=seed) for seed in range(8)]
    texts = tokenizer.resampled(TEXTS, 0.3)
    with ThreadPoolExecutor(4) as threads:
        concurrent = list(threads.map(texts.draw, range(8)))
    assert [[ids[start:end].tolist() for start, end in pairwise(starts)] for ids, starts in concurrent] == in_sequence


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
@pytest.mark.parametrize("seed", [0, -1, 2**32 - 1, 2**64])
def test_any_integer_is_a_seed(kind: str, seed: int, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    assert splits_of(tokenizer, seed=seed) == splits_of(tokenizer, seed=seed)


@pytest.mark.parametrize("kind", SUBWORD_KINDS)
def test_a_sampled_split_decodes_to_the_same_text(kind: str, trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained[kind].source
    assert [tokenizer.decode(ids) for ids in splits_of(tokenizer, seed=3)] == TEXTS


def test_bpe_that_drops_every_merge_splits_into_characters(trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained["bpe"].source
    [ids] = drawn(tokenizer, ["dogs"], seed=0, rate=1.0)
    assert tokenizer.tokens(ids) == ["\u2581", "d", "o", "g", "s"]


def test_bpe_drops_each_merge_with_the_given_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """The merges of "ab" are "ab" and then "▁ab": at rate 1/2, 1/2 of all draws drop the first and 1/4 only the second."""
    monkeypatch.setattr(resampling, "DROPOUT_SPLITS", 4_000)  # as many as draws, so that hardly any is drawn twice
    tokenizer = train_tokenizers([("ab", "ab")], kind="bpe", size=8, joint=True).source
    assert tokenizer.tokens(range(3, 8)) == ["ab", "\u2581ab", "a", "b", "\u2581"]
    splits = drawn(tokenizer, ["ab"] * 4_000, seed=1, rate=0.5)
    counts = Counter(" ".join(tokenizer.tokens(ids)) for ids in splits)
    assert counts.keys() == {"\u2581 a b", "\u2581 ab", "\u2581ab"}
    assert counts["\u2581 a b"] / 4_000 == pytest.approx(1 / 2, abs=0.04)
    assert counts["\u2581 ab"] / 4_000 == pytest.approx(1 / 4, abs=0.04)


def test_unigram_at_a_rate_near_0_draws_all_splits_equally_often(trained: dict[str, Tokenizers]) -> None:
    tokenizer = trained["unigram"].source
    known = set(tokenizer.tokens(range(3, tokenizer.size)))

    def splits(word: str) -> list[list[str]]:
        if not word:
            return [[]]
        ends = [end for end in range(1, len(word) + 1) if word[:end] in known]
        return [[word[:end], *rest] for end in ends for rest in splits(word[end:])]

    possible = Counter(map(tuple, splits("\u2581small")))
    splits_drawn = drawn(tokenizer, ["small"] * 1_000 * len(possible), seed=1, rate=1e-9)
    counts = Counter(tuple(tokenizer.tokens(ids)) for ids in splits_drawn)
    assert len(possible) > 1
    assert counts.keys() == possible.keys()
    assert all(count == pytest.approx(1_000, abs=160) for count in counts.values())  # five standard deviations


def test_the_drop_rate_does_not_depend_on_the_number_of_splits() -> None:
    """Both merges of "ab" are kept in 0.9 ** 2 = 81 % of all draws."""
    tokenizer = train_tokenizers([("ab", "ab")], kind="bpe", size=8, joint=True).source
    splits = drawn(tokenizer, ["ab"] * 10_000, seed=1, rate=0.1)
    assert splits.count(tokenizer.encode("ab")) / 10_000 == pytest.approx(0.81, abs=0.02)


def test_a_word_has_many_splits_with_dropped_merges_but_a_limited_number() -> None:
    tokenizer = train_tokenizers([("abcdefgh", "abcdefgh")], kind="bpe", size=19, joint=True).source
    splits = set(map(tuple, drawn(tokenizer, ["abcdefgh"] * 10_000, seed=1, rate=0.3)))
    assert 10 <= len(splits) <= 1 + resampling.DROPOUT_SPLITS


def test_a_later_epoch_draws_what_a_new_process_would(trained: dict[str, Tokenizers]) -> None:
    """Splits of earlier epochs do not influence later ones."""
    for kind in SUBWORD_KINDS:
        corpus = trained[kind].source.resampled(TEXTS, 0.3)
        third = [corpus.draw(seed) for seed in range(3)][-1]
        fresh = trained[kind].source.resampled(TEXTS, 0.3).draw(2)
        assert all((one == other).all() for one, other in zip(third, fresh, strict=True))


@pytest.mark.parametrize(
    ("kind", "rate"),
    [("bpe", 0.0), ("unigram", 0.0), ("bpe", -0.1), ("bpe", 1.5), ("unigram", -0.1), ("bpe", float("nan"))],
)
def test_a_sampling_rate_out_of_range_is_refused(kind: str, rate: float, trained: dict[str, Tokenizers]) -> None:
    with pytest.raises(ConfigError, match=f"the subword sampling rate is {rate}"):
        splits_of(trained[kind].source, seed=1, rate=rate)


@pytest.mark.parametrize("kind", SYMBOL_KINDS)
def test_characters_and_words_cannot_be_sampled(kind: str, trained: dict[str, Tokenizers]) -> None:
    with pytest.raises(ConfigError, match="subword sampling needs bpe or unigram"):
        splits_of(trained[kind].source, seed=1, rate=0.1)


# Characters and words


def test_characters_are_ranked_by_count_and_then_by_code_point() -> None:
    """ "b" twice; then one each of a space, "a" and "年", in code point order."""
    tokenizer = train_tokenizers([("b a", "b年")], kind="char", size=50, joint=True).source
    assert tokenizer.tokens(range(tokenizer.size)) == ["⁇", "<s>", "</s>", "b", " ", "a", "年"]
    assert tokenizer.encode("a b?") == [5, 4, 3, UNK]


def test_words_beyond_the_size_are_unknown() -> None:
    tokenizer = train_tokenizers([("to be or", "to be"), ("to", "x")], kind="word", size=5, joint=True).source
    assert tokenizer.tokens(range(tokenizer.size)) == ["⁇", "<s>", "</s>", "to", "be"]
    assert tokenizer.encode("to  be or\tnot") == [3, 4, UNK, UNK]
    assert tokenizer.decode([3, 4, UNK]) == "to be ⁇"


def test_coverage_drops_the_rarest_characters() -> None:
    """990 of 1000 characters are "a": enough for 0.99, and one more is needed for 0.991."""
    text = "a" * 990 + "b" * 6 + "c" * 4
    sizes = [train_symbols([text], kind="char", size=50, coverage=share).size for share in (0.99, 0.991, 0.997, 1.0)]
    assert sizes == [4, 5, 6, 6]


GROESSE = train_tokenizers([("Größe 年", "\u2028é e\u0301 \t😀")], kind="char", size=50, joint=True).source


@given(st.text(alphabet="Größe 年\u2028é\u0301\t😀"))
def test_any_text_of_known_characters_is_decoded_from_its_ids(text: str) -> None:
    assert GROESSE.decode(GROESSE.encode(text)) == text
    assert "".join(GROESSE.tokens(GROESSE.encode(text))) == text


# Missing and damaged files


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "garbage"])
@pytest.mark.parametrize("stem", ["tokenizer", "joint"])
def test_a_damaged_file_is_named(
    kind: str, damage: str, stem: str, tmp_path: Path, trained: dict[str, Tokenizers]
) -> None:
    trained[kind].save(Folder(tmp_path).make())
    path = min(tmp_path.glob(f"{stem}.*"))
    if damage == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "garbage": b"\xff\x00\xfe" * 99}[damage])
    with pytest.raises(CheckpointError) as caught:
        load_tokenizers(Folder(tmp_path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer.json is missing"):
        load_tokenizers(Folder(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("saved", "reason"),
    [
        (b'{"kind": "bpee", "joint": true}', "did you mean 'bpe'?"),
        (b'{"kind": "bpe"}', "joint"),
        (b'{"kind": "bpe", "joint": "yes"}', "Expected `bool`"),
    ],
)
def test_an_invalid_description_is_refused(saved: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(saved)
    with pytest.raises(CheckpointError) as caught:
        load_tokenizers(Folder(tmp_path))
    assert reason in str(caught.value)


@pytest.mark.parametrize(("kind", "symbols"), [("char", b'["a", "a"]'), ("char", b'["ab"]'), ("word", b'["a b"]')])
def test_impossible_symbols_are_refused(kind: str, symbols: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b'{"kind": "%s", "joint": true}' % kind.encode())
    (tmp_path / "joint.json").write_bytes(symbols)
    with pytest.raises(CheckpointError, match=f"not a list of distinct {kind} symbols"):
        load_tokenizers(Folder(tmp_path))


# One tokenizer per side


def test_two_kinds_are_saved_and_loaded(tmp_path):
    source = train_tokenizer(["ab", "ba"], kind="char", size=10)
    target = train_tokenizer(["AH B"], kind="word", size=10)
    Tokenizers(source, target).save(Folder(tmp_path))
    loaded = load_tokenizers(Folder(tmp_path))
    assert (loaded.source.kind, loaded.target.kind) == ("char", "word")
    assert loaded.source.encode("ab") == source.encode("ab") and loaded.target.encode("B AH") == target.encode("B AH")


@pytest.mark.parametrize("joint", [True, False])
def test_tokenizers_of_one_kind_are_described_as_in_version_0_1(joint, tmp_path):
    train_tokenizers(PAIRS, kind="word", size=50, joint=joint).save(Folder(tmp_path))
    assert json.loads((tmp_path / "tokenizer.json").read_text()) == {"kind": "word", "joint": joint}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_of_one_side_is_that_of_a_pair_that_is_not_joint(kind):
    alone = train_tokenizer([source for source, _ in PAIRS], kind=kind, size=60)
    pair = train_tokenizers(PAIRS, kind=kind, size=60, joint=False)
    assert alone.tokens(range(alone.size)) == pair.source.tokens(range(pair.source.size))
