"""Greedy search: the likeliest token at every step, for a batch of sentences, or streamed for one.

Shapes: R rows, one per sentence that is not finished, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import (
    COMPACT_BELOW,
    Check,
    Hypothesis,
    SearchOptions,
    SearchResults,
    length_penalty,
    never_stop,
)
from regard.decoding.ranking import ForcedPrefix, Ranking, forbid
from regard.models.base import Seq2Seq

FIRST_COLUMNS = 64  # output tokens that there is room for at first; doubled when they are used up


def greedy_search(
    model: Seq2Seq, memory: object, limits: Sequence[int], prefix: ForcedPrefix, options: SearchOptions, check: Check
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
        normalizer = zeros[: len(sentences)] if ranking.normalizer is None else ranking.normalizer
        best, places, _ = ranking.best(-normalizer, beams=1, count=1, filler=model.eos)
        tokens = places[:, 0]
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
        sentences, tokens, active, room = sentences[kept], tokens[kept], active[kept], room[kept]


def _hypothesis(ids: list[int], score: float, limit: int, eos: int, options: SearchOptions) -> Hypothesis:
    """Return the output of a row. What follows its end, or its limit, does not belong to it."""
    ids = ids[:limit]
    ids = ids[: ids.index(eos)] if eos in ids else ids
    length = min(len(ids) + 1, limit)  # EOS counts if there was room for it
    return Hypothesis(ids, score / length_penalty(length, options.length_penalty))


@torch.inference_mode()
def stream_greedy(
    model: Seq2Seq,
    source_ids: list[int],
    *,
    options: SearchOptions,
    on_token: Callable[[list[int]], None],
    check: Check = never_stop,
) -> list[int]:
    """Return the output of greedy search for one source. `on_token` receives the output so far after each token."""
    device = next(model.parameters()).device
    source = Ragged.from_lists([source_ids], device)
    limit = options.limit(len(source_ids) - 1)
    state = model.start(model.encode(source), beams=1)
    tokens, output = torch.full((1,), model.bos, device=device), list[int]()
    for _ in range(limit if model.max_length is None else min(limit, model.max_length)):
        check()
        logits = model.step(tokens, state)
        forbid(model, logits, eos=False)
        tokens = logits.argmax(dim=-1)
        token = int(tokens)
        if token == model.eos:
            break
        output.append(token)
        on_token(output)
    return output
