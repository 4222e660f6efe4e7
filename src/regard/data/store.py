"""Token ids of many sentences as one flat array and its offsets: small, quick to slice, ready to be memory-mapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class IdStore:
    """Sentence i is ids[offsets[i]:offsets[i+1]]."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_lists(cls, sentences: Sequence[Sequence[int]]) -> IdStore:
        """The sentences, copied."""
        lengths = np.fromiter((len(sentence) for sentence in sentences), dtype=np.int64, count=len(sentences))
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])
        ids = np.fromiter(chain.from_iterable(sentences), dtype=np.int32, count=int(offsets[-1]))
        return cls(ids, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> list[int]:
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of a store of {len(self)}")
        return self.ids[self.offsets[index] : self.offsets[index + 1]].tolist()

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of each of these sentences."""
        return self.offsets[rows + 1] - self.offsets[rows]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence."""
        return np.diff(self.offsets)
