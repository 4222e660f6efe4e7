"""A vocabulary per sentence: the likely translations of its tokens, and the most frequent tokens of all.

Probabilities are those of the shortlist: scores are a little higher than with the whole vocabulary. `regard align` learns
it; `shortlist_model` and the engine use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from regard.text.symbols import EOS

FREQUENT = 1000  # most frequent target tokens, which every sentence has
MOST = 100  # translations of a token that are kept


class Shortlist(msgspec.Struct, frozen=True):
    """Likely translations of each source token, likeliest first, and the most frequent target tokens."""

    size: int  # of the target vocabulary
    frequent: list[int]
    translations: dict[int, list[int]]
    shared: bool  # whether both sides have one vocabulary, so that any token may be copied

    @classmethod
    def learnt(
        cls, target_ids: NDArray[Any], translations: Mapping[int, list[int]], *, size: int, shared: bool
    ) -> Shortlist:
        """Return the shortlist of a training corpus: all ids of its targets, and likely translations of each token."""
        counts = np.bincount(target_ids, minlength=size)
        order = np.argsort(-counts, kind="stable")[:FREQUENT]
        return cls(size, order[counts[order] > 0].tolist(), dict(translations), shared)

    def fits(self, size: int) -> bool:
        """Whether it is of a target vocabulary of this size."""
        ids = [*self.frequent, *(one for some in self.translations.values() for one in some)]
        return self.size == size and min(ids, default=0) >= 0 and max(ids, default=0) < size

    def vocabulary(self, source: Iterable[int], most: int, more: Iterable[int] = ()) -> NDArray[np.int64]:
        """Return the sorted ids that the output for a source may have: `most` translations per token, and `more`."""
        ids = {EOS, *self.frequent, *more}
        for token in source:
            ids.update(self.translations.get(token, ())[:most])
            if self.shared:
                ids.add(token)
        return np.array(sorted(ids), dtype=np.int64)
