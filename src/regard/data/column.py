"""Token ids of many sentences as one flat array and its offsets: small, quick to slice, the same in memory and on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[Any]  # int32, or uint16 on disk


@dataclass(frozen=True)
class IdColumn:
    """Sentence i is ids[offsets[i]:offsets[i+1]]."""

    ids: Ids
    offsets: NDArray[np.int64]

    @classmethod
    def from_lists(cls, sentences: Sequence[Sequence[int]], dtype: str = "int32") -> IdColumn:
        """The sentences, copied."""
        lengths = np.fromiter((len(sentence) for sentence in sentences), dtype=np.int64, count=len(sentences))
        offsets = _offsets(lengths)
        ids = np.fromiter(chain.from_iterable(sentences), dtype=np.dtype(dtype), count=int(offsets[-1]))
        return cls(ids, offsets)

    @classmethod
    def join(cls, stores: Sequence[IdColumn]) -> IdColumn:
        """The sentences of all of them."""
        lengths = np.concatenate([np.zeros(0, dtype=np.int64), *(store.lengths for store in stores)])
        return cls(np.concatenate([store.ids for store in stores]), _offsets(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> list[int]:
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of a store of {len(self)}")
        return self.ids[self.offsets[index] : self.offsets[index + 1]].tolist()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence."""
        return np.diff(self.offsets)

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of each of these sentences."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def ids_of(self, rows: NDArray[np.int64], *, end: int) -> Ids:
        """These sentences laid end to end, each with the id `end` behind it; no Python loop over tokens."""
        lengths = self.lengths_of(rows)
        ends = (lengths + 1).cumsum()
        places = np.repeat(self.offsets[rows] - (ends - lengths - 1), lengths + 1) + np.arange(int(ends[-1]))
        places[ends - 1] = 0  # any place that is there
        ids = self.ids[places] if len(self.ids) else np.empty(len(places), dtype=self.ids.dtype)
        ids[ends - 1] = end
        return ids

    def take(self, rows: NDArray[np.int64]) -> IdColumn:
        """A store of these sentences alone, copied."""
        lengths = self.lengths_of(rows)
        offsets = _offsets(lengths)
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
        return IdColumn(np.asarray(self.ids[places]), offsets)


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])
