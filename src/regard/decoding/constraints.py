"""The automata of the rows of a search, and what they make of a step's logits.

Shapes: R rows, V columns of the scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, State
from regard.decoding.ranking import IMPOSSIBLE

FREE = State()


@dataclass(frozen=True)
class Demands:
    """What the outputs of a batch must have: an automaton for each sentence, or None."""

    automata: Sequence[Automaton | None]
    never: tuple[int, ...] = ()  # columns that no sentence outputs unless its automaton asks for them
    # The tokens that each sentence may output; None: those of the whole vocabulary (`decoding.shortlist`).
    vocabularies: Sequence[NDArray[np.int64]] | None = None

    @classmethod
    def prefixes(cls, prefixes: Sequence[Sequence[int]], *, eos: int) -> Demands:
        """Return the demand that the output of each sentence begins with a prefix."""
        return cls([Automaton(eos, tuple(prefix)) if prefix else None for prefix in prefixes])

    def limit(self, sentence: int, limit: int, options: SearchOptions) -> int:
        """Return the most tokens of a sentence, with room for its prefix, and for its phrases unless `max_length` is set."""
        automaton = self.automata[sentence]
        if automaton is None:
            return limit
        more = automaton.total - len(automaton.symbols) if options.max_length is None else 0
        return max(limit + more, len(automaton.prefix) + 1)

    def constraints(self, limits: Sequence[int]) -> Constraints:
        """Return the constraints of a search with one row per sentence. `limits` are the most tokens of each."""
        return Constraints(list(self.automata), list(limits), self.never)


@dataclass
class Constraints:
    """What each row of a search may and must still output. Rows are the sentences at first, and their beams later."""

    automata: list[Automaton | None]  # of each row
    limits: list[int]  # the most tokens of each row
    never: tuple[int, ...]  # columns that no row outputs unless its automaton asks for them

    def __post_init__(self) -> None:
        self.states = [FREE] * len(self.automata)
        self.never_ids = torch.tensor(self.never, dtype=torch.int64)
        self.constrained = any(one is not None for one in self.automata)

    def force(self, logits_RV: Tensor, before_RV: Tensor | None = None) -> None:
        """Make impossible what may not come next. `before_RV` are the logits before others did so, if that matters."""
        given_RV = logits_RV if before_RV is None else before_RV
        if self.never_ids.device != logits_RV.device:
            self.never_ids = self.never_ids.to(logits_RV.device)
        if not self.constrained:
            logits_RV.index_fill_(1, self.never_ids, IMPOSSIBLE)
            return
        banned: list[tuple[int, int]] = []
        kept: list[tuple[int, int]] = []
        forced: list[int] = []
        likeliest = given_RV.argmax(dim=-1).tolist()
        for row, (automaton, state) in enumerate(zip(self.automata, self.states, strict=True)):
            if automaton is None:
                continue
            only, forbidden = automaton.next_tokens(state, self.limits[row] - state.length)
            if only is None and likeliest[row] == automaton.eos and automaton.eos in forbidden:
                # The model has nothing more to say, so what is missing comes now.
                only = frozenset(automaton.wanted(state))
            if only is not None:
                forced.append(row)
                kept += [(row, token) for token in only]
            else:
                banned += [(row, token) for token in forbidden]
                kept += [(row, token) for token in automaton.symbols if token not in forbidden]
        values = given_RV[_places(kept)] if kept else None
        logits_RV.index_fill_(1, self.never_ids, IMPOSSIBLE)
        if forced:
            logits_RV[forced] = IMPOSSIBLE
        if banned:
            logits_RV[_places(banned)] = IMPOSSIBLE
        if values is not None:
            logits_RV[_places(kept)] = values

    def reorder(self, rows: Sequence[int]) -> None:
        """Continue with these rows."""
        self.automata = [self.automata[row] for row in rows]
        self.states = [self.states[row] for row in rows]
        self.limits = [self.limits[row] for row in rows]
        self.constrained = any(one is not None for one in self.automata)

    def output(self, tokens: Iterable[int]) -> None:
        """Take note of the token that each row outputs."""
        if not self.constrained:
            return
        self.states = [
            state if automaton is None else automaton.advance(state, token)
            for automaton, state, token in zip(self.automata, self.states, tokens, strict=True)
        ]


def _places(pairs: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    rows, columns = zip(*pairs, strict=True)
    return torch.tensor(rows), torch.tensor(columns)
