"""What an output must have, as an automaton that the search of one sentence follows.

The output begins with a prefix, contains phrases, and contains symbols that stand for spans of the source exactly once. A
phrase may have several forms, of which one is enough. A state says how much of this has been met; the automaton says
which tokens may come next. It never lets the output become so long that the rest does not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

Form = tuple[int, ...]


@dataclass(frozen=True)
class Phrase:
    """A run of tokens that the output must contain, in one of its forms."""

    forms: tuple[Form, ...]
    whole_words: bool = True  # whether it counts only if the word at its end is not continued


class State(NamedTuple):
    """Where an output is: how many tokens it has, which demands are met, and its last tokens."""

    length: int = 0
    met: int = 0  # a bit per demand
    tail: Form = ()


class Allowed(NamedTuple):
    """Which tokens may come next: `only` these if it is not None, else all but those in `never`."""

    only: frozenset[int] | None = None
    never: tuple[int, ...] = ()


@dataclass(frozen=True)
class Automaton:
    """The demands on the output of one sentence."""

    eos: int
    prefix: Form = ()
    phrases: tuple[Phrase, ...] = ()
    symbols: Form = ()  # each of them comes exactly once
    in_order: Form = ()  # those of the symbols that keep this order
    continuing: Collection[int] = frozenset()  # tokens that continue the word before them

    def __bool__(self) -> bool:
        return bool(self.prefix or self._demands)

    @cached_property
    def _demands(self) -> tuple[Phrase, ...]:
        return (*self.phrases, *(Phrase(((symbol,),), whole_words=False) for symbol in self.symbols))

    @cached_property
    def _shortest(self) -> tuple[int, ...]:
        return tuple(min(map(len, demand.forms)) for demand in self._demands)

    @cached_property
    def _kept(self) -> int:
        """How many of its last tokens a state keeps."""
        return 1 + max((len(form) for demand in self._demands for form in demand.forms), default=0)

    @property
    def total(self) -> int:
        """The fewest tokens with which everything is met, the prefix not counted."""
        return sum(self._shortest)

    @property
    def tokens(self) -> frozenset[int]:
        """All tokens that it may ask for."""
        forms = [form for demand in self._demands for form in demand.forms]
        return frozenset(token for form in (self.prefix, *forms) for token in form)

    def advance(self, state: State, token: int) -> State:
        """Return the state after one more token."""
        tail = (*state.tail, token)[-self._kept :]
        met = state.met
        for number, demand in self._unmet(state):
            seen = tail
            if demand.whole_words:
                # Met by the token after the phrase, which shows that the word has ended.
                if token != self.eos and token in self.continuing:
                    continue
                seen = tail[:-1]
            if any(_ends_with(seen, form) for form in demand.forms):
                met |= 1 << number
        return State(state.length + 1, met, tail)

    def accepts(self, state: State) -> bool:
        """Whether everything is met if the output ends here."""
        return state.length >= len(self.prefix) and all(self._is_complete(state, one) for _, one in self._unmet(state))

    def unmet(self, ids: Collection[int]) -> list[int]:
        """Return the numbers of the phrases that an output lacks."""
        state = State()
        for token in ids:
            state = self.advance(state, token)
        state = self.advance(state, self.eos)
        return [number for number in range(len(self.phrases)) if not state.met >> number & 1]

    def remaining(self, state: State) -> int:
        """Return the fewest tokens that must still come, if what has begun is continued."""
        unmet = list(self._unmet(state))
        saved = (self._shortest[number] - self._missing(state, demand) for number, demand in unmet)
        return sum(self._shortest[number] for number, _ in unmet) - max((0, *saved))

    def wanted(self, state: State) -> set[int]:
        """Return the tokens that begin or continue something that is not met."""
        if state.length < len(self.prefix):
            return {self.prefix[state.length]}
        found = set()
        for _, demand in self._unmet(state):
            for form in demand.forms:
                begun = _begun(state.tail, form)
                found |= {form[0]} | ({form[begun]} if begun < len(form) else set())
        return found - set(self._not_yet(state))

    def next_tokens(self, state: State, room: int) -> Allowed:
        """Return which tokens may come next if there is room for so many, EOS not counted."""
        if state.length < len(self.prefix):
            return Allowed(only=frozenset({self.prefix[state.length]}))
        ends = self.accepts(state)
        # Any token may come if afterwards there is room for all, even if it breaks off what has begun.
        if sum(self._shortest[number] for number, _ in self._unmet(state)) < room:
            return Allowed(never=(*self._not_yet(state), *(() if ends else (self.eos,))))
        now = self.remaining(state)
        forced = {token for token in self.wanted(state) if self.remaining(self.advance(state, token)) < now}
        # Where nothing fits any more, the output continues with as much as does.
        return Allowed(only=frozenset(forced | ({self.eos} if ends else set())) or None)

    def _unmet(self, state: State) -> Iterator[tuple[int, Phrase]]:
        for number, demand in enumerate(self._demands):
            if not state.met >> number & 1:
                yield number, demand

    def _not_yet(self, state: State) -> list[int]:
        """Return the symbols that may not come next: they have been there, or others come before them."""
        first = len(self.phrases)
        there = {symbol for at, symbol in enumerate(self.symbols, first) if state.met >> at & 1}
        waiting = [symbol for symbol in self.in_order if symbol not in there][1:]
        return [*there, *waiting]

    def _is_complete(self, state: State, demand: Phrase) -> bool:
        return demand.whole_words and any(_ends_with(state.tail, form) for form in demand.forms)

    def _missing(self, state: State, demand: Phrase) -> int:
        return min(len(form) - _begun(state.tail, form) for form in demand.forms)


def _ends_with(tail: Form, form: Form) -> bool:
    return tail[len(tail) - len(form) :] == form if len(form) <= len(tail) else False


def _begun(tail: Form, form: Form) -> int:
    """Return how many tokens of the form the tail ends with."""
    return next((count for count in range(min(len(form), len(tail)), 0, -1) if tail[-count:] == form[:count]), 0)
