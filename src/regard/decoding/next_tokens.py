"""Which tokens may come next in each row of a search: the model's columns, the options and the constraints decide.

Shapes: R rows, T tokens of each output so far, V columns of the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.decoding.constraints import Constraints
from regard.decoding.ranking import IMPOSSIBLE
from regard.decoding.repetition import forbid_repetition, forbids_repetition
from regard.models.base import Seq2Seq


@dataclass
class NextTokens:
    """What the rows of a search may output. Rows are the sentences at first, and their beams later."""

    model: Seq2Seq
    options: SearchOptions
    constraints: Constraints | None

    def __post_init__(self) -> None:
        self.forbids_repetition = forbids_repetition(self.options)
        self.output_RT: Tensor | None = None  # the outputs so far, if repetition is forbidden

    def restrict(self, logits_RV: Tensor, step: int) -> None:
        """Make impossible what may not come next."""
        columns = (*self.model.never, self.model.eos) if step < self.options.min_length else self.model.never
        for column in columns:
            logits_RV.select(1, column).fill_(IMPOSSIBLE)
        before_RV = None
        if self.output_RT is not None:
            # What a constraint asks for may be a repetition.
            before_RV = logits_RV.clone() if self.constraints is not None else None
            forbid_repetition(logits_RV, self.output_RT, self.options)
        if self.constraints is not None:
            self.constraints.force(logits_RV, before_RV)

    def reorder(self, rows: Tensor, places: Sequence[int] | None = None) -> None:
        """Continue with these rows. `places` are the same, where the host has them."""
        if self.output_RT is not None:
            self.output_RT = self.output_RT[rows]
        if self.constraints is not None:
            self.constraints.reorder(rows.tolist() if places is None else places)

    def output(self, tokens: Tensor, ids: Sequence[int] | None = None) -> None:
        """Take note of the token that each row outputs. `ids` are the same, where the host has them."""
        if self.forbids_repetition:
            column = tokens[:, None]
            self.output_RT = column if self.output_RT is None else torch.cat([self.output_RT, column], dim=1)
        if self.constraints is not None and self.constraints.constrained:
            self.constraints.output(tokens.tolist() if ids is None else ids)
