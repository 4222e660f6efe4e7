"""Greedy and beam search, batched over sentences, for any model that keeps the contract of `models.base`.

A sentence's result does not depend on its neighbours: it has its own length limit and stops on its own; when enough
sentences of a batch are done their rows are dropped.

Shapes: B sentences still being written, Q beams, R = B * Q rows, V vocabulary, C candidates a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Hypothesis, SearchOptions, length_penalty
from regard.decoding.topk import log_normalizer, top_k
from regard.models.base import Seq2Seq
from regard.text.tokenizer import BOS, EOS

NEVER = float("-inf")
COMPACT_BELOW = 0.75  # rows are dropped once this share of them, or less, is still being written


@torch.inference_mode()
def search(model: Seq2Seq, source: Ragged, *, options: SearchOptions) -> list[list[Hypothesis]]:
    """The `nbest` best translations of each source sentence (which ends in EOS), best first."""
    limits = [options.limit(length - 1) for length in source.layout.lengths]
    if model.max_length is not None:
        limits = [min(limit, model.max_length) for limit in limits]
    memory = model.encode(source)
    if options.beam == 1:
        return [[hypothesis] for hypothesis in _greedy(model, memory, limits, source.layout.device, options)]
    return BeamSearch(model, memory, limits, source.layout.device, options).run()


def _greedy(
    model: Seq2Seq, memory: object, limits: Sequence[int], device: torch.device, options: SearchOptions
) -> list[Hypothesis]:
    """The likeliest token at every step."""
    state = model.start(memory, beams=1)
    alive = torch.arange(len(limits), device=device)  # which sentence each row writes
    room = torch.tensor(limits, device=device)  # most tokens of each row
    tokens = torch.full((len(limits),), BOS, device=device)
    output = torch.full((len(limits), max(limits)), EOS, device=device)
    logp = torch.zeros(len(limits), device=device)
    writing = torch.ones(len(limits), dtype=torch.bool, device=device)
    for step in range(max(limits)):
        logits = model.step(tokens, state)
        normalizer = log_normalizer(logits) if options.scores else None
        best, places = top_k(_forbid(logits, eos=step < options.min_length), 1)
        tokens = places[:, 0]
        if normalizer is not None:
            logp[alive] += torch.where(writing, best[:, 0] - normalizer, 0.0)
        output[alive, step] = tokens
        writing = writing & (tokens != EOS) & (room > step + 1)
        left = int(writing.sum())
        if left == 0:
            break
        if left <= COMPACT_BELOW * len(writing):
            rows = writing.nonzero()[:, 0]
            state.reorder(rows)
            alive, tokens, writing, room = alive[rows], tokens[rows], writing[rows], room[rows]
    results = []
    for ids, score, most in zip(output.tolist(), logp.tolist(), limits, strict=True):
        ids = ids[:most]  # what a row wrote after its end is nobody's
        ids = ids[: ids.index(EOS)] if EOS in ids else ids
        length = min(len(ids) + 1, most)  # EOS counts where there was room for it
        results.append(Hypothesis(ids, score / length_penalty(length, options.length_penalty)))
    return results


def _forbid(logits_RV: Tensor, *, eos: bool) -> Tensor:
    """The logits, with BOS never and EOS not yet."""
    logits_RV[:, BOS] = NEVER
    if eos:
        logits_RV[:, EOS] = NEVER
    return logits_RV


class BeamSearch:
    """Beams of all sentences, advanced together."""

    def __init__(
        self, model: Seq2Seq, memory: object, limits: Sequence[int], device: torch.device, options: SearchOptions
    ) -> None:
        self.model, self.options, self.device = model, options, device
        self.limits = list(limits)
        self.beams = options.beam
        self.state = model.start(memory, beams=options.beam)
        self.sentences = list(range(len(limits)))  # which sentence each group of rows writes
        self.finished: list[list[Hypothesis]] = [[] for _ in limits]
        num_rows = len(limits) * self.beams
        self.tokens = torch.full((num_rows,), BOS, device=device)
        self.prefixes = torch.empty((num_rows, 0), dtype=torch.int64, device=device)
        self.logp = torch.full((len(limits), self.beams), NEVER, device=device)
        self.logp[:, 0] = 0.0  # all beams begin alike: only the first may be continued

    def run(self) -> list[list[Hypothesis]]:
        """The best hypotheses of every sentence."""
        step = 0
        while self.sentences:
            self._advance(step)
            step += 1
        return [sorted(found, key=lambda one: -one.score)[: self.options.nbest] for found in self.finished]

    def _advance(self, step: int) -> None:
        """One more token for every beam."""
        B, Q = len(self.sentences), self.beams
        logits_RV = self.model.step(self.tokens, self.state)
        normalizer_R = log_normalizer(logits_RV)
        _forbid(logits_RV, eos=step < self.options.min_length)
        count = min(2 * Q, logits_RV.size(-1))  # at most Q of them can be EOS, so Q remain to go on with
        best_RC, tokens_RC = top_k(logits_RV, count)
        scores = (best_RC - normalizer_R[:, None]).view(B, Q, count) + self.logp[:, :, None]
        scores_BC, flat_BC = scores.flatten(1).topk(min(2 * Q, Q * count), dim=-1)
        first_row = torch.arange(B, device=self.device)[:, None] * Q
        parents_BC = flat_BC // count + first_row
        tokens_BC = tokens_RC.view(B, Q * count).gather(1, flat_BC)
        going_on = self._collect(step, scores_BC, tokens_BC, parents_BC)
        self._continue(going_on, scores_BC, tokens_BC, parents_BC)

    def _collect(self, step: int, scores_BC: Tensor, tokens_BC: Tensor, parents_BC: Tensor) -> Tensor:
        """Moves hypotheses that ended among the best Q to the finished ones; the sentences that go on: [B], bool."""
        ended_BQ = (tokens_BC[:, : self.beams] == EOS) & (scores_BC[:, : self.beams] > NEVER)
        penalty = length_penalty(step + 1, self.options.length_penalty)
        if ended_BQ.any():
            for row, column in ended_BQ.nonzero().tolist():
                ids = self.prefixes[parents_BC[row, column]].tolist()
                self._finish(row, ids, scores_BC[row, column].item() / penalty)
        best_alive = scores_BC.masked_fill(tokens_BC == EOS, NEVER).amax(dim=-1).tolist()
        going_on = []
        for row, sentence in enumerate(self.sentences):
            found, limit = self.finished[sentence], self.limits[sentence]
            if step + 1 >= limit:  # no room for another token: what is there counts as it is
                for column in range(scores_BC.size(1)):
                    if len(found) < self.beams and tokens_BC[row, column] != EOS and scores_BC[row, column] > NEVER:
                        ids = [*self.prefixes[parents_BC[row, column]].tolist(), int(tokens_BC[row, column])]
                        self._finish(row, ids, scores_BC[row, column].item() / penalty)
                going_on.append(False)
            else:
                going_on.append(not self._done(found, best_alive[row], limit))
        return torch.tensor(going_on, device=self.device)

    def _finish(self, row: int, ids: list[int], score: float) -> None:
        self.finished[self.sentences[row]].append(Hypothesis(ids, score))

    def _done(self, found: list[Hypothesis], best_alive: float, limit: int) -> bool:
        """Whether enough hypotheses ended, or none still being written can be among the best any more."""
        if len(found) >= self.beams:
            return True
        if len(found) < self.options.nbest:
            return best_alive == NEVER
        worst_wanted = sorted((one.score for one in found), reverse=True)[self.options.nbest - 1]
        # Log-probabilities only fall, and the penalty divides most at the longest length there is.
        return best_alive / length_penalty(limit, self.options.length_penalty) <= worst_wanted

    def _continue(self, going_on: Tensor, scores_BC: Tensor, tokens_BC: Tensor, parents_BC: Tensor) -> None:
        """Gives each beam its next token, and drops the rows of sentences that are done."""
        # The Q best candidates that do not end: EOS is pushed behind all others, order is kept.
        ends = (tokens_BC == EOS).to(torch.int64)
        order = torch.sort(ends, dim=-1, stable=True).indices[:, : self.beams]
        scores = scores_BC.gather(1, order).masked_fill(ends.gather(1, order) == 1, NEVER)
        tokens, parents = tokens_BC.gather(1, order), parents_BC.gather(1, order)
        if not bool(going_on.all()):
            scores, tokens, parents = scores[going_on], tokens[going_on], parents[going_on]
            self.sentences = [one for one, on in zip(self.sentences, going_on.tolist(), strict=True) if on]
            if not self.sentences:
                return
        rows = parents.flatten()
        self.state.reorder(rows)
        self.logp, self.tokens = scores, tokens.flatten()
        self.prefixes = torch.cat([self.prefixes.index_select(0, rows), self.tokens[:, None]], dim=1)
