"""Subwords by SentencePiece: BPE (Sennrich et al. 2016) and the unigram language model (Kudo 2018).

The text is not normalised: "ﬁ", "…" and "é" in two code points come back as they were, so a score against the untouched
references is fair. What changes: runs of spaces become one, spaces at both ends go, a tab counts as a space, and
U+2581, which SentencePiece writes for a space, comes back as one.
"""

from __future__ import annotations

import io
import itertools
import math
import os
import random
import re
import sys
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import sentencepiece

from regard.errors import CheckpointError, ConfigError, DataError
from regard.text.symbols import BOS, EOS, RESERVED, UNK, Sampling

MAX_TRAINING_TEXTS: Final = 2_000_000  # spread evenly over a larger corpus, to bound the memory of the trainer
_TRAINING_CHARS = 1_000  # longer texts are learnt in parts: the trainer drops lines above 4,192 bytes without a word
_TRAINING_THREADS = 4  # fixed: the sums of the unigram model, hence its pieces, depend on the number of threads
_MANY_TEXTS = 1_000  # from here on encoding in several threads pays for starting them
# Samplers work word by word: no piece goes on past the mark of a space. Text without spaces is cut, to bound the time.
_WORD = re.compile("\u2581[^\u2581]{0,999}|[^\u2581]{1,1000}")
_CACHED_WORDS = 2**16
_NEVER = sys.maxsize  # the rank of a pair that is no piece
_UNKNOWN = (UNK, -100.0)  # the score does not matter: no piece competes for an unknown character


class SubwordTokenizer:
    """Text as subword pieces; the whole tokenizer is one SentencePiece model file that other engines read too."""

    def __init__(self, kind: str, model: bytes) -> None:
        self.kind = kind
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        self._sampler: _BpeSampler | _UnigramSampler | None = None

    @property
    def size(self) -> int:
        return self._processor.GetPieceSize()

    def encode(self, text: str) -> list[int]:
        return self._processor.Encode(_plain(text))

    def encode_all(self, texts: Sequence[str], *, sampling: Sampling | None = None) -> list[list[int]]:
        plain = [_plain(text) for text in texts]
        if sampling is not None and sampling.rate != 0:
            return self._sample(plain, sampling)
        num_threads = usable_cores() if len(plain) >= _MANY_TEXTS else 1
        ids: list[list[int]] = self._processor.Encode(plain, num_threads=num_threads)
        return ids

    def _sample(self, texts: list[str], sampling: Sampling) -> list[list[int]]:
        rate, seed = sampling
        if not (0 < rate <= 1 or (self.kind == "unigram" and rate > 0)):
            fits = "above 0" if self.kind == "unigram" else "from 0 to 1"
            raise ConfigError(f"the subword sampling rate is {rate}; for {self.kind} it is a number {fits}")
        sampler = self._sampler
        if sampler is None or sampler.rate != rate:
            sampler = self._sampler = self._new_sampler(rate)
        words = [_WORD.findall(self._processor.Normalize(text)) for text in texts]
        splits = sampler.split(itertools.chain.from_iterable(words), random.Random(seed))
        rows = (itertools.chain.from_iterable(itertools.islice(splits, len(row))) for row in words)
        return [_join_unknown(list(row)) for row in rows]

    def _new_sampler(self, rate: float) -> _BpeSampler | _UnigramSampler:
        ids = {self._processor.IdToPiece(id): id for id in range(EOS + 1, self.size)}
        if self.kind == "bpe":
            return _BpeSampler(ids, rate)
        return _UnigramSampler({piece: (id, self._processor.GetScore(id)) for piece, id in ids.items()}, rate)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._processor.Decode([id for id in ids if id not in (BOS, EOS)])
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [RESERVED[id] if 0 <= id <= EOS else self._processor.IdToPiece(id) for id in ids]

    def save(self, folder: Path, name: str) -> None:
        (folder / f"{name}.model").write_bytes(self._model)


def usable_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# SentencePiece can sample too, but whatever seed it is given, 0.2.2 salts its generator anew in every process:
# a resumed run would go on with other ids than one that never stopped. So both ways to sample are written out here.


class _Drops:
    """A coin for every merge that is tried, drawn as the number of merges kept before the next drop: fewer draws."""

    def __init__(self, rate: float, generator: random.Random) -> None:
        self._rate, self._generator = rate, generator
        self.kept = self._gap()

    def _gap(self) -> int:
        return int(math.log(1 - self._generator.random()) / math.log1p(-self._rate)) if self._rate < 1 else 0

    def toss(self) -> bool:
        dropped = self.kept == 0
        self.kept = self._gap() if dropped else self.kept - 1
        return dropped


class _BpeSampler:
    """BPE in which each merge fails with a probability (Provilkov et al. 2020, 3)."""

    def __init__(self, ids: dict[str, int], rate: float) -> None:
        self.rate = rate
        self._ids = ids  # learnt in this order: a smaller id merges first
        self._plain = lru_cache(_CACHED_WORDS)(self._merge)

    def split(self, words: Iterable[str], generator: random.Random) -> Iterator[list[int]]:
        drops = _Drops(self.rate, generator)
        for word in words:
            ids, tried = self._plain(word)
            if tried <= drops.kept:
                drops.kept -= tried
            else:
                ids, _ = self._merge(word, drops)
            yield ids

    def _merge(self, word: str, drops: _Drops | None = None) -> tuple[list[int], int]:
        """The ids a word ends in, and how many merges were tried on the way."""
        ids, symbols, tried = self._ids, list(word), 0
        ranks = [ids.get(left + right, _NEVER) for left, right in itertools.pairwise(symbols)]
        while ranks and (best := min(ranks)) != _NEVER:
            here = ranks.index(best)
            tried += 1
            if drops is not None and drops.toss():
                ranks[here] = _NEVER  # until a neighbour changes and makes it another pair
                continue
            symbols[here : here + 2] = [symbols[here] + symbols[here + 1]]
            del ranks[here]
            for pair in range(max(here - 1, 0), min(here + 1, len(ranks))):
                ranks[pair] = ids.get(symbols[pair] + symbols[pair + 1], _NEVER)
        return [ids.get(symbol, UNK) for symbol in symbols], tried


class _UnigramSampler:
    """Segmentations drawn with probability proportional to P(segmentation) ** rate (Kudo 2018, 3.3)."""

    def __init__(self, scores: dict[str, tuple[int, float]], rate: float) -> None:
        self.rate = rate
        self._scores = scores  # piece to id and log probability
        self._longest = max(map(len, scores))
        self._lattice = lru_cache(_CACHED_WORDS)(self._forward)

    def split(self, words: Iterable[str], generator: random.Random) -> Iterator[list[int]]:
        for word in words:
            lattice, end, ids = self._lattice(word), len(word), []
            while end > 0:  # from the last piece to the first
                weights, starts = lattice[end - 1]
                start = starts[bisect(weights, generator.random() * weights[-1], hi=len(starts) - 1)]
                ids.append(self._scores.get(word[start:end], _UNKNOWN)[0])
                end = start
            yield ids[::-1]

    def _forward(self, word: str) -> list[tuple[tuple[float, ...], tuple[int, ...]]]:
        """For each place a piece may end: the running weights of the pieces that end there, and where they start."""
        totals = [0.0]  # log of the summed weight of all ways to get here
        lattice = []
        for end in range(1, len(word) + 1):
            starts = [start for start in range(max(0, end - self._longest), end - 1) if word[start:end] in self._scores]
            starts.append(end - 1)  # a single character, known or not
            logs = [totals[start] + self.rate * self._scores.get(word[start:end], _UNKNOWN)[1] for start in starts]
            top = max(logs)
            weights = tuple(itertools.accumulate(math.exp(log - top) for log in logs))
            totals.append(top + math.log(weights[-1]))
            lattice.append((weights, tuple(starts)))
        return lattice


def _join_unknown(ids: list[int]) -> list[int]:
    """A run of unknown characters as one id, as SentencePiece has it."""
    return [id for before, id in itertools.pairwise([BOS, *ids]) if not before == id == UNK] if UNK in ids else ids


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


def load_subwords(folder: Path, name: str, *, kind: str) -> SubwordTokenizer:
    """The tokenizer that `save` wrote."""
    path = folder / f"{name}.model"
    try:
        tokenizer = SubwordTokenizer(kind, path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; without it the ids of this run mean nothing") from error
    except (OSError, RuntimeError) as error:
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
