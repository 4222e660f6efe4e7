"""Models of PyTorch as a `Translator` uses them: sources in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from regard.config import SearchOptions
from regard.data.budget import batches_by_length
from regard.data.ragged import Ragged
from regard.decoding.backend import Backend, Row
from regard.decoding.constraints import Demands
from regard.decoding.coverage import coverage_penalties, refuse_without_attention
from regard.decoding.forced_decoding import forced_scores
from regard.decoding.hypothesis import Check, SearchResults, TokenScores, never_stop
from regard.decoding.search import search_all, stream_greedy
from regard.decoding.shortlist_model import refuse_without_columns
from regard.errors import DecodeError
from regard.models.base import Model, Seq2Seq
from regard.text.symbols import EOS


class TorchBackend(Backend):
    """A model of PyTorch, of either kind."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def model(self) -> Model:
        return self._model

    @property
    def device(self) -> torch.device:
        return next(self._model.parameters()).device

    @property
    def eos(self) -> int:
        return self._model.eos if isinstance(self._model, Seq2Seq) else EOS

    @property
    def max_length(self) -> int | None:
        return self._model.max_length

    @property
    def never(self) -> tuple[int, ...]:
        return self._model.never if isinstance(self._model, Seq2Seq) else ()

    @property
    def reads_source_eos(self) -> bool:
        return self._model.reads_source_eos

    @property
    def copies(self) -> bool:
        return self._model.copies

    @property
    def non_autoregressive(self) -> bool:
        return self._model.non_autoregressive

    @property
    def num_members(self) -> int:
        return len(self._autoregressive().members)

    def num_parameters(self) -> int:
        return self._model.num_parameters()

    def search(
        self,
        sources: Sequence[list[int]],
        *,
        options: SearchOptions,
        demands: Demands | None = None,
        check: Check = never_stop,
    ) -> Iterator[SearchResults]:
        device = self.device
        budget = max(1, options.tokens // options.beam)
        kinds = [list(range(len(sources)))]
        if device.type == "cuda" and demands is not None:
            # Those without constraints are searched by the device alone, if they are batched by themselves.
            free = [automaton is None for automaton in demands.automata]
            kinds = [[number for number in kinds[0] if free[number] is kind] for kind in (True, False)]
        batches = [
            [some[place] for place in batch]
            for some in kinds
            if some
            for batch in batches_by_length([len(sources[number]) for number in some], budget)
        ]
        made = [partial(Ragged.from_lists, [sources[number] for number in batch], device) for batch in batches]
        some = [None if demands is None else demands.of(batch) for batch in batches]
        found = search_all(
            self._model, made, options=options, demands=() if self.non_autoregressive else some, check=check
        )
        for batch, results in found:
            yield [(batches[batch][sentence], best) for sentence, best in results]

    def stream(
        self,
        source: list[int],
        *,
        options: SearchOptions,
        on_token: Callable[[list[int]], None],
        demands: Demands | None = None,
        check: Check = never_stop,
    ) -> list[int]:
        model = self._autoregressive()
        return stream_greedy(model, source, options=options, on_token=on_token, demands=demands, check=check)

    def forced_scores(
        self,
        sources: Sequence[list[int]],
        outputs: Sequence[list[int]],
        *,
        temperature: float | None = None,
        tokens: int,
        check: Check = never_stop,
    ) -> list[TokenScores]:
        model = self._autoregressive()
        return forced_scores(model, sources, outputs, temperature=temperature, tokens=tokens, check=check)

    def refuse_shortlist(self) -> None:
        refuse_without_columns(self._model)

    def refuse_coverage(self) -> None:
        refuse_without_attention(self._model)

    def coverage_penalties(self, rows: Sequence[Row], *, tags: int = 0, budget: int = 8192) -> list[float]:
        return coverage_penalties(self._model, rows, tags=tags, budget=budget)

    def _autoregressive(self) -> Seq2Seq:
        if not isinstance(self._model, Seq2Seq):
            raise DecodeError("this model outputs all tokens at once, and not one after another")
        return self._model
