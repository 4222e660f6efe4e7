"""The automata of the rows of a search, and what they make of a step's scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, State
from regard.decoding.step_model import Integers, Scores

FREE = State()


@dataclass(frozen=True)
class Demands:
    """What the outputs of a batch must have: an automaton for each sentence, or None."""

    automata: Sequence[Automaton | None]
    never: tuple[int, ...] = ()  # columns that no sentence outputs unless its automaton asks for them
    # The tokens that each sentence may output; None: those of the whole vocabulary (`decoding.shortlist`).
    vocabularies: Sequence[Integers] | None = None

    @classmethod
    def prefixes(cls, prefixes: Sequence[Sequence[int]], *, eos: int) -> Demands:
        """Return the demand that the output of each sentence begins with a prefix."""
        return cls([Automaton(eos, tuple(prefix)) if prefix else None for prefix in prefixes])

    def of(self, sentences: Sequence[int]) -> Demands | None:
        """Return the demands on some of the sentences; None: there are none."""
        automata = [self.automata[sentence] for sentence in sentences]
        vocabularies = self.vocabularies and [self.vocabularies[sentence] for sentence in sentences]
        if not self.never and vocabularies is None and all(one is None for one in automata):
            return None
        return Demands(automata, self.never, vocabularies)

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
        self.constrained = any(one is not None for one in self.automata)

    def force(self, scores: Scores, repeated: tuple[Integers, Integers] | None = None) -> None:
        """Make impossible what may not come next, with entries that others forbid (`repeated`) unless they are asked for."""
        banned: list[tuple[int, int]] = []
        kept: list[tuple[int, int]] = []
        forced: list[int] = []
        if self.constrained:
            banned, kept, forced = self._next(scores.likeliest())
        rows, columns = [row for row, _ in kept], [column for _, column in kept]
        values = scores.take(rows, columns) if kept else None
        if repeated is not None and len(repeated[0]):
            scores.ban(*repeated)
        scores.ban_columns(self.never)
        if forced:
            scores.ban_rows(forced)
        if banned:
            scores.ban([row for row, _ in banned], [column for _, column in banned])
        if kept:
            scores.put(rows, columns, values)

    def _next(self, likeliest: Sequence[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]:
        """Return the entries that may not come next, those that may, and the rows that have no others."""
        banned: list[tuple[int, int]] = []
        kept: list[tuple[int, int]] = []
        forced: list[int] = []
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
        return banned, kept, forced

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
