"""Greedy search and beam search, batched over sentences; and greedy search streamed for one sentence.

Greedy search keeps its outputs on the device. In beam search the device ranks candidates, and the host
decides which of them to continue.

Shapes: B sentences that are not finished, Q beams (one in the first step), R = B * Q rows, V vocabulary,
        C candidates per sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.placeholders import PlaceholderConstraint, Placeholders
from regard.decoding.ranking import (
    IMPOSSIBLE,
    Check,
    ForcedPrefix,
    Hypothesis,
    Ranking,
    SearchResults,
    forbid,
    length_penalty,
    never_stop,
)
from regard.models.base import Seq2Seq

COMPACT_BELOW = 0.75  # finished sentences are dropped once at most this share of a batch is still being searched
FIRST_COLUMNS = 64  # output tokens that there is room for at first; doubled when they are used up
Numbers = NDArray[np.int64]


def greedy_search(
    model: Seq2Seq,
    memory: object,
    limits: Sequence[int],
    prefix: ForcedPrefix,
    options: SearchOptions,
    check: Check,
    constraint: PlaceholderConstraint | None = None,
) -> Iterator[SearchResults]:
    """Yield the likeliest outputs, several finished sentences at a time. `check` is called before every step."""
    device = prefix.device
    state = model.start(memory, beams=1)
    sentences = torch.arange(len(limits), device=device)  # the sentence of each row
    room = torch.tensor(limits, device=device)  # the most tokens of each row
    tokens = torch.full((len(limits),), model.bos, device=device)
    # Grows with the outputs: a large limit alone takes no memory.
    output = torch.full((len(limits), min(max(limits), FIRST_COLUMNS)), model.eos, device=device)
    logp, zeros = torch.zeros(2, len(limits), device=device)
    active = torch.ones(len(limits), dtype=torch.bool, device=device)
    for step in range(max(limits)):
        check()
        logits = model.step(tokens, state)
        ranking = Ranking(logits, normalized=options.scores)
        forbid(model, logits, eos=step < options.min_length)
        prefix.force(logits, sentences, step)
        if constraint is not None:
            constraint.force(logits, step)
        normalizer = zeros[: len(sentences)] if ranking.normalizer is None else ranking.normalizer
        best, places, _ = ranking.best(-normalizer, beams=1, count=1, filler=model.eos)
        tokens = places[:, 0]
        if constraint is not None:
            constraint.output(tokens)
        if options.scores:
            logp[sentences] += torch.where(active, best[:, 0], 0.0)
        if step == output.size(1):
            output = torch.cat([output, torch.full_like(output, model.eos)], dim=1)
        output[sentences, step] = tokens
        active = active & (tokens != model.eos) & (room > step + 1)
        left = int(active.sum())
        if left > COMPACT_BELOW * len(active):
            continue
        ended = sentences[~active]
        rows = zip(ended.tolist(), output[ended].tolist(), logp[ended].tolist(), strict=True)
        yield [(number, [_hypothesis(ids, score, limits[number], model.eos, options)]) for number, ids, score in rows]
        if left == 0:
            return
        kept = active.nonzero()[:, 0]
        state.reorder(kept)
        if constraint is not None:
            constraint.reorder(kept)
        sentences, tokens, active, room = sentences[kept], tokens[kept], active[kept], room[kept]


def _hypothesis(ids: list[int], score: float, limit: int, eos: int, options: SearchOptions) -> Hypothesis:
    """Return the output of a row. What follows its end, or its limit, does not belong to it."""
    ids = ids[:limit]
    ids = ids[: ids.index(eos)] if eos in ids else ids
    length = min(len(ids) + 1, limit)  # EOS counts if there was room for it
    return Hypothesis(ids, score / length_penalty(length, options))


@torch.inference_mode()
def stream_greedy(
    model: Seq2Seq,
    source_ids: list[int],
    *,
    options: SearchOptions,
    on_token: Callable[[list[int]], None],
    placeholders: Placeholders | None = None,
    check: Check = never_stop,
) -> list[int]:
    """Return the output of greedy search for one source. `on_token` receives the output so far after each token."""
    device = next(model.parameters()).device
    source = Ragged.from_lists([source_ids], device)
    limit = options.limit(len(source_ids) - 1)
    state = model.start(model.encode(source), beams=1)
    tokens, output = torch.full((1,), model.bos, device=device), list[int]()
    limit = limit if model.max_length is None else min(limit, model.max_length)
    constraint = None if placeholders is None else PlaceholderConstraint(placeholders, [limit], model.eos, device)
    for step in range(limit):
        check()
        logits = model.step(tokens, state)
        forbid(model, logits, eos=step < options.min_length)
        if constraint is not None:
            constraint.force(logits, step)
        tokens = logits.argmax(dim=-1)
        if constraint is not None:
            constraint.output(tokens)
        token = int(tokens)
        if token == model.eos:
            break
        output.append(token)
        on_token(output)
    return output


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence, best first, [B, C] each."""

    scores: NDArray[np.float32]  # log-probabilities
    tokens: Numbers
    parents: Numbers  # the rows that they continue

    def at_least(self, count: int, *, eos: int) -> Candidates:
        """Return at least so many candidates. Impossible ones end the output: their columns may not exist."""
        missing = count - self.scores.shape[1]
        scores, tokens, parents = self.scores, self.tokens, self.parents
        if missing > 0:
            scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=IMPOSSIBLE)
            tokens = np.pad(tokens, ((0, 0), (0, missing)), constant_values=eos)
            parents = np.pad(parents, ((0, 0), (0, missing)), mode="edge")
        return Candidates(scores, np.where(scores == IMPOSSIBLE, eos, tokens), parents)

    def of(self, sentences: NDArray[np.bool_]) -> Candidates:
        """Return the candidates of these sentences."""
        return Candidates(self.scores[sentences], self.tokens[sentences], self.parents[sentences])


class BeamSearch:
    """The beams of all sentences of a batch, advanced together."""

    def __init__(
        self,
        model: Seq2Seq,
        memory: object,
        limits: Sequence[int],
        prefix: ForcedPrefix,
        options: SearchOptions,
        constraint: PlaceholderConstraint | None = None,
    ) -> None:
        self.model, self.options, self.prefix, self.device = model, options, prefix, prefix.device
        self.constraint = constraint
        self.limits = list(limits)
        self.beams = options.beam  # after the first step; before it a sentence has one row
        self.state = model.start(memory, beams=options.beam)
        self.sentences = list(range(len(limits)))  # the sentence of each group of rows
        self.active = np.ones(len(limits), dtype=np.bool_)  # whether it is not finished
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]
        self.history: list[tuple[Numbers, Numbers]] = []  # per step, each row's parent row and token
        self.tokens = torch.full((len(limits),), model.bos, device=self.device)
        self.logp = torch.zeros((len(limits), 1), device=self.device)  # of each row: [B, Q]

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
        return sorted(self.finished[sentence], key=lambda one: -one.score)[: self.options.nbest]

    def _candidates(self) -> Candidates:
        """Return the best continuations of each sentence."""
        Q, step = self.logp.size(1), len(self.history)
        logits_RV = self.model.step(self.tokens, self.state)
        ranking = Ranking(logits_RV, normalized=True)
        forbid(self.model, logits_RV, eos=step < self.options.min_length)
        if step < self.prefix.length:
            self.prefix.force(logits_RV, torch.tensor(self.sentences, device=self.device).repeat_interleave(Q), step)
        if self.constraint is not None:
            self.constraint.force(logits_RV, step)
        assert ranking.normalizer is not None
        wanted = 2 * self.beams  # at most half of them can be EOS, so that enough remain to continue
        best = ranking.best(self.logp.view(-1) - ranking.normalizer, beams=Q, count=wanted, filler=self.model.eos)
        scores_BC, tokens_BC, parents_BC = (one.cpu().numpy() for one in best)
        return Candidates(scores_BC, tokens_BC, parents_BC).at_least(wanted, eos=self.model.eos)

    def _collect(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Keep the hypotheses that ended among the best Q, and return which sentences remain active."""
        scores, tokens, length = candidates.scores, candidates.tokens, len(self.history) + 1
        possible = (scores > IMPOSSIBLE) & self.active[:, None]
        ended = (tokens == self.model.eos) & possible
        for row, column in np.argwhere(ended[:, : self.beams]).tolist():
            self._finish(row, self._ids(candidates.parents[row, column]), scores[row, column], length)
        open_ones = possible & ~ended
        best_open = np.where(open_ones, scores, IMPOSSIBLE).max(axis=1).tolist()
        active = np.zeros_like(self.active)
        for row in np.flatnonzero(self.active).tolist():
            found, limit = self.finished[self.sentences[row]], self.limits[self.sentences[row]]
            if length >= limit:
                # There is no room for another token: open hypotheses count as they are.
                columns = np.flatnonzero(open_ones[row])[: max(0, self.beams - len(found))]
                if not self.options.early_stopping:
                    columns = np.flatnonzero(open_ones[row, : self.beams])
                for column in columns:
                    ids = [*self._ids(candidates.parents[row, column]), int(tokens[row, column])]
                    self._finish(row, ids, scores[row, column], length)
            active[row] = length < limit and not self._done(found, best_open[row], length, limit)
        return active

    def _ids(self, row: int) -> list[int]:
        """Return the output of a row so far."""
        ids: list[int] = []
        for rows, tokens in reversed(self.history):
            ids.append(int(tokens[row]))
            row = rows[row]
        return ids[::-1]

    def _finish(self, row: int, ids: list[int], score: float, length: int) -> None:
        penalty = length_penalty(length, self.options)
        self.finished[self.sentences[row]].append(Hypothesis(ids, float(score) / penalty))

    def _done(self, found: list[Hypothesis], best_open: float, length: int, limit: int) -> bool:
        """Whether enough hypotheses ended, or no open one can still become one of the best."""
        if len(found) >= self.beams and self.options.early_stopping:
            return True
        if len(found) < self.options.nbest:
            return best_open == IMPOSSIBLE
        scores = sorted((one.score for one in found), reverse=True)
        if len(found) >= self.beams and best_open / length_penalty(length, self.options) <= scores[self.beams - 1]:
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
        self.history.append((parents.ravel(), tokens.ravel()))
        rows, self.tokens = torch.from_numpy(np.stack(self.history[-1])).to(self.device).unbind()
        self.logp = torch.from_numpy(np.where(tokens == eos, np.float32(IMPOSSIBLE), scores)).to(self.device)
        if self.constraint is not None:
            self.constraint.reorder(rows)
            self.constraint.output(self.tokens)
        if len(self.history) == 1:
            self.state.expand_beams()
            rows = rows * self.beams
        self.state.reorder(rows)
