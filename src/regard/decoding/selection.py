"""Which continuations become the beams of a sentence, where the best scores alone do not decide.

With phrases that an output must contain, the beams are divided over how much of them has been met (dynamic beam allocation,
Post and Vilar 2018), because continuations with a demanded token usually score lower than others at first. In diverse beam
search (Vijayakumar et al. 2018), they are divided into groups that avoid each other's tokens.

Both look at some candidates of every row. They return those that end the output, and those that continue it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, State


class Continuation(NamedTuple):
    """A continuation of a row by one token."""

    score: float  # log-probability of the output
    token: int
    row: int


class Selected(NamedTuple):
    """The beams of a sentence after a step."""

    ended: list[Continuation]  # at most as many as there are beams
    open: list[Continuation]  # at most as many, too


def select_by_progress(
    candidates: Iterable[Continuation], automaton: Automaton, states: Mapping[int, State], *, beams: int
) -> Selected:
    """Return the beams of a sentence, given candidates and the states of its rows.

    Beams are given in turn to the candidates that have met most, second most, and so on.
    """
    ended: list[Continuation] = []
    banks: dict[int, list[Continuation]] = {}
    for one in sorted(candidates, key=lambda one: -one.score):
        if one.token == automaton.eos:
            ended.append(one)
        else:
            remaining = automaton.remaining_after(states[one.row], one.token)
            banks.setdefault(remaining, []).append(one)
    # An output ends if it is among the best of those with everything met, as it does where nothing is demanded.
    rivals = sorted([*ended, *banks.get(0, [])], key=lambda one: -one.score)[:beams]
    chosen: list[Continuation] = []
    waiting = [banks[remaining] for remaining in sorted(banks)]
    while waiting and len(chosen) < beams:
        chosen += [bank.pop(0) for bank in waiting[: beams - len(chosen)]]
        waiting = [bank for bank in waiting if bank]
    return Selected([one for one in rivals if one.token == automaton.eos], chosen)


class DiverseGroups:
    """The groups of all beams of a search."""

    def __init__(self, options: SearchOptions, eos: int) -> None:
        self.options, self.eos = options, eos
        self.size = options.beam // options.beam_groups
        # How many candidates of each row decide: the penalty moves at most as many tokens behind others as there are beams.
        self.per_row = 2 * self.size + options.beam
        self.groups: dict[int, list[int]] = {}  # of the beams of each sentence

    def select(self, sentence: int, candidates: Iterable[Continuation]) -> Selected:
        """Return the beams of a sentence."""
        before = self.groups.get(sentence)  # None: all groups continue the same row
        ordered = sorted(candidates, key=lambda one: -one.score)
        found, after, taken = Selected([], []), list[int](), Counter[int]()
        for group in range(self.options.beam_groups):
            own = [one for one in ordered if before is None or before[one.row % self.options.beam] == group]
            own.sort(key=lambda one: self.options.diversity_penalty * taken[one.token] - one.score)
            found.ended.extend(one for one in own[: self.size] if one.token == self.eos)
            chosen = [one for one in own if one.token != self.eos][: self.size]
            taken.update(one.token for one in chosen)
            found.open.extend(chosen)
            after += [group] * len(chosen)
        # Beams without a candidate are impossible, in whatever group.
        self.groups[sentence] = after + [0] * (self.options.beam - len(after))
        return found
