"""Searches in which no row depends on another: greedy search, sampling, and greedy search streamed for one sentence.

Outputs stay on the device until several sentences are finished.

Shapes: B sentences that are not finished, Q samples of each, R = B * Q rows, V columns of the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.constraints import Demands
from regard.decoding.drawing import Draws
from regard.decoding.next_tokens import NextTokens
from regard.decoding.ranking import Check, Hypothesis, Ranking, SearchResults, length_penalty, never_stop
from regard.decoding.shortlist import with_shortlist
from regard.models.base import Seq2Seq

COMPACT_BELOW = 0.75  # finished sentences are dropped once at most this share of a batch is still being searched
FIRST_COLUMNS = 64  # output tokens that there is room for at first; doubled when they are used up


def search_rows(
    model: Seq2Seq,
    memory: object,
    limits: Sequence[int],
    next_tokens: NextTokens,
    check: Check,
    draws: Draws | None = None,
) -> Iterator[SearchResults]:
    """Yield the likeliest outputs, or with `draws` the `beam` samples of each sentence, several sentences at a time.

    `check` is called before every step.
    """
    options = next_tokens.options
    rows = RowOutputs(model, limits, options, samples=1 if draws is None else options.beam)
    state = model.start(memory, beams=rows.samples)
    tokens = torch.full((len(limits),), model.bos, device=rows.device)
    zeros = torch.zeros_like(rows.logp)
    for step in range(max(limits)):
        check()
        logits = model.step(tokens, state)
        if step == 0 and rows.samples > 1:
            # All samples of a sentence begin with the same logits.
            logits = logits.repeat_interleave(rows.samples, dim=0)
            next_tokens.reorder(rows.each_sentence)
        ranking = Ranking(logits, normalized=options.scores or options.token_scores)
        next_tokens.restrict(logits, step)
        normalizer = zeros[: len(logits)] if ranking.normalizer is None else ranking.normalizer
        if draws is None:
            best, places, _ = ranking.best(-normalizer, beams=1, count=1, filler=model.eos)
            tokens, logp = places[:, 0], best[:, 0]
        else:
            tokens = draws.draw(logits, step)
            logp = logits.gather(1, tokens[:, None])[:, 0] - normalizer
        next_tokens.output(tokens)
        rows.output(tokens, logp, step)
        if step == 0 and rows.samples > 1:
            state.expand_beams()
            state.reorder(rows.each_sentence * rows.samples)
        left = int(rows.unfinished.sum())
        if left > COMPACT_BELOW * len(rows.unfinished):
            continue
        yield rows.finished()
        if left == 0:
            return
        kept = rows.drop_finished()
        tokens = tokens[kept]
        state.reorder(kept)
        next_tokens.reorder(kept)
        if draws is not None:
            draws.reorder(kept.tolist())


class RowOutputs:
    """The outputs of all rows, and which of them are not finished. Finished sentences are dropped together."""

    def __init__(self, model: Seq2Seq, limits: Sequence[int], options: SearchOptions, *, samples: int) -> None:
        self.eos, self.options, self.samples = model.eos, options, samples
        self.device = next(model.parameters()).device
        self.limits = [limit for limit in limits for _ in range(samples)]
        count = len(self.limits)
        self.each_sentence = torch.arange(len(limits), device=self.device).repeat_interleave(samples)
        self.numbers = torch.arange(count, device=self.device)  # of the rows that have not been dropped
        self.room = torch.tensor(self.limits, device=self.device)
        # Grows with the outputs: a large limit alone takes no memory.
        self.tokens = torch.full((count, min(max(limits), FIRST_COLUMNS)), model.eos, device=self.device)
        self.token_logp = torch.zeros_like(self.tokens, dtype=torch.float32) if options.token_scores else None
        self.logp = torch.zeros(count, device=self.device)
        self.active = torch.ones(count, dtype=torch.bool, device=self.device)

    def output(self, tokens: Tensor, logp: Tensor, step: int) -> None:
        """Add a token to each row."""
        if self.options.scores:
            self.logp[self.numbers] += torch.where(self.active, logp, 0.0)
        if step == self.tokens.size(1):
            self.tokens = torch.cat([self.tokens, torch.full_like(self.tokens, self.eos)], dim=1)
            if self.token_logp is not None:
                self.token_logp = torch.cat([self.token_logp, torch.zeros_like(self.token_logp)], dim=1)
        self.tokens[self.numbers, step] = tokens
        if self.token_logp is not None:
            self.token_logp[self.numbers, step] = logp
        self.active = self.active & (tokens != self.eos) & (self.room > step + 1)

    @property
    def unfinished(self) -> Tensor:
        """Whether each sentence that has not been dropped still has an open row."""
        return self.active if self.samples == 1 else self.active.view(-1, self.samples).any(dim=1)

    def finished(self) -> SearchResults:
        """Return the hypotheses of the finished sentences, best first."""
        ended = self.numbers.view(-1, self.samples)[~self.unfinished].view(-1)
        logps = [None] * len(ended) if self.token_logp is None else self.token_logp[ended].tolist()
        rows = zip(ended.tolist(), self.tokens[ended].tolist(), self.logp[ended].tolist(), logps, strict=True)
        found: dict[int, list[Hypothesis]] = {}
        for number, ids, score, token_logp in rows:
            found.setdefault(number // self.samples, []).append(self._hypothesis(number, ids, score, token_logp))
        most = self.options.nbest
        return [(number, sorted(some, key=lambda one: -one.score)[:most]) for number, some in found.items()]

    def _hypothesis(self, number: int, ids: list[int], score: float, token_logp: list[float] | None) -> Hypothesis:
        """Return the output of a row. What follows its end, or its limit, does not belong to it."""
        limit = self.limits[number]
        ids = ids[:limit]
        ids = ids[: ids.index(self.eos)] if self.eos in ids else ids
        length = min(len(ids) + 1, limit)  # EOS counts if there was room for it
        return Hypothesis(
            ids,
            score / length_penalty(length, self.options),
            None if token_logp is None else token_logp[:length],
        )

    def drop_finished(self) -> Tensor:
        """Drop the rows of finished sentences, and return which of the rows are kept."""
        kept = self.unfinished.repeat_interleave(self.samples).nonzero()[:, 0]
        self.numbers, self.active, self.room = self.numbers[kept], self.active[kept], self.room[kept]
        return kept


@torch.inference_mode()
def stream_greedy(
    model: Seq2Seq,
    source_ids: list[int],
    *,
    options: SearchOptions,
    on_token: Callable[[list[int]], None],
    demands: Demands | None = None,
    check: Check = never_stop,
) -> list[int]:
    """Return the output of greedy search for one source. `on_token` receives the output so far after each token."""
    if demands is not None and demands.vocabularies is not None:
        model = with_shortlist(model, demands.vocabularies)
    device = next(model.parameters()).device
    source = Ragged.from_lists([source_ids], device)
    limit = options.limit(len(source_ids) - 1)
    state = model.start(model.encode(source), beams=1)
    tokens, output = torch.full((1,), model.bos, device=device), list[int]()
    limit = limit if model.max_length is None else min(limit, model.max_length)
    next_tokens = NextTokens(model, options, None if demands is None else demands.constraints([limit]))
    for step in range(limit):
        check()
        logits = model.step(tokens, state)
        next_tokens.restrict(logits, step)
        tokens = logits.argmax(dim=-1)
        next_tokens.output(tokens)
        token = int(tokens)
        if token == model.eos:
            break
        output.append(token)
        on_token(output)
    return output
