"""Subwords by SentencePiece: BPE (Sennrich et al. 2016) and the unigram language model (Kudo 2018).

The text is not normalized: "ﬁ", "…" and a decomposed "é" decode to what they were, so that scores against unmodified
references are fair. Four things change: repeated spaces become one, spaces at both ends are removed, a tab becomes a
space, and so does U+2581, SentencePiece's symbol for a space. A character that is not in the vocabulary is split into the
bytes of its UTF-8 form, where the vocabulary has them (`tokenizer.byte_fallback`), and is unknown otherwise.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import sentencepiece

from regard.cores import usable_cores
from regard.errors import CheckpointError, ConfigError, DataError
from regard.storage.folder import Folder
from regard.text.resampling import BpeDropout, Resampled, UnigramSampling, unknown
from regard.text.symbols import BOS, EOS, RESERVED, UNK

# Texts sampled evenly from a larger corpus, which bounds the memory of training.
MAX_TRAINING_TEXTS: Final = 2_000_000
# Longer texts are split for training, because SentencePiece silently drops lines above 4,192 bytes.
_TRAINING_CHARS = 1_000
# Fixed, because the vocabulary of the unigram model depends on the number of threads.
_TRAINING_THREADS = 4
# The number of texts from which encoding in several threads is faster.
_MANY_TEXTS = 1_000
# The smallest vocabulary that has the 256 bytes if the recipe does not say: they are an eighth of it.
_ROOM_FOR_BYTES: Final = 2048
# Bytes that an output must not have: it is one line of text. In UTF-8 they are never part of another character.
_LINE_BREAKS = ("<0x00>", "<0x0A>", "<0x0D>")
# Samplers work on words, because no subword crosses the symbol for a space. Text without spaces is cut to bound the time.
_WORD = re.compile("\u2581[^\u2581]{0,999}|[^\u2581]{1,1000}")


class SubwordTokenizer:
    """Encodes text as subwords. The tokenizer is one SentencePiece model file, which other engines can read."""

    def __init__(self, kind: str, model: bytes) -> None:
        self.kind = kind
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        of_bytes = [id for id in range(EOS + 1, self.size) if self._processor.IsByte(id)]
        self._byte_ids = {self._processor.IdToPiece(id): id for id in of_bytes}
        self._not_decoded = {BOS, EOS, *(self._byte_ids.get(name, BOS) for name in _LINE_BREAKS)}

    @property
    def size(self) -> int:
        return self._processor.GetPieceSize()

    @property
    def model(self) -> bytes:
        """The SentencePiece file."""
        return self._model

    def encode(self, text: str) -> list[int]:
        return self._processor.Encode(without_tabs(text))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        plain = [without_tabs(text) for text in texts]
        num_threads = usable_cores() if len(plain) >= _MANY_TEXTS else 1
        ids: list[list[int]] = self._processor.Encode(plain, num_threads=num_threads)
        return ids

    def tokenize(self, text: str) -> list[str]:
        subwords: list[str] = self._processor.Encode(without_tabs(text), out_type=str)
        return subwords

    def resampled(self, texts: Sequence[str], rate: float) -> Resampled:
        if not (0 < rate <= 1 or (self.kind == "unigram" and rate > 0)):
            valid = "above 0" if self.kind == "unigram" else "above 0 and at most 1"
            raise ConfigError(f"the subword sampling rate is {rate}; for {self.kind} it must be {valid}")
        words = [_WORD.findall(self._processor.Normalize(without_tabs(text))) for text in texts]
        of_bytes = set(self._byte_ids.values())
        ids = {self._processor.IdToPiece(id): id for id in range(EOS + 1, self.size) if id not in of_bytes}
        spell = self._spell if len(of_bytes) == 256 else unknown
        if self.kind == "bpe":
            return BpeDropout(words, ids, rate, spell)
        scores = {subword: (id, self._processor.GetScore(id)) for subword, id in ids.items()}
        return UnigramSampling(words, scores, rate, spell)

    def _spell(self, character: str) -> list[int]:
        return [self._byte_ids[f"<0x{byte:02X}>"] for byte in character.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text. Bytes that do not form a character become U+FFFD; NUL and line breaks are left out."""
        text: str = self._processor.Decode([id for id in ids if id not in self._not_decoded])
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [RESERVED[id] if 0 <= id <= EOS else self._processor.IdToPiece(id) for id in ids]

    def save(self, folder: Folder, name: str) -> None:
        folder.save_bytes(f"{name}.model", self._model)


def train_subwords(
    texts: Sequence[str],
    *,
    kind: str,
    size: int,
    coverage: float,
    byte_fallback: bool | None = None,
    symbols: Sequence[str] = (),
) -> SubwordTokenizer:
    """Return a tokenizer with at most `size` subwords; a small text has fewer. Equal texts give equal model files.

    `coverage` is the share of all characters in the text that are in the vocabulary; the rarest characters are unknown. With
    `byte_fallback` they are split into bytes, which are in the vocabulary; None: if there is room for them. `symbols` are
    never split.
    """
    texts = texts[:: -(-len(texts) // MAX_TRAINING_TEXTS) or 1]
    train = partial(_train, texts, kind=kind, size=size, coverage=coverage, symbols=symbols)
    if byte_fallback is None:
        try:
            return train(byte_fallback=size >= _ROOM_FOR_BYTES)
        except _NoRoomError:
            # The characters alone may fit.
            byte_fallback = False
    return train(byte_fallback=byte_fallback)


class _NoRoomError(ConfigError):
    """The vocabulary is smaller than what it must have."""


def _train(
    texts: Sequence[str], *, kind: str, size: int, coverage: float, symbols: Sequence[str], byte_fallback: bool
) -> SubwordTokenizer:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_training_texts(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            # A small corpus gives a small vocabulary instead of an error.
            hard_vocab_limit=False,
            character_coverage=coverage,
            normalization_rule_name="identity",
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=-1,
            unk_surface=RESERVED[UNK],
            byte_fallback=byte_fallback,
            user_defined_symbols=list(symbols),
            num_threads=_TRAINING_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        if not any(text.strip() for text in texts):
            raise DataError(
                "there is no text to train a tokenizer on; the training pairs are missing or blank"
            ) from error
        if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            what = "256 bytes and the characters of the text" if byte_fallback else "the characters of the text alone"
            bytes_too = ", or tokenizer.byte_fallback=false" if byte_fallback else ""
            raise _NoRoomError(
                f"tokenizer.size is {size}, but {what} need {match[1]}; use at least that, "
                f"or a lower tokenizer.coverage{bytes_too}"
            ) from error
        raise ConfigError(f"SentencePiece cannot train {size} {kind} subwords on this text: {error}") from error
    return SubwordTokenizer(kind, model.getvalue())


def load_subwords(folder: Folder, name: str, *, kind: str) -> SubwordTokenizer:
    """Return the tokenizer that `save` wrote."""
    path = folder.path / f"{name}.model"
    if path.name not in folder.names():
        raise CheckpointError(f"{path} is missing; the ids of this run cannot be decoded without it")
    try:
        tokenizer = SubwordTokenizer(kind, folder.load_bytes(path.name))
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} is not a complete SentencePiece model; restore it from a copy of the run"
        ) from error
    processor = tokenizer._processor
    if (found := (processor.unk_id(), processor.bos_id(), processor.eos_id())) != (UNK, BOS, EOS):
        raise CheckpointError(
            f"{path} has the ids {found} for UNK, BOS and EOS, not {(UNK, BOS, EOS)}; it was not trained by regard"
        )
    return tokenizer


def without_tabs(text: str) -> str:
    """Return the text without tabs, which SentencePiece reserves and would encode as unknown."""
    return text.replace("\t", " ")


def _training_texts(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        parts = (text[start : start + _TRAINING_CHARS] for start in range(0, len(text), _TRAINING_CHARS))
        # Equal parts of one text count once, because the unigram trainer takes minutes for a line of 100,000 dashes.
        yield from dict.fromkeys(map(without_tabs, parts))
