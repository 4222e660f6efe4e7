"""Subword regularization: BPE-dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018), with new splits every epoch.

SentencePiece can sample as well, but version 0.2.2 adds a random salt to the seed in every process, so that a resumed run
would see other ids than an uninterrupted one. Both methods are therefore implemented here. They work on words: the distinct
words of the texts are numbered once, and BPE-dropout chooses splits by these numbers, without a loop over words.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import threading
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.text.symbols import UNK

IntArray = NDArray[Any]

DROPOUT_SPLITS = 16  # splits with a dropped merge per word; they are drawn once, and chosen from later
_CACHED_WORDS = 2**16
_NEVER = sys.maxsize  # the rank of a pair that is not in the vocabulary
_UNKNOWN_SCORE = -100.0  # it has no effect, since no subword competes for an unknown character

Spell = Callable[[str], list[int]]  # the ids of a character that is not in the vocabulary


def unknown(character: str) -> list[int]:
    """Return the ids of a character that is not in the vocabulary, where there is no other way to write it."""
    return [UNK]


class Resampled(ABC):
    """Texts, given as words, that are split into subwords differently in each draw. A draw depends on its seed alone."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        numbers: dict[str, int] = {}
        every = itertools.chain.from_iterable(texts)
        self._number_of_word = np.fromiter((numbers.setdefault(word, len(numbers)) for word in every), dtype=np.int32)
        self._words = list(numbers)
        ends = np.cumsum([len(words) for words in texts], dtype=np.int64)
        self._first_word = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        self._lock = threading.Lock()

    def draw(self, seed: int) -> tuple[IntArray, IntArray]:
        """Return the concatenated ids of all texts, and the offset of each text, followed by the total length."""
        with self._lock:
            ids, lengths = self._split(np.random.default_rng(abs(seed)))
        ends = np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])
        return _join_unknown(ids, ends[self._first_word])

    @abstractmethod
    def _split(self, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return the concatenated ids of all words, and the number of ids of each word."""


def _join_unknown(ids: IntArray, starts: IntArray) -> tuple[IntArray, IntArray]:
    """Replace consecutive unknown characters of a text by one id, as SentencePiece does."""
    repeated = ids == UNK
    repeated[1:] &= repeated[:-1].copy()
    repeated[:1] = False
    # The first id of a text repeats nothing.
    repeated[starts[:-1][starts[:-1] < len(ids)]] = False
    if not repeated.any():
        return ids, starts
    before = np.concatenate([np.zeros(1, dtype=np.int64), repeated.cumsum()])
    return ids[~repeated], starts - before[starts]


class BpeDropout(Resampled):
    """BPE in which each merge is dropped with a given probability (Provilkov et al. 2020, section 3).

    Whether a word has a dropped merge is drawn at every occurrence. Its split is then one of `DROPOUT_SPLITS` that depend on
    the word alone and are computed when they are first chosen.
    """

    def __init__(
        self, texts: Sequence[Sequence[str]], ids: dict[str, int], rate: float, spell: Spell = unknown
    ) -> None:
        super().__init__(texts)
        self._spell = spell
        # Ids are in the order of training: pairs with smaller ids are merged first.
        self._ids, self._rate = ids, rate
        merged = [self._merge(word) for word in self._words]
        self._tried = np.array([tried for _, tried in merged], dtype=np.int32)
        # Numbers of the splits with a dropped merge, DROPOUT_SPLITS per word; -1 if not yet computed.
        self._dropout_splits = np.full(len(self._words) * DROPOUT_SPLITS, -1, dtype=np.int32)
        # All computed splits, concatenated. Those without a dropped merge come first, in the order of words.
        self._known: IntArray = np.empty(0, dtype=np.int32)
        self._starts: IntArray = np.zeros(1, dtype=np.int64)
        self._add_splits([ids for ids, _ in merged])

    def _add_splits(self, splits: Sequence[list[int]]) -> None:
        more = np.fromiter(itertools.chain.from_iterable(splits), dtype=np.int32)
        ends = self._starts[-1] + np.cumsum([len(one) for one in splits], dtype=np.int64)
        self._known, self._starts = np.concatenate([self._known, more]), np.concatenate([self._starts, ends])

    def _split(self, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        chosen = self._choose(generator)
        starts, lengths = self._starts[chosen], np.diff(self._starts)[chosen]
        before = lengths.cumsum() - lengths
        return self._known[np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))], lengths

    def _choose(self, generator: np.random.Generator) -> IntArray:
        """Return the number of a split for each word of the texts."""
        words = self._number_of_word
        chosen = words.copy()
        intact = (1 - self._rate) ** self._tried  # the probability that no merge is dropped
        (places,) = np.nonzero(generator.random(len(words)) >= intact[words])
        keys = words[places] * np.int64(DROPOUT_SPLITS) + generator.integers(DROPOUT_SPLITS, size=len(places))
        new = np.unique(keys[self._dropout_splits[keys] < 0])
        self._dropout_splits[new] = np.arange(len(new)) + len(self._starts) - 1
        self._add_splits([self._split_with_drop(*divmod(key, DROPOUT_SPLITS)) for key in new.tolist()])
        chosen[places] = self._dropout_splits[keys]
        return chosen

    def _split_with_drop(self, number: int, variant: int) -> list[int]:
        """Return one of the splits of a word with a dropped merge."""
        generator = random.Random(f"{variant} {self._words[number]}")
        ids, _ = self._merge(self._words[number], _Drops(self._rate, generator, within=int(self._tried[number])))
        return ids

    def _merge(self, word: str, drops: _Drops | None = None) -> tuple[list[int], int]:
        """Return the ids of a word, and the number of merges that were tried."""
        ids, symbols, tried = self._ids, list(word), 0
        ranks = [ids.get(left + right, _NEVER) for left, right in itertools.pairwise(symbols)]
        while ranks and (best := min(ranks)) != _NEVER:
            here = ranks.index(best)
            tried += 1
            if drops is not None and drops.next():
                # Until a neighbour changes, which makes it another pair.
                ranks[here] = _NEVER
                continue
            symbols[here : here + 2] = [symbols[here] + symbols[here + 1]]
            del ranks[here]
            for pair in range(max(here - 1, 0), min(here + 1, len(ranks))):
                ranks[pair] = ids.get(symbols[pair] + symbols[pair + 1], _NEVER)
        found = ([ids[symbol]] if symbol in ids else self._spell(symbol) for symbol in symbols)
        return list(itertools.chain.from_iterable(found)), tried


class _Drops:
    """Decides for every merge that is tried whether it is dropped. At least one of the first `within` is.

    It draws the number of merges before the next drop, which takes fewer random numbers than one per merge.
    """

    def __init__(self, rate: float, generator: random.Random, *, within: int) -> None:
        self._rate, self._generator = rate, generator
        self._kept = min(self._gap(1 - (1 - rate) ** within), within - 1)

    def _gap(self, most: float = 1.0) -> int:
        if self._rate == 1:
            return 0
        return int(math.log1p(-most * self._generator.random()) / math.log1p(-self._rate))

    def next(self) -> bool:
        dropped = self._kept == 0
        self._kept = self._gap() if dropped else self._kept - 1
        return dropped


class UnigramSampling(Resampled):
    """Draws the split of each word with probability proportional to P(split) ** rate (Kudo 2018, section 3.3)."""

    def __init__(
        self,
        texts: Sequence[Sequence[str]],
        scores: dict[str, tuple[int, float]],
        rate: float,
        spell: Spell = unknown,
    ) -> None:
        super().__init__(texts)
        self._spell = spell
        # Id and log probability of each subword.
        self._scores, self._rate = scores, rate
        self._longest = max(map(len, scores))
        self._lattice = lru_cache(_CACHED_WORDS)(self._forward)

    def _split(self, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
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
        # From the last subword to the first.
        while end > 0:
            weights, starts = lattice[end - 1]
            start = starts[bisect(weights, draw.random() * weights[-1], hi=len(starts) - 1)]
            subword = word[start:end]
            ids += [self._scores[subword][0]] if subword in self._scores else self._spell(subword)[::-1]
            end = start
        return ids[::-1]

    def _score(self, subword: str) -> float:
        return self._scores[subword][1] if subword in self._scores else _UNKNOWN_SCORE

    def _forward(self, word: str) -> list[tuple[tuple[float, ...], tuple[int, ...]]]:
        """Return for each end position the cumulative weights of the subwords that end there, and their start positions."""
        totals = [0.0]  # log of the total weight of all splits up to each position
        lattice = []
        for end in range(1, len(word) + 1):
            starts = [start for start in range(max(0, end - self._longest), end - 1) if word[start:end] in self._scores]
            starts.append(end - 1)  # a single character, known or not
            logs = [totals[start] + self._rate * self._score(word[start:end]) for start in starts]
            top = max(logs)
            weights = tuple(itertools.accumulate(math.exp(log - top) for log in logs))
            totals.append(top + math.log(weights[-1]))
            lattice.append((weights, tuple(starts)))
        return lattice
