"""Searches in which no row depends on another: greedy search, sampling, and greedy search streamed for one sentence.

Shapes: B sentences that are not finished, Q samples of each, R = B * Q rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.config import SearchOptions
from regard.decoding.drawing import Draws
from regard.decoding.hypothesis import Check, Hypothesis, SearchResults, length_penalty
from regard.decoding.next_tokens import NextTokens
from regard.decoding.step_model import Chosen, Integers, StepModel

COMPACT_BELOW = 0.75  # finished sentences are dropped once at most this share of a batch is still being searched
FIRST_COLUMNS = 64  # output tokens that there is room for at first; doubled when they are used up


def search_rows(
    model: StepModel,
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
    rows = RowOutputs(model.eos, limits, options, samples=1 if draws is None else options.beam)
    state = model.start(memory, beams=rows.samples)
    (tokens,) = model.place(np.full(len(limits), model.bos, dtype=np.int64))
    for step in range(max(limits)):
        check()
        scores = model.step(tokens, state)
        if step == 0 and rows.samples > 1:
            # All samples of a sentence begin with the same logits.
            scores = scores.repeat(rows.samples)
            next_tokens.reorder(rows.each_sentence)
        scores.prepare(normalized=options.scores or options.token_scores)
        next_tokens.restrict(scores, step)
        chosen = scores.choose() if draws is None else draws.draw(scores, step)
        tokens = chosen.placed
        next_tokens.output(chosen.tokens)
        rows.output(chosen, step)
        if step == 0 and rows.samples > 1:
            state.expand_beams()
            state.reorder(*model.place(rows.each_sentence * rows.samples))
        unfinished = rows.unfinished
        left = int(unfinished.sum())
        if left > COMPACT_BELOW * len(unfinished):
            continue
        yield rows.finished()
        if left == 0:
            return
        kept = rows.drop_finished()
        places, tokens = model.place(kept, chosen.tokens[kept])
        state.reorder(places)
        next_tokens.reorder(kept)
        if draws is not None:
            draws.reorder(kept)


class RowOutputs:
    """The outputs of all rows, and which of them are not finished. Finished sentences are dropped together."""

    def __init__(self, eos: int, limits: Sequence[int], options: SearchOptions, *, samples: int) -> None:
        self.eos, self.options, self.samples = eos, options, samples
        self.limits = [limit for limit in limits for _ in range(samples)]
        count = len(self.limits)
        self.each_sentence = np.arange(len(limits)).repeat(samples)
        self.numbers = np.arange(count)  # of the rows that have not been dropped
        self.room = np.array(self.limits, dtype=np.int64)
        # Grows with the outputs: a large limit alone takes no memory.
        self.tokens = np.full((count, min(max(limits), FIRST_COLUMNS)), eos, dtype=np.int64)
        self.token_logp = np.zeros_like(self.tokens, dtype=np.float32) if options.token_scores else None
        self.logp = np.zeros(count, dtype=np.float32)
        self.active = np.ones(count, dtype=np.bool_)

    def output(self, chosen: Chosen, step: int) -> None:
        """Add a token to each row."""
        if self.options.scores:
            assert chosen.logp is not None, "the scores were prepared without"
            self.logp[self.numbers] += np.where(self.active, chosen.logp, np.float32(0))
        if step == self.tokens.shape[1]:
            self.tokens = np.concatenate([self.tokens, np.full_like(self.tokens, self.eos)], axis=1)
            if self.token_logp is not None:
                self.token_logp = np.concatenate([self.token_logp, np.zeros_like(self.token_logp)], axis=1)
        self.tokens[self.numbers, step] = chosen.tokens
        if self.token_logp is not None:
            self.token_logp[self.numbers, step] = chosen.logp
        self.active = np.logical_and(self.active, (chosen.tokens != self.eos) & (self.room > step + 1))

    @property
    def unfinished(self) -> NDArray[np.bool_]:
        """Whether each sentence that has not been dropped still has an open row."""
        found: NDArray[np.bool_] = np.logical_or.reduce(self.active.reshape(-1, self.samples), axis=1)
        return found

    def finished(self) -> SearchResults:
        """Return the hypotheses of the finished sentences, best first."""
        ended = self.numbers.reshape(-1, self.samples)[~self.unfinished].ravel()
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

    def drop_finished(self) -> Integers:
        """Drop the rows of finished sentences, and return which of the rows are kept."""
        kept = np.flatnonzero(self.unfinished.repeat(self.samples))
        self.numbers, self.active, self.room = self.numbers[kept], self.active[kept], self.room[kept]
        return kept


def stream_row(
    model: StepModel,
    memory: object,
    limit: int,
    next_tokens: NextTokens,
    on_token: Callable[[list[int]], None],
    check: Check,
) -> list[int]:
    """Return the output of greedy search for one source. `on_token` receives the output so far after each token."""
    state, output = model.start(memory, beams=1), list[int]()
    (tokens,) = model.place(np.full(1, model.bos, dtype=np.int64))
    for step in range(limit):
        check()
        scores = model.step(tokens, state)
        scores.prepare(normalized=False)
        next_tokens.restrict(scores, step)
        chosen = scores.choose()
        tokens = chosen.placed
        next_tokens.output(chosen.tokens)
        token = int(chosen.tokens[0])
        if token == model.eos:
            break
        output.append(token)
        on_token(output)
    return output
