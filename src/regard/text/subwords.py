"""Subwords by SentencePiece: BPE (Sennrich et al. 2016) and the unigram language model (Kudo 2018).

The text is not normalised: "ﬁ", "…" and "é" in two code points come back as they were, so a score against the untouched
references is fair. What changes: runs of spaces become one, spaces at both ends go, a tab counts as a space, and
U+2581, which SentencePiece writes for a space, comes back as one.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

import sentencepiece

from regard.errors import CheckpointError, ConfigError, DataError
from regard.storage.folder import Folder
from regard.text.resampling import BpeDropout, Resampled, UnigramSampling
from regard.text.symbols import BOS, EOS, RESERVED, UNK

MAX_TRAINING_TEXTS: Final = 2_000_000  # spread evenly over a larger corpus, to bound the memory of the trainer
_TRAINING_CHARS = 1_000  # longer texts are learnt in parts: the trainer drops lines above 4,192 bytes without a word
_TRAINING_THREADS = 4  # fixed: the sums of the unigram model, hence its pieces, depend on the number of threads
_MANY_TEXTS = 1_000  # from here on encoding in several threads pays for starting them
# Samplers work word by word: no piece goes on past the mark of a space. Text without spaces is cut, to bound the time.
_WORD = re.compile("\u2581[^\u2581]{0,999}|[^\u2581]{1,1000}")


class SubwordTokenizer:
    """Text as subword pieces; the whole tokenizer is one SentencePiece model file that other engines read too."""

    def __init__(self, kind: str, model: bytes) -> None:
        self.kind = kind
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)

    @property
    def size(self) -> int:
        return self._processor.GetPieceSize()

    def encode(self, text: str) -> list[int]:
        return self._processor.Encode(_plain(text))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        plain = [_plain(text) for text in texts]
        num_threads = usable_cores() if len(plain) >= _MANY_TEXTS else 1
        ids: list[list[int]] = self._processor.Encode(plain, num_threads=num_threads)
        return ids

    def resampled(self, texts: Sequence[str], rate: float) -> Resampled:
        if not (0 < rate <= 1 or (self.kind == "unigram" and rate > 0)):
            fits = "above 0" if self.kind == "unigram" else "from 0 to 1"
            raise ConfigError(f"the subword sampling rate is {rate}; for {self.kind} it is a number {fits}")
        words = [_WORD.findall(self._processor.Normalize(_plain(text))) for text in texts]
        ids = {self._processor.IdToPiece(id): id for id in range(EOS + 1, self.size)}
        if self.kind == "bpe":
            return BpeDropout(words, ids, rate)
        scores = {piece: (id, self._processor.GetScore(id)) for piece, id in ids.items()}
        return UnigramSampling(words, scores, rate)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._processor.Decode([id for id in ids if id not in (BOS, EOS)])
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [RESERVED[id] if 0 <= id <= EOS else self._processor.IdToPiece(id) for id in ids]

    def save(self, folder: Folder, name: str) -> None:
        folder.save_bytes(f"{name}.model", self._model)


def usable_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def train_subwords(texts: Sequence[str], *, kind: str, size: int, coverage: float) -> SubwordTokenizer:
    """A tokenizer of at most `size` pieces, fewer where the text has no more; equal texts give equal bytes.

    `coverage` is the share of the running characters that get a piece of their own; the rarest are unknown.
    """
    texts = texts[:: -(-len(texts) // MAX_TRAINING_TEXTS) or 1]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_training_texts(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=False,  # a small corpus gives a small vocabulary instead of a failure
            character_coverage=coverage,
            normalization_rule_name="identity",
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=-1,
            unk_surface=RESERVED[UNK],
            num_threads=_TRAINING_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        if not any(text.strip() for text in texts):
            raise DataError(
                "there is no text to learn a tokenizer from; the training pairs are missing or blank"
            ) from error
        if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            raise ConfigError(
                f"tokenizer.size is {size}, but the characters of the text alone need {match[1]}; use at least that, "
                "or a lower tokenizer.coverage"
            ) from error
        raise ConfigError(f"SentencePiece cannot learn {size} {kind} pieces from this text: {error}") from error
    return SubwordTokenizer(kind, model.getvalue())


def load_subwords(folder: Folder, name: str, *, kind: str) -> SubwordTokenizer:
    """The tokenizer that `save` wrote."""
    path = folder.path / f"{name}.model"
    if path.name not in folder.names():
        raise CheckpointError(f"{path} is missing; without it the ids of this run mean nothing")
    try:
        tokenizer = SubwordTokenizer(kind, folder.load_bytes(path.name))
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} is not a whole SentencePiece model; restore it from a copy of the run"
        ) from error
    processor = tokenizer._processor
    if (found := (processor.unk_id(), processor.bos_id(), processor.eos_id())) != (UNK, BOS, EOS):
        raise CheckpointError(
            f"{path} has unknown, begin and end at ids {found}, not at {(UNK, BOS, EOS)}; it was not trained by regard"
        )
    return tokenizer


def _plain(text: str) -> str:
    return text.replace("\t", " ")  # SentencePiece keeps the tab for itself and would call it unknown


def _training_texts(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        parts = (text[start : start + _TRAINING_CHARS] for start in range(0, len(text), _TRAINING_CHARS))
        # Equal parts of one text count once: on a line of 100,000 dashes the unigram trainer takes minutes.
        yield from dict.fromkeys(map(_plain, parts))
