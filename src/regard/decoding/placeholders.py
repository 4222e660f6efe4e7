"""A constraint of search: the placeholders of a source appear in its output exactly once, and no others do.

Shapes: B sentences, R rows, P placeholders, V entries per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.ranking import IMPOSSIBLE


class WantedSymbols(NamedTuple):
    """The placeholders that an output must have, by their indices. Those in `in_order` keep the order of the source."""

    all: tuple[int, ...] = ()
    in_order: tuple[int, ...] = ()


class Placeholders(NamedTuple):
    """The columns of all placeholders, and what each sentence of a batch wants of them."""

    ids: tuple[int, ...]
    wanted: tuple[WantedSymbols, ...]


class PlaceholderConstraint:
    """What each row of a search may and must still output. Rows are the sentences at first, and their beams later."""

    def __init__(self, placeholders: Placeholders, limits: Sequence[int], eos: int, device: torch.device) -> None:
        """`limits` are the most tokens of each sentence."""
        ids, wanted = placeholders
        self.ids, self.eos = torch.tensor(ids, device=device), eos
        missing, ordered = torch.zeros((2, len(wanted), len(ids)), dtype=torch.bool)
        for row, one in enumerate(wanted):
            missing[row, list(one.all)] = True
            ordered[row, list(one.in_order)] = True
        self.missing_RP, self.ordered_RP = missing.to(device), ordered.to(device)
        self.limit_R = torch.tensor(limits, device=device)
        # Most batches want none. Then no row ever does, and a step costs little.
        self.wants = bool(missing.any())

    def force(self, logits_RV: Tensor, step: int) -> None:
        """Make impossible what may not come next.

        That is a placeholder that is not wanted or not yet, the end while one is missing, and where there is only room for
        the missing ones, everything else.
        """
        if not self.wants:
            logits_RV[:, self.ids] = IMPOSSIBLE
            return
        in_order_RP = self.missing_RP & self.ordered_RP
        # Of those that keep their order, only the first may come next.
        next_RP = self.missing_RP & (~self.ordered_RP | (in_order_RP.cumsum(1) == 1))
        scores_RP = logits_RV[:, self.ids].masked_fill(~next_RP, IMPOSSIBLE)
        count_R = self.missing_RP.sum(1)
        logits_RV[:, self.eos].masked_fill_(count_R > 0, IMPOSSIBLE)
        logits_RV.masked_fill_(((count_R > 0) & (count_R >= self.limit_R - step))[:, None], IMPOSSIBLE)
        logits_RV[:, self.ids] = scores_RP

    def reorder(self, rows: Tensor) -> None:
        """Continue with these rows."""
        self.missing_RP, self.ordered_RP = self.missing_RP[rows], self.ordered_RP[rows]
        self.limit_R = self.limit_R[rows]

    def output(self, tokens: Tensor) -> None:
        """Take note of the token that each row outputs."""
        if self.wants:
            self.missing_RP = self.missing_RP & (self.ids != tokens[:, None])
