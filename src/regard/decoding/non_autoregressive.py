"""Translations of models that write all tokens at once, in the shape that search returns them."""

from __future__ import annotations

import torch

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Check, Hypothesis, SearchOptions, never_stop
from regard.models.base import NonAutoregressive


@torch.inference_mode()
def refine(
    model: NonAutoregressive, source: Ragged, *, options: SearchOptions, check: Check = never_stop
) -> list[list[Hypothesis]]:
    """The `nbest` best of as many candidates as a beam would have rows, for each source sentence, best first.

    `check` is called before every iteration.
    """
    check()
    limits = [options.limit(length - 1) for length in source.layout.lengths]
    if model.max_length is not None:
        limits = [min(limit, model.max_length - 1) for limit in limits]
    written = model.write(
        model.encode(source), limits=limits, candidates=options.beam, iterations=options.iterations, check=check
    )
    return [
        [Hypothesis(one.ids[:limit], one.score) for one in found[: options.nbest]]
        for found, limit in zip(written, limits, strict=True)
    ]
