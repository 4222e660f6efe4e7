"""What an output must have, as an automaton that the search of one sentence follows.

The output begins with a prefix, contains phrases, and contains symbols that stand for spans of the source exactly once. A
phrase may have several forms, of which one is enough. A state says how much of this has been met; the automaton says
which tokens may come next. It never lets the output become so long that the rest does not fit.

A step of search asks about thousands of tokens. So the forms are one automaton of Aho and Corasick (1975): a node stands for
the longest end of the output that begins a form, and everything that depends on this end is known of each node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
    """Where an output is: how many tokens it has, which demands are met, and which forms its last tokens begin."""

    length: int = 0
    met: int = 0  # a bit per demand
    node: int = 0


class Allowed(NamedTuple):
    """Which tokens may come next: `only` these if it is not None, else all but those in `never`."""

    only: frozenset[int] | None = None
    never: tuple[int, ...] = ()


class Node(NamedTuple):
    """What is known of outputs with the same end. Demands are bits, as in a state."""

    moves: dict[int, int]  # the node after a token; the first one if it is not there
    begun: dict[
        tuple[int, Form], int
    ]  # how many tokens of a form, given with the number of its demand, the output ends with
    ended: int  # the demands of which a form ends here
    saved: tuple[tuple[int, int], ...]  # tokens that need not come any more, and for which demand; the most first
    following: tuple[tuple[int, int], ...]  # tokens that continue a form, and for which demand


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
    def _nodes(self) -> list[Node]:
        return _make_nodes(self._demands, self._shortest)

    @cached_property
    def _whole_words(self) -> int:
        """The demands, as bits, that count only if the word at their end is not continued."""
        return sum(1 << number for number, demand in enumerate(self._demands) if demand.whole_words)

    @cached_property
    def _known_rest(self) -> dict[int, int]:
        return {}

    @cached_property
    def _known_wanted(self) -> dict[tuple[int, int], frozenset[int]]:
        return {}

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
        return State(state.length + 1, *self._after(state, token))

    def _after(self, state: State, token: int) -> tuple[int, int]:
        """Return which demands are met after one more token, and the node."""
        before = self._nodes[state.node]
        node = before.moves.get(token, 0)
        met = state.met | self._nodes[node].ended & ~self._whole_words
        # A phrase is met by the token after it, which shows that the word has ended.
        if token == self.eos or token not in self.continuing:
            met |= before.ended & self._whole_words
        return met, node

    def accepts(self, state: State) -> bool:
        """Whether everything is met if the output ends here."""
        met = state.met | self._nodes[state.node].ended & self._whole_words
        return state.length >= len(self.prefix) and met == (1 << len(self._demands)) - 1

    def unmet(self, ids: Iterable[int]) -> list[int]:
        """Return the numbers of the phrases that an output lacks."""
        ids = tuple(ids)
        ends = range(1, len(ids) + 1)
        word_ends = [at for at in ends if at == len(ids) or ids[at] not in self.continuing]
        lengths = {(len(form), phrase.whole_words) for phrase in self.phrases for form in phrase.forms}
        there = {
            (whole, ids[at - length : at])
            for length, whole in lengths
            for at in (word_ends if whole else ends)
            if at >= length
        }
        return [
            number
            for number, phrase in enumerate(self.phrases)
            if not any((phrase.whole_words, form) in there for form in phrase.forms)
        ]

    def remaining(self, state: State) -> int:
        """Return the fewest tokens that must still come, if what has begun is continued."""
        return self._remaining(state.met, state.node)

    def remaining_after(self, state: State, token: int) -> int:
        """Return the same after one more token. Search asks this of many tokens, and continues with few of them."""
        return self._remaining(*self._after(state, token))

    def _remaining(self, met: int, node: int) -> int:
        rest = self._rest(met)
        for saved, demand in self._nodes[node].saved:
            if not met & demand:
                return rest - saved
        return rest

    def wanted(self, state: State) -> frozenset[int]:
        """Return the tokens that begin or continue something that is not met."""
        if state.length < len(self.prefix):
            return frozenset({self.prefix[state.length]})
        key = state.met, state.node
        if key not in self._known_wanted:
            found = {token for token, demand in self._nodes[state.node].following if not state.met & demand}
            for number, demand in enumerate(self._demands):
                if not state.met >> number & 1:
                    found.update(form[0] for form in demand.forms)
            self._known_wanted[key] = frozenset(found.difference(self._not_yet(state)))
        return self._known_wanted[key]

    def next_tokens(self, state: State, room: int) -> Allowed:
        """Return which tokens may come next if there is room for so many, EOS not counted."""
        if state.length < len(self.prefix):
            return Allowed(only=frozenset({self.prefix[state.length]}))
        ends = self.accepts(state)
        # Any token may come if afterwards there is room for all, even if it breaks off what has begun.
        if self._rest(state.met) < room:
            return Allowed(never=(*self._not_yet(state), *(() if ends else (self.eos,))))
        now = self.remaining(state)
        forced = {token for token in self.wanted(state) if self.remaining_after(state, token) < now}
        # Where nothing fits any more, the output continues with as much as does.
        return Allowed(only=frozenset(forced | ({self.eos} if ends else set())) or None)

    def _rest(self, met: int) -> int:
        """Return the fewest tokens that must still come, if what has begun is not continued."""
        if met not in self._known_rest:
            unmet = (length for number, length in enumerate(self._shortest) if not met >> number & 1)
            self._known_rest[met] = sum(unmet)
        return self._known_rest[met]

    def _not_yet(self, state: State) -> list[int]:
        """Return the symbols that may not come next: they have been there, or others come before them."""
        first = len(self.phrases)
        there = {symbol for at, symbol in enumerate(self.symbols, first) if state.met >> at & 1}
        waiting = [symbol for symbol in self.in_order if symbol not in there][1:]
        return [*there, *waiting]


def _make_nodes(demands: tuple[Phrase, ...], shortest: tuple[int, ...]) -> list[Node]:
    """Return the automaton of all forms."""
    children: list[dict[int, int]] = [{}]
    passing: list[dict[tuple[int, Form], int]] = [
        {}
    ]  # the forms through each node, and how many of their tokens it has
    for number, demand in enumerate(demands):
        for form in demand.forms:
            place = 0
            for depth, token in enumerate(form, start=1):
                if token not in children[place]:
                    children[place][token] = len(children)
                    children.append({})
                    passing.append({})
                place = children[place][token]
                passing[place][number, form] = depth
    nodes: dict[int, Node] = {0: Node(children[0], {}, 0, (), ())}
    # Those closer to the first one come first. The second number is the node of the longest shorter end.
    queue = [(place, 0) for place in children[0].values()]
    for place, shorter in queue:
        other = nodes[shorter]
        queue += [(child, other.moves.get(token, 0)) for token, child in children[place].items()]
        begun = {**other.begun, **passing[place]}
        ended, saved, following = 0, dict[int, int](), set[tuple[int, int]]()
        for (number, form), count in begun.items():
            bit = 1 << number
            saved[bit] = max(saved.get(bit, 0), shortest[number] - len(form) + count)
            if count < len(form):
                following.add((form[count], bit))
            else:
                ended |= bit
        best = sorted(((count, bit) for bit, count in saved.items() if count), reverse=True)
        nodes[place] = Node({**other.moves, **children[place]}, begun, ended, tuple(best), tuple(following))
    return [nodes[place] for place in range(len(nodes))]
