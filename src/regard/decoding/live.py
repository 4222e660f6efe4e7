"""One translation, greedily, told token by token while it is written."""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Check, SearchOptions, never_stop
from regard.models.base import Seq2Seq


@torch.inference_mode()
def stream_greedy(
    model: Seq2Seq,
    source_ids: list[int],
    *,
    options: SearchOptions,
    hear: Callable[[list[int]], None],
    check: Check = never_stop,
) -> list[int]:
    """The tokens that greedy search finds. `hear` receives those so far after each; `check` is called before each."""
    device = next(model.parameters()).device
    source = Ragged.from_lists([source_ids], device)
    limit = options.limit(len(source_ids) - 1)
    state = model.start(model.encode(source), beams=1)
    tokens, written = torch.full((1,), model.bos, device=device), list[int]()
    for _ in range(limit if model.max_length is None else min(limit, model.max_length)):
        check()
        logits = model.step(tokens, state)
        logits[:, list(model.never)] = float("-inf")
        tokens = logits.argmax(dim=-1)
        token = int(tokens)
        if token == model.eos:
            break
        written.append(token)
        hear(written)
    return written
