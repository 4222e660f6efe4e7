"""Models of PyTorch in the engine, and searches of it, for tests."""

from collections.abc import Sequence

import pytest

from regard.config import SearchOptions
from regard.decoding.hypothesis import Hypothesis
from regard.engine.bindings import library
from regard.engine.model import EngineModel, Tensor
from regard.engine.session import Session
from regard.models.transformer import Transformer

needs_engine = pytest.mark.skipif(library() is None, reason="the engine has not been compiled: make engine")


def engine_of(model: Transformer, *, int8: bool = False) -> EngineModel:
    """Return a model's weights in the engine."""
    tied = model.config.tie == "all"
    weights = [
        (name, Tensor(value.detach().numpy()))
        for name, value in model.state_dict().items()
        if not (tied and name == "source_embedding")
    ]
    sizes = {"source_size": model.source_embedding.size(0), "target_size": model.target_embedding.size(0)}
    return EngineModel(model.config, weights, **sizes, bos=model.bos, eos=model.eos, int8=int8)


def search_with_engine(
    model: EngineModel,
    sources: Sequence[Sequence[int]],
    options: SearchOptions,
    *,
    threads: int = 1,
    rows: int = 64,
    **more: Sequence[Sequence[int]],
) -> list[list[Hypothesis]]:
    """Return the outputs for sources that end in EOS. `more` are arguments of `Session.add`, one per source."""
    session = Session(model, threads=threads, rows=rows)
    places = {}
    for number, ids in enumerate(sources):
        limit = options.limit(len(ids) - 1)
        limit = limit if model.max_length is None else min(limit, model.max_length)
        given = {"never": [model.bos], **{name: lists[number] for name, lists in more.items()}}
        places[session.add(ids, options, limit, **given)] = number
    found: list[list[Hypothesis]] = [[] for _ in sources]
    while places:
        if (ready := session.next(60_000)) is not None:
            found[places.pop(ready[0])] = [Hypothesis(*one) for one in ready[1]]
    session.close()
    return found
