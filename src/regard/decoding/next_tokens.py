"""Which tokens may come next in each row of a search: the model's columns, the options and the constraints decide.

Shapes: R rows, T tokens of each output so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.config import SearchOptions
from regard.decoding.constraints import Constraints
from regard.decoding.repetition import forbids_repetition, repetitions
from regard.decoding.step_model import Integers, OutputColumns, Scores


@dataclass
class NextTokens:
    """What the rows of a search may output. Rows are the sentences at first, and their beams later."""

    model: OutputColumns
    options: SearchOptions
    constraints: Constraints | None

    def __post_init__(self) -> None:
        self.forbids_repetition = forbids_repetition(self.options)
        self.output_RT: Integers | None = None  # the outputs so far, if repetition is forbidden

    def restrict(self, scores: Scores, step: int) -> None:
        """Make impossible what may not come next."""
        never = self.model.never
        scores.ban_columns((*never, self.model.eos) if step < self.options.min_length else never)
        repeated = None if self.output_RT is None else repetitions(self.output_RT, self.options)
        if self.constraints is not None:
            self.constraints.force(scores, repeated)
        elif repeated is not None and len(repeated[0]):
            scores.ban(*repeated)

    def reorder(self, rows: Integers) -> None:
        """Continue with these rows."""
        if self.output_RT is not None:
            self.output_RT = self.output_RT[rows]
        if self.constraints is not None:
            self.constraints.reorder(rows.tolist())

    def output(self, tokens: Integers) -> None:
        """Take note of the token that each row outputs."""
        if self.forbids_repetition:
            column = tokens[:, None]
            self.output_RT = column if self.output_RT is None else np.concatenate([self.output_RT, column], axis=1)
        if self.constraints is not None and self.constraints.constrained:
            self.constraints.output(tokens.tolist())
