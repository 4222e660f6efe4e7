"""Search for the best outputs of one batch, for any model that can be stepped.

A sentence's result does not depend on its neighbours in the batch: each has its own length limit and stops on its own, and
rows of finished sentences are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from regard.config import SearchOptions
from regard.decoding.beam_search import BeamSearch
from regard.decoding.constraints import Demands
from regard.decoding.drawing import Draws, generator
from regard.decoding.hypothesis import Check, SearchResults, never_stop
from regard.decoding.next_tokens import NextTokens
from regard.decoding.row_search import search_rows, stream_row
from regard.decoding.step_model import StepModel


def output_limits(
    lengths: Sequence[int], options: SearchOptions, demands: Demands | None, max_length: int | None
) -> list[int]:
    """Return the most tokens of each output, EOS included, given the lengths of the sources with EOS."""
    limits = [options.limit(length - 1) for length in lengths]
    if demands is not None:
        limits = [demands.limit(sentence, limit, options) for sentence, limit in enumerate(limits)]
    return limits if max_length is None else [min(limit, max_length) for limit in limits]


def search_batch(
    model: StepModel,
    source: Any,
    lengths: Sequence[int],
    *,
    options: SearchOptions,
    demands: Demands | None = None,
    check: Check = never_stop,
) -> Iterator[SearchResults]:
    """Yield the `nbest` best outputs of sentences as they finish: each one with beams, a quarter of the batch without.

    `lengths` are those of the sources, with EOS. An output has what its sentence demands. `check` is called before every
    step.
    """
    options = SearchOptions().with_given(options)
    limits = output_limits(lengths, options, demands, model.max_length)
    if demands is not None and demands.vocabularies is not None:
        model = model.with_vocabularies(demands.vocabularies)
    check()
    memory = model.encode(source)
    next_tokens = NextTokens(model, options, None if demands is None else demands.constraints(limits))
    if options.sample:
        sources = model.source_ids(source)
        randoms = [generator(options.seed, sample, ids) for ids in sources for sample in range(options.beam)]
        yield from search_rows(model, memory, limits, next_tokens, check, Draws(randoms, options))
    elif options.beam == 1:
        yield from search_rows(model, memory, limits, next_tokens, check)
    else:
        yield from BeamSearch(model, memory, limits, next_tokens).run(check)


def stream_sentence(
    model: StepModel,
    source: Any,
    length: int,
    *,
    options: SearchOptions,
    on_token: Callable[[list[int]], None],
    demands: Demands | None = None,
    check: Check = never_stop,
) -> list[int]:
    """Return the output of greedy search for one source. `on_token` receives the output so far after each token."""
    if demands is not None and demands.vocabularies is not None:
        model = model.with_vocabularies(demands.vocabularies)
    (limit,) = output_limits([length], options, None, model.max_length)
    next_tokens = NextTokens(model, options, None if demands is None else demands.constraints([limit]))
    return stream_row(model, model.encode(source), limit, next_tokens, on_token, check)
