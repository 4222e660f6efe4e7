"""Greedy and beam search, batched over sentences, for any model that keeps the contract of `models.base`.

A sentence's result does not depend on its neighbours: it has its own length limit and stops on its own; when enough
sentences of a batch are done their rows are dropped.

Shapes: B sentences still being written, Q beams (one in the first step), R = B * Q rows, V vocabulary,
        C candidates a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Check, Hypothesis, SearchOptions, SearchResults, length_penalty, never_stop
from regard.decoding.topk import Ranking
from regard.models.base import Seq2Seq

Numbers = NDArray[np.int64]

NEVER = float("-inf")
ANY = -1  # token, where a sentence's prefix has none
FIRST_COLUMNS = 64  # output tokens that greedy search has room for at first; doubled when they are used up
COMPACT_BELOW = 0.75  # rows are dropped once this share of them, or less, is still being written


def search(
    model: Seq2Seq,
    source: Ragged,
    *,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] = (),
    check: Check = never_stop,
) -> list[list[Hypothesis]]:
    """The `nbest` best translations of each source sentence (which ends in EOS), best first.

    Each begins with its sentence's prefix, where prefixes are given. `check` is called before every step.
    """
    each = search_each(model, source, options=options, prefixes=prefixes, check=check)
    found = {sentence: best for some in each for sentence, best in some}
    return [found[sentence] for sentence in range(len(found))]


@torch.inference_mode()
def search_each(
    model: Seq2Seq,
    source: Ragged,
    *,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] = (),
    check: Check = never_stop,
) -> Iterator[SearchResults]:
    """As `search`, but each sentence's translations, by its number, when it is done; greedily, when a quarter of all are.

    On a GPU a search is to be ended, or given up, before another one begins (`decoding.cuda_graph_model`).
    """
    limits = [options.limit(length - 1) for length in source.layout.lengths]
    if prefixes:
        limits = [max(limit, len(prefix) + 1) for limit, prefix in zip(limits, prefixes, strict=True)]
    if model.max_length is not None:
        limits = [min(limit, model.max_length) for limit in limits]
    check()
    memory, given = model.encode(source), ForcedPrefix(prefixes, source.layout.device)
    if options.beam == 1:
        yield from _greedy(model, memory, limits, given, options, check)
    else:
        yield from BeamSearch(model, memory, limits, given, options).run(check)


class ForcedPrefix:
    """What each sentence must begin with."""

    def __init__(self, prefixes: Sequence[Sequence[int]], device: torch.device) -> None:
        self.device = device
        self.length = max(map(len, prefixes), default=0)
        padded = [[*prefix, *[ANY] * (self.length - len(prefix))] for prefix in prefixes]
        self.tokens = torch.tensor(padded, dtype=torch.int64, device=device)

    def force(self, logits_RV: Tensor, sentences: Tensor, step: int) -> None:
        """Leaves rows that must write a certain token now nothing else; `sentences` says whose rows they are."""
        if step >= self.length:
            return
        wanted_R = self.tokens[sentences, step]
        rows = (wanted_R != ANY).nonzero()[:, 0]
        tokens = wanted_R[rows]
        kept = logits_RV[rows, tokens]
        logits_RV[rows] = NEVER
        logits_RV[rows, tokens] = kept


def _greedy(
    model: Seq2Seq, memory: object, limits: Sequence[int], given: ForcedPrefix, options: SearchOptions, check: Check
) -> Iterator[SearchResults]:
    """The likeliest token at every step."""
    device = given.device
    state = model.start(memory, beams=1)
    alive = torch.arange(len(limits), device=device)  # which sentence each row writes
    room = torch.tensor(limits, device=device)  # most tokens of each row
    tokens = torch.full((len(limits),), model.bos, device=device)
    # It grows with what is written: a large limit alone takes no memory.
    output = torch.full((len(limits), min(max(limits), FIRST_COLUMNS)), model.eos, device=device)
    logp, nothing = torch.zeros(2, len(limits), device=device)
    writing = torch.ones(len(limits), dtype=torch.bool, device=device)
    for step in range(max(limits)):
        check()
        logits = model.step(tokens, state)
        ranking = Ranking(logits, normalized=options.scores)
        forbid(model, logits, eos=step < options.min_length)
        given.force(logits, alive, step)
        normalizer = nothing[: len(alive)] if ranking.normalizer is None else ranking.normalizer
        best, places, _ = ranking.best(-normalizer, beams=1, count=1, filler=model.eos)
        tokens = places[:, 0]
        if options.scores:
            logp[alive] += torch.where(writing, best[:, 0], 0.0)
        if step == output.size(1):
            output = torch.cat([output, torch.full_like(output, model.eos)], dim=1)
        output[alive, step] = tokens
        writing = writing & (tokens != model.eos) & (room > step + 1)
        left = int(writing.sum())
        if left > COMPACT_BELOW * len(writing):
            continue
        ended = alive[~writing]
        rows = zip(ended.tolist(), output[ended].tolist(), logp[ended].tolist(), strict=True)
        yield [(number, [_written(ids, score, limits[number], model.eos, options)]) for number, ids, score in rows]
        if left == 0:
            return
        left_R = writing.nonzero()[:, 0]
        state.reorder(left_R)
        alive, tokens, writing, room = alive[left_R], tokens[left_R], writing[left_R], room[left_R]


def _written(ids: list[int], score: float, limit: int, eos: int, options: SearchOptions) -> Hypothesis:
    """What greedy search wrote into a row; what stands behind its end is nobody's."""
    ids = ids[:limit]
    ids = ids[: ids.index(eos)] if eos in ids else ids
    length = min(len(ids) + 1, limit)  # EOS counts where there was room for it
    return Hypothesis(ids, score / length_penalty(length, options.length_penalty))


def forbid(model: Seq2Seq, logits_RV: Tensor, *, eos: bool) -> None:
    """Set the columns that the model never outputs to minus infinity, and EOS too where it is not allowed yet."""
    for column in (*model.never, model.eos) if eos else model.never:
        logits_RV.select(1, column).fill_(NEVER)


@dataclass(frozen=True)
class Candidates:
    """Ways to go on with each sentence, best first, [B, C] each."""

    scores: NDArray[np.float32]  # log-probabilities
    tokens: Numbers
    parents: Numbers  # the rows that they continue

    def at_least(self, count: int, *, eos: int) -> Candidates:
        """Return at least so many candidates. Those of no probability end the output: their columns may not exist."""
        missing = count - self.scores.shape[1]
        scores, tokens, parents = self.scores, self.tokens, self.parents
        if missing > 0:
            scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=NEVER)
            tokens = np.pad(tokens, ((0, 0), (0, missing)), constant_values=eos)
            parents = np.pad(parents, ((0, 0), (0, missing)), mode="edge")
        return Candidates(scores, np.where(scores == NEVER, eos, tokens), parents)

    def of(self, sentences: NDArray[np.bool_]) -> Candidates:
        """Those of these sentences."""
        return Candidates(self.scores[sentences], self.tokens[sentences], self.parents[sentences])


class BeamSearch:
    """Beams of all sentences, advanced together. The device finds candidates; what becomes of them is decided beside it."""

    def __init__(
        self, model: Seq2Seq, memory: object, limits: Sequence[int], given: ForcedPrefix, options: SearchOptions
    ) -> None:
        self.model, self.options, self.given, self.device = model, options, given, given.device
        self.limits = list(limits)
        self.beams = options.beam  # that there are after the first step; before it a sentence has one
        self.state = model.start(memory, beams=options.beam)
        self.sentences = list(range(len(limits)))  # which sentence each group of rows writes
        self.going_on = np.ones(len(limits), dtype=np.bool_)  # whether it still does
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]
        self.written: list[tuple[Numbers, Numbers]] = []  # of each step, the row before and the token of every row
        self.tokens = torch.full((len(limits),), model.bos, device=self.device)
        self.logp = torch.zeros((len(limits), 1), device=self.device)  # of each row: [B, Q]

    def run(self, check: Check = never_stop) -> Iterator[SearchResults]:
        """The best hypotheses of each sentence, when it is done."""
        while self.going_on.any():
            check()
            candidates, before = self._candidates(), self.going_on
            self.going_on = self._collect(candidates)
            if done := [self.sentences[row] for row in np.flatnonzero(before & ~self.going_on)]:
                yield [(sentence, self._best(sentence)) for sentence in done]
            self._continue(candidates)

    def _best(self, sentence: int) -> list[Hypothesis]:
        return sorted(self.finished[sentence], key=lambda one: -one.score)[: self.options.nbest]

    def _candidates(self) -> Candidates:
        """The best ways to go on with each sentence."""
        Q, step = self.logp.size(1), len(self.written)
        logits_RV = self.model.step(self.tokens, self.state)
        ranking = Ranking(logits_RV, normalized=True)
        forbid(self.model, logits_RV, eos=step < self.options.min_length)
        if step < self.given.length:
            self.given.force(logits_RV, torch.tensor(self.sentences, device=self.device).repeat_interleave(Q), step)
        assert ranking.normalizer is not None
        wanted = 2 * self.beams  # at most half of them can be EOS, so enough remain to go on with
        best = ranking.best(self.logp.view(-1) - ranking.normalizer, beams=Q, count=wanted, filler=self.model.eos)
        scores_bc, tokens_bc, parents_bc = (one.cpu().numpy() for one in best)
        return Candidates(scores_bc, tokens_bc, parents_bc).at_least(wanted, eos=self.model.eos)

    def _collect(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Moves hypotheses that ended among the best Q to the finished ones; which sentences go on."""
        scores, tokens, length = candidates.scores, candidates.tokens, len(self.written) + 1
        there = (scores > NEVER) & self.going_on[:, None]
        ended = (tokens == self.model.eos) & there
        for row, column in np.argwhere(ended[:, : self.beams]).tolist():
            self._finish(row, self._ids(candidates.parents[row, column]), scores[row, column], length)
        alive = there & ~ended
        best_alive = np.where(alive, scores, NEVER).max(axis=1).tolist()
        going_on = np.zeros_like(self.going_on)
        for row in np.flatnonzero(self.going_on).tolist():
            found, limit = self.finished[self.sentences[row]], self.limits[self.sentences[row]]
            if length >= limit:  # no room for another token: what is there counts as it is
                for column in np.flatnonzero(alive[row])[: max(0, self.beams - len(found))]:
                    ids = [*self._ids(candidates.parents[row, column]), int(tokens[row, column])]
                    self._finish(row, ids, scores[row, column], length)
            going_on[row] = length < limit and not self._done(found, best_alive[row], limit)
        return going_on

    def _ids(self, row: int) -> list[int]:
        """What a row has written so far."""
        ids: list[int] = []
        for rows, tokens in reversed(self.written):
            ids.append(int(tokens[row]))
            row = rows[row]
        return ids[::-1]

    def _finish(self, row: int, ids: list[int], score: float, length: int) -> None:
        penalty = length_penalty(length, self.options.length_penalty)
        self.finished[self.sentences[row]].append(Hypothesis(ids, float(score) / penalty))

    def _done(self, found: list[Hypothesis], best_alive: float, limit: int) -> bool:
        """Whether enough hypotheses ended, or none still being written can be among the best any more."""
        if len(found) >= self.beams:
            return True
        if len(found) < self.options.nbest:
            return best_alive == NEVER
        worst_wanted = sorted((one.score for one in found), reverse=True)[self.options.nbest - 1]
        # Log-probabilities only fall, and the penalty divides most at the longest length there is.
        return best_alive / length_penalty(limit, self.options.length_penalty) <= worst_wanted

    def _continue(self, candidates: Candidates) -> None:
        """Gives each beam its next token, and drops the rows of sentences that are done once they are many."""
        if self.going_on.sum() <= COMPACT_BELOW * self.going_on.size:
            candidates = candidates.of(self.going_on)
            self.sentences = [one for one, on in zip(self.sentences, self.going_on, strict=True) if on]
            self.going_on = self.going_on[self.going_on]
        if not self.sentences:
            return
        # The Q best candidates that do not end: EOS is pushed behind all others, order is kept.
        order = np.argsort(candidates.tokens == self.model.eos, axis=1, kind="stable")[:, : self.beams]
        tokens = np.take_along_axis(candidates.tokens, order, 1)
        parents = np.take_along_axis(candidates.parents, order, 1)
        scores = np.take_along_axis(candidates.scores, order, 1)
        self.written.append((parents.ravel(), tokens.ravel()))
        rows, self.tokens = torch.from_numpy(np.stack(self.written[-1])).to(self.device).unbind()
        self.logp = torch.from_numpy(np.where(tokens == self.model.eos, np.float32(NEVER), scores)).to(self.device)
        if len(self.written) == 1:
            self.state.expand_beams()
            rows = rows * self.beams
        self.state.reorder(rows)
