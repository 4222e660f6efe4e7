"""Beam search, batched over sentences: the model ranks candidates, and the host decides which of them to continue.

Shapes: B sentences that are not finished, Q beams (one in the first step), R = B * Q rows, C candidates per sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.decoding.hypothesis import IMPOSSIBLE, Check, Hypothesis, SearchResults, length_penalty, never_stop
from regard.decoding.next_tokens import NextTokens
from regard.decoding.selection import Continuation, DiverseGroups, Selected, select_by_progress
from regard.decoding.step_model import Floats, Integers, Scores, StepModel

COMPACT_BELOW = 0.75  # finished sentences are dropped once at most this share of a batch is still being searched


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence, best first, [B, C] each."""

    scores: Floats  # log-probabilities
    tokens: Integers
    parents: Integers  # the rows that they continue

    def at_least(self, count: int, *, eos: int) -> Candidates:
        """Return at least so many candidates. Impossible ones end the output: their columns may not exist."""
        missing = count - self.scores.shape[1]
        scores, tokens, parents = self.scores, self.tokens, self.parents
        if missing > 0:
            scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=IMPOSSIBLE)
            tokens = np.pad(tokens, ((0, 0), (0, missing)), constant_values=eos)
            parents = np.pad(parents, ((0, 0), (0, missing)), mode="edge")
        return Candidates(scores, np.where(scores == IMPOSSIBLE, eos, tokens), parents)

    def with_selected(self, place: int, selected: Selected, *, eos: int) -> Candidates:
        """Return the candidates with those of one sentence replaced: first those that end, then those that continue."""
        chosen = [*selected.ended, *selected.open]
        self.scores[place], self.tokens[place] = IMPOSSIBLE, eos
        for column, one in enumerate(chosen):
            self.scores[place, column], self.tokens[place, column] = one.score, one.token
            self.parents[place, column] = one.row
        return self

    def of(self, sentences: NDArray[np.bool_]) -> Candidates:
        """Return the candidates of these sentences."""
        return Candidates(self.scores[sentences], self.tokens[sentences], self.parents[sentences])


class BeamSearch:
    """The beams of all sentences of a batch, advanced together."""

    def __init__(self, model: StepModel, memory: object, limits: Sequence[int], next_tokens: NextTokens) -> None:
        self.model, self.options, self.next_tokens = model, next_tokens.options, next_tokens
        self.limits = list(limits)
        self.beams = self.options.beam  # after the first step; before it a sentence has one row
        self.state = model.start(memory, beams=self.beams)
        self.sentences = list(range(len(limits)))  # the sentence of each group of rows
        self.active = np.ones(len(limits), dtype=np.bool_)  # whether it is not finished
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]
        # Per step, each row's parent row, token, and log-probability so far.
        self.history: list[tuple[Integers, Integers, Floats]] = []
        (self.tokens,) = model.place(np.full(len(limits), model.bos, dtype=np.int64))
        (self.logp,) = model.place(np.zeros(len(limits), dtype=np.float32))  # of each row
        self.groups = DiverseGroups(self.options, model.eos) if self.options.beam_groups > 1 else None

    def run(self, check: Check = never_stop) -> Iterator[SearchResults]:
        """Yield the best hypotheses of each sentence as soon as it is finished. `check` is called before every step."""
        while self.active.any():
            check()
            candidates, before = self._candidates(), self.active
            self.active = self._collect(candidates)
            if done := [self.sentences[row] for row in np.flatnonzero(before & ~self.active)]:
                yield [(sentence, self._best(sentence)) for sentence in done]
            self._continue(candidates)

    def _best(self, sentence: int) -> list[Hypothesis]:
        found = self.finished[sentence]
        if self.groups is not None:  # which may have ended with the same output
            found = list({tuple(one.ids): one for one in found}.values())
        return sorted(found, key=lambda one: -one.score)[: self.options.nbest]

    def _candidates(self) -> Candidates:
        """Return the best continuations of each sentence."""
        Q = self.beams if self.history else 1
        scores = self.model.step(self.tokens, self.state)
        scores.prepare(normalized=True)
        self.next_tokens.restrict(scores, len(self.history))
        wanted = 2 * self.beams  # at most half of them can be EOS, so that enough remain to continue
        best = scores.best(self.logp, beams=Q, count=wanted, filler=self.model.eos)
        found = Candidates(*best).at_least(wanted, eos=self.model.eos)
        if self.groups is not None:
            every = self._of_rows(scores, self.groups.per_row)
            for place in np.flatnonzero(self.active).tolist():
                pool = [one for row in range(place * Q, place * Q + Q) for one in every[row]]
                found = found.with_selected(place, self.groups.select(self.sentences[place], pool), eos=self.model.eos)
        elif constrained := self._with_phrases(Q):
            every = self._of_rows(scores, wanted)
            self._add_wanted(every, scores, constrained, Q)
            for place in constrained:
                found = found.with_selected(place, self._by_progress(every, place, Q), eos=self.model.eos)
        return found

    def _collect(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Keep the hypotheses that ended among the best Q, and return which sentences remain active."""
        scores, tokens, length = candidates.scores, candidates.tokens, len(self.history) + 1
        possible = (scores > IMPOSSIBLE) & self.active[:, None]
        ended = (tokens == self.model.eos) & possible
        for row, column in np.argwhere(ended[:, : self.beams]).tolist():
            self._finish(row, candidates, column, length)
        open_ones = possible & ~ended
        best_open = np.where(open_ones, scores, IMPOSSIBLE).max(axis=1).tolist()
        active = np.zeros_like(self.active)
        for row in np.flatnonzero(self.active).tolist():
            found, limit = self.finished[self.sentences[row]], self.limits[self.sentences[row]]
            if length >= limit:
                # There is no room for another token: open hypotheses count as they are.
                columns = np.flatnonzero(open_ones[row])[: max(0, self.beams - len(found))]
                if self.options.early_stopping is not True:
                    columns = np.flatnonzero(open_ones[row, : self.beams])
                for column in columns:
                    self._finish(row, candidates, column, length)
            active[row] = length < limit and not self._done(found, best_open[row], length, limit)
        return active

    def _finish(self, row: int, candidates: Candidates, column: int, length: int) -> None:
        """Keep a candidate as a hypothesis."""
        token, score = int(candidates.tokens[row, column]), float(candidates.scores[row, column])
        ids, sums = self._output(int(candidates.parents[row, column]))
        token_scores = np.diff([0.0, *sums, score]).tolist() if self.options.token_scores else None
        ids = ids if token == self.model.eos else [*ids, token]
        penalty = length_penalty(length, self.options)
        self.finished[self.sentences[row]].append(Hypothesis(ids, score / penalty, token_scores))

    def _output(self, row: int) -> tuple[list[int], list[float]]:
        """Return the output of a row so far, and its log-probability after each token."""
        ids: list[int] = []
        sums: list[float] = []
        for rows, tokens, scores in reversed(self.history):
            ids.append(int(tokens[row]))
            sums.append(float(scores[row]))
            row = rows[row]
        return ids[::-1], sums[::-1]

    def _done(self, found: list[Hypothesis], best_open: float, length: int, limit: int) -> bool:
        """Whether enough hypotheses ended, or no open one can still become one of the best."""
        if len(found) >= self.beams and self.options.early_stopping is True:
            return True
        if len(found) < self.options.nbest:
            return best_open == IMPOSSIBLE
        scores = sorted((one.score for one in found), reverse=True)
        so_far = best_open / length_penalty(length, self.options)
        if len(found) >= self.beams and self.options.early_stopping is False and so_far <= scores[self.beams - 1]:
            return True
        # Log-probabilities only decrease, and the penalty divides most at the largest length.
        return best_open / length_penalty(limit, self.options) <= scores[self.options.nbest - 1]

    def _continue(self, candidates: Candidates) -> None:
        """Give each beam its next token, and drop the rows of finished sentences once there are many."""
        if self.active.sum() <= COMPACT_BELOW * self.active.size:
            candidates = candidates.of(self.active)
            self.sentences = [one for one, active in zip(self.sentences, self.active, strict=True) if active]
            self.active = self.active[self.active]
        if not self.sentences:
            return
        # The Q best candidates that do not end: the sort moves EOS behind all others and keeps their order.
        eos = self.model.eos
        order = np.argsort(candidates.tokens == eos, axis=1, kind="stable")[:, : self.beams]
        tokens = np.take_along_axis(candidates.tokens, order, 1)
        parents = np.take_along_axis(candidates.parents, order, 1)
        scores = np.take_along_axis(candidates.scores, order, 1)
        self.history.append((parents.ravel(), tokens.ravel(), scores.ravel()))
        first = len(self.history) == 1
        rows, self.tokens = self.model.place(parents.ravel() * (self.beams if first else 1), tokens.ravel())
        (self.logp,) = self.model.place(np.where(tokens == eos, np.float32(IMPOSSIBLE), scores).ravel())
        self.next_tokens.reorder(parents.ravel())
        self.next_tokens.output(tokens.ravel())
        if first:
            self.state.expand_beams()
        self.state.reorder(rows)

    # Where the best scores alone do not decide

    def _with_phrases(self, Q: int) -> list[int]:
        """Return the places of the sentences whose outputs must contain phrases."""
        constraints = self.next_tokens.constraints
        if constraints is None or not constraints.constrained:
            return []
        automata = [constraints.automata[place * Q] for place in range(len(self.sentences))]
        return [
            place
            for place, automaton in enumerate(automata)
            if automaton is not None and automaton.phrases and self.active[place]
        ]

    def _of_rows(self, scores: Scores, count: int) -> list[list[Continuation]]:
        """Return the best candidates of each row."""
        best = (one.tolist() for one in scores.best(self.logp, beams=1, count=count, filler=self.model.eos))
        return [
            [Continuation(*one) for one in zip(*three, strict=True) if one[0] > IMPOSSIBLE]
            for three in zip(*best, strict=True)
        ]

    def _add_wanted(self, every: list[list[Continuation]], scores: Scores, places: Sequence[int], Q: int) -> None:
        """Add the candidates with tokens of phrases, however low they score."""
        constraints = self.next_tokens.constraints
        assert constraints is not None
        pairs = []
        for row in (row for place in places for row in range(place * Q, place * Q + Q)):
            automaton, known = constraints.automata[row], {one.token for one in every[row]}
            assert automaton is not None
            pairs += [(row, token) for token in sorted(automaton.wanted(constraints.states[row]) - known)]
        if not pairs:
            return
        found = scores.continued(self.logp, *(list(one) for one in zip(*pairs, strict=True)))
        for (row, token), score in zip(pairs, found, strict=True):
            if score > IMPOSSIBLE:
                every[row].append(Continuation(score, token, row))

    def _by_progress(self, every: list[list[Continuation]], place: int, Q: int) -> Selected:
        constraints = self.next_tokens.constraints
        assert constraints is not None
        automaton, rows = constraints.automata[place * Q], range(place * Q, place * Q + Q)
        assert automaton is not None
        states = {row: constraints.states[row] for row in rows}
        pool = [one for row in rows for one in every[row]]
        return select_by_progress(pool, automaton, states, beams=self.beams)
