"""Texts split into subwords anew every epoch: BPE-dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018).

SentencePiece can sample too, but whatever seed it is given, 0.2.2 salts its generator anew in every process: a resumed run
would go on with other ids than one that never stopped. So both ways are written out here, word by word: the words of the
texts are found once, and each has a number. BPE-dropout chooses splits by number, without a loop over words.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import threading
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.text.symbols import UNK

Numbers = NDArray[Any]

SPOILED = 16  # ways to split a word with a dropped merge that are drawn once and chosen from ever after
_CACHED_WORDS = 2**16
_NEVER = sys.maxsize  # the rank of a pair that is no piece
_UNKNOWN = (UNK, -100.0)  # the score does not matter: no piece competes for an unknown character


class Resampled(ABC):
    """Texts, given as words, that are split anew at every draw; a draw follows from its seed alone."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        numbers: dict[str, int] = {}
        every = itertools.chain.from_iterable(texts)
        self._number_of_word = np.fromiter((numbers.setdefault(word, len(numbers)) for word in every), dtype=np.int32)
        self._words = list(numbers)
        ends = np.cumsum([len(words) for words in texts], dtype=np.int64)
        self._first_word = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        self._lock = threading.Lock()

    def draw(self, seed: int) -> tuple[Numbers, Numbers]:
        """The ids of all texts, end to end, and where each begins, with the end of all behind them."""
        with self._lock:
            ids, lengths = self._split(np.random.default_rng(abs(seed)))
        ends = np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])
        return _join_unknown(ids, ends[self._first_word])

    @abstractmethod
    def _split(self, generator: np.random.Generator) -> tuple[Numbers, Numbers]:
        """The ids of all words, end to end, and how many each has."""


def _join_unknown(ids: Numbers, starts: Numbers) -> tuple[Numbers, Numbers]:
    """A run of unknown characters as one id, as SentencePiece has it."""
    again = ids == UNK
    again[1:] &= again[:-1].copy()
    again[:1] = False
    again[starts[:-1][starts[:-1] < len(ids)]] = False  # the first of a text
    if not again.any():
        return ids, starts
    before = np.concatenate([np.zeros(1, dtype=np.int64), again.cumsum()])
    return ids[~again], starts - before[starts]


class BpeDropout(Resampled):
    """BPE in which each merge fails with a probability (Provilkov et al. 2020, 3).

    Whether a word has a failed merge is drawn at every occurrence; how it splits then is chosen among `SPOILED` ways. Those
    follow from the word alone, and are found when they are first chosen.
    """

    def __init__(self, texts: Sequence[Sequence[str]], ids: dict[str, int], rate: float) -> None:
        super().__init__(texts)
        self._ids, self._rate = ids, rate  # learnt in this order: a smaller id merges first
        merged = [self._merge(word) for word in self._words]
        self._tried = np.array([tried for _, tried in merged], dtype=np.int32)
        self._spoiled = np.full(len(self._words) * SPOILED, -1, dtype=np.int32)  # the numbers of their splits
        # All splits that are known, end to end; those of words without a failure come first, by the word's number.
        self._known: Numbers = np.empty(0, dtype=np.int32)
        self._starts: Numbers = np.zeros(1, dtype=np.int64)
        self._learn([ids for ids, _ in merged])

    def _learn(self, splits: Sequence[list[int]]) -> None:
        more = np.fromiter(itertools.chain.from_iterable(splits), dtype=np.int32)
        ends = self._starts[-1] + np.cumsum([len(one) for one in splits], dtype=np.int64)
        self._known, self._starts = np.concatenate([self._known, more]), np.concatenate([self._starts, ends])

    def _split(self, generator: np.random.Generator) -> tuple[Numbers, Numbers]:
        chosen = self._choose(generator)
        starts, lengths = self._starts[chosen], np.diff(self._starts)[chosen]
        before = lengths.cumsum() - lengths
        return self._known[np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))], lengths

    def _choose(self, generator: np.random.Generator) -> Numbers:
        """For each word of the texts, the number of a split."""
        words = self._number_of_word
        chosen = words.copy()
        whole = (1 - self._rate) ** self._tried  # how often no merge fails
        (places,) = np.nonzero(generator.random(len(words)) >= whole[words])
        keys = words[places] * np.int64(SPOILED) + generator.integers(SPOILED, size=len(places))
        new = np.unique(keys[self._spoiled[keys] < 0])
        self._spoiled[new] = np.arange(len(new)) + len(self._starts) - 1
        self._learn([self._spoil(*divmod(key, SPOILED)) for key in new.tolist()])
        chosen[places] = self._spoiled[keys]
        return chosen

    def _spoil(self, number: int, way: int) -> list[int]:
        """A word's split with a merge that fails, one of several ways."""
        generator = random.Random(f"{way} {self._words[number]}")
        ids, _ = self._merge(self._words[number], _Drops(self._rate, generator, within=int(self._tried[number])))
        return ids

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


class _Drops:
    """A coin for every merge that is tried, of which one of the first `within` fails for certain.

    It is drawn as the number of merges kept before the next failure: fewer draws.
    """

    def __init__(self, rate: float, generator: random.Random, *, within: int) -> None:
        self._rate, self._generator = rate, generator
        self._kept = min(self._gap(1 - (1 - rate) ** within), within - 1)

    def _gap(self, most: float = 1.0) -> int:
        if self._rate == 1:
            return 0
        return int(math.log1p(-most * self._generator.random()) / math.log1p(-self._rate))

    def toss(self) -> bool:
        dropped = self._kept == 0
        self._kept = self._gap() if dropped else self._kept - 1
        return dropped


class UnigramSampling(Resampled):
    """Splits drawn with probability proportional to P(split) ** rate (Kudo 2018, 3.3), word by word."""

    def __init__(self, texts: Sequence[Sequence[str]], scores: dict[str, tuple[int, float]], rate: float) -> None:
        super().__init__(texts)
        self._scores, self._rate = scores, rate  # piece to id and log probability
        self._longest = max(map(len, scores))
        self._lattice = lru_cache(_CACHED_WORDS)(self._forward)

    def _split(self, generator: np.random.Generator) -> tuple[Numbers, Numbers]:
        draw = random.Random(generator.bytes(16))
        ids: list[int] = []
        lengths = np.zeros(len(self._number_of_word), dtype=np.int64)
        for place, number in enumerate(self._number_of_word.tolist()):
            found = self._one(self._words[number], draw)
            lengths[place] = len(found)
            ids += found
        return np.array(ids, dtype=np.int32), lengths

    def _one(self, word: str, draw: random.Random) -> list[int]:
        lattice, end, ids = self._lattice(word), len(word), []
        while end > 0:  # from the last piece to the first
            weights, starts = lattice[end - 1]
            start = starts[bisect(weights, draw.random() * weights[-1], hi=len(starts) - 1)]
            ids.append(self._scores.get(word[start:end], _UNKNOWN)[0])
            end = start
        return ids[::-1]

    def _forward(self, word: str) -> list[tuple[tuple[float, ...], tuple[int, ...]]]:
        """For each place a piece may end: the running weights of the pieces that end there, and where they start."""
        totals = [0.0]  # log of the summed weight of all ways to get here
        lattice = []
        for end in range(1, len(word) + 1):
            starts = [start for start in range(max(0, end - self._longest), end - 1) if word[start:end] in self._scores]
            starts.append(end - 1)  # a single character, known or not
            logs = [totals[start] + self._rate * self._scores.get(word[start:end], _UNKNOWN)[1] for start in starts]
            top = max(logs)
            weights = tuple(itertools.accumulate(math.exp(log - top) for log in logs))
            totals.append(top + math.log(weights[-1]))
            lattice.append((weights, tuple(starts)))
        return lattice
