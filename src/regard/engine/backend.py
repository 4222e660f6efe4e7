"""Models of the engine as a `Translator` uses them.

A session of the engine does greedy search, beam search and sampling, with prefixes and shortlists. What it does not have
(phrases, protected spans, repetition, diverse beams, streams) is searched by the host over steps of the engine.

Shapes: R rows, V vocabulary, L layers, H heads, S source tokens, T output tokens and EOS.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.config import SearchOptions
from regard.data.budget import batches_by_length
from regard.decoding.automaton import Automaton
from regard.decoding.backend import Backend, ForcedTrace, Row
from regard.decoding.batch_search import output_limits, search_batch, stream_sentence
from regard.decoding.constraints import Demands
from regard.decoding.drawing import generator
from regard.decoding.hypothesis import (
    Check,
    Hypothesis,
    SearchResults,
    TokenScores,
    never_stop,
    refuse_not_finite,
)
from regard.decoding.numpy_scores import log_normalizers
from regard.decoding.repetition import forbids_repetition
from regard.decoding.step_model import Floats
from regard.engine.model import EngineModel
from regard.engine.session import Session
from regard.engine.shared_session import SharedSession
from regard.engine.steps import EngineStepModel, Rows
from regard.engine.threads import MOST_THREADS, default_threads, in_threads
from regard.errors import ConfigError, DecodeError

if TYPE_CHECKING:
    from regard.models.base import Model

MOST_NUMBERS = 2**20  # random numbers of a sentence that are made when it is added
FORCED_ROWS = 64  # outputs that are scored together, step by step
LEAST_ATTENTION = 1e-6  # of a token that has less (`decoding.coverage`)


class EngineBackend(Backend):
    """A Transformer that the engine computes, on a CPU."""

    def __init__(
        self,
        model: EngineModel,
        *,
        num_parameters: int,
        threads: int = 0,
        load_model: Callable[[], Model] | None = None,
    ) -> None:
        """`load_model` returns the same model as a module of PyTorch. `threads` 0: one per core."""
        self.engine_model, self.threads = model, min(threads, MOST_THREADS) or default_threads()
        self._num_parameters, self._load_model = num_parameters, load_model and cache(load_model)
        self._start_sessions()

    def _start_sessions(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._sessions: dict[int, SharedSession] = {}  # by the most tokens of a batch

    @property
    def model(self) -> Model:
        if self._load_model is None:
            raise ConfigError(
                "the engine computes this model, and this needs it in PyTorch; load it with engine='torch'"
            )
        return self._load_model()

    @property
    def eos(self) -> int:
        return self.engine_model.eos

    @property
    def max_length(self) -> int | None:
        return self.engine_model.max_length

    @property
    def never(self) -> tuple[int, ...]:
        return (self.engine_model.bos,)

    @property
    def reads_source_eos(self) -> bool:
        return self.engine_model.config.source_eos

    @property
    def shares_batches(self) -> bool:
        return True

    def num_parameters(self) -> int:
        return self._num_parameters

    # Search

    def search(
        self,
        sources: Sequence[list[int]],
        *,
        options: SearchOptions,
        demands: Demands | None = None,
        check: Check = never_stop,
    ) -> Iterator[SearchResults]:
        options = SearchOptions().with_given(options)
        limits = output_limits([len(ids) for ids in sources], options, demands, self.max_length)
        automata: Sequence[Automaton | None] = [None] * len(sources) if demands is None else demands.automata
        by_host = [
            number
            for number, (automaton, limit) in enumerate(zip(automata, limits, strict=True))
            if not _in_session(options, automaton, limit)
        ]
        others = set(by_host)
        by_session = [number for number in range(len(sources)) if number not in others]
        if by_session:
            yield from self._search_in_session(sources, by_session, limits, options, demands, check)
        lengths = [len(sources[number]) for number in by_host]
        for batch in batches_by_length(lengths, max(1, options.tokens // options.beam)):
            numbers = [by_host[place] for place in batch]
            for found in search_batch(
                EngineStepModel(self.engine_model, threads=self.threads),
                [sources[number] for number in numbers],
                [len(sources[number]) for number in numbers],
                options=options,
                demands=None if demands is None else demands.of(numbers),
                check=check,
            ):
                yield [(numbers[place], best) for place, best in refuse_not_finite(found)]

    def _search_in_session(
        self,
        sources: Sequence[list[int]],
        numbers: Sequence[int],
        limits: Sequence[int],
        options: SearchOptions,
        demands: Demands | None,
        check: Check,
    ) -> Iterator[SearchResults]:
        check()
        never = (self.engine_model.bos, *(() if demands is None else demands.never))

        def addition(number: int) -> Callable[[Session], int]:
            automaton = None if demands is None else demands.automata[number]
            allowed = () if demands is None or demands.vocabularies is None else demands.vocabularies[number]
            random = None
            if options.sample:
                samples = (generator(options.seed, sample, sources[number]) for sample in range(options.beam))
                random = np.stack([one.random(limits[number]) for one in samples])
            return lambda session: session.add(
                sources[number],
                options,
                limits[number],
                prefix=() if automaton is None else automaton.prefix,
                never=never,
                allowed=allowed,
                numbers=random,
            )

        # The longest first, so that no thread is still busy with one when the others are done.
        order = sorted(numbers, key=lambda number: -len(sources[number]))
        session = self._session(options.tokens)
        try:
            for place, found in session.search(map(addition, order), check):
                best = [Hypothesis(one.ids, one.score, one.token_scores) for one in found]
                yield refuse_not_finite([(order[place], best)])
        finally:
            if self._process == os.getpid():
                with self._lock:
                    session.users -= 1

    def _session(self, tokens: int) -> SharedSession:
        """Return the session for batches of this many source tokens, which all searches share, with one more user."""
        if self._process != os.getpid():
            # A child of `fork` has none of the threads of its parent's sessions, and their locks may stay held.
            self._start_sessions()
        with self._lock:
            if tokens not in self._sessions:
                for other in [one for one, session in self._sessions.items() if not session.users]:
                    self._sessions.pop(other).close()
                self._sessions[tokens] = SharedSession(self.engine_model, threads=self.threads, tokens=tokens)
            self._sessions[tokens].users += 1
            return self._sessions[tokens]

    def stream(
        self,
        source: list[int],
        *,
        options: SearchOptions,
        on_token: Callable[[list[int]], None],
        demands: Demands | None = None,
        check: Check = never_stop,
    ) -> list[int]:
        model = EngineStepModel(self.engine_model, threads=self.threads)
        return stream_sentence(
            model, [source], len(source), options=options, on_token=on_token, demands=demands, check=check
        )

    # Outputs that are given

    def forced_scores(
        self,
        sources: Sequence[list[int]],
        outputs: Sequence[list[int]],
        *,
        temperature: float | None = None,
        tokens: int,
        check: Check = never_stop,
    ) -> list[TokenScores]:
        at_once = [number for number, output in enumerate(outputs) if temperature is None and output[-1] == self.eos]
        rest = sorted({*range(len(outputs))}.difference(at_once))

        def scores_of(number: int, threads: int) -> TokenScores:
            forced = self.engine_model.force(sources[number], outputs[number][:-1], threads=threads)
            return TokenScores(forced.logp.tolist())

        found = dict(zip(at_once, in_threads(scores_of, at_once, threads=self.threads, check=check), strict=True))
        for start in range(0, len(rest), FORCED_ROWS):
            some = sorted(rest, key=lambda number: len(outputs[number]))[start : start + FORCED_ROWS]
            pairs = [(sources[number], outputs[number]) for number in some]
            found.update(zip(some, self._forced_by_steps(pairs, temperature, check), strict=True))
        if any(math.isnan(one) or one == math.inf for some in found.values() for one in some.scores):
            raise DecodeError("the model's scores are not finite; its weights are damaged, or it has diverged")
        return [found[number] for number in range(len(outputs))]

    def _forced_by_steps(
        self, pairs: Sequence[tuple[list[int], list[int]]], temperature: float | None, check: Check
    ) -> list[TokenScores]:
        """Return the scores of outputs that are read one token at a time, for what `force` does not return."""
        rows = Rows(self.engine_model, [source for source, _ in pairs], threads=self.threads)
        lengths = np.array([len(output) for _, output in pairs])
        labels_RT = np.full((len(pairs), lengths.max()), self.eos)
        for labels, (_, output) in zip(labels_RT, pairs, strict=True):
            labels[: len(output)] = output
        scores_RT: NDArray[np.float64] = np.zeros(labels_RT.shape)
        warm_RT: NDArray[np.float64] = np.zeros(labels_RT.shape)
        tokens, every = np.full(len(pairs), self.engine_model.bos), np.arange(len(pairs))
        for step in range(labels_RT.shape[1]):
            check()
            logits_RV, labels_R = rows.step(tokens), labels_RT[:, step]
            scores_RT[:, step] = _log_probabilities(logits_RV, every, labels_R)
            if temperature is not None:
                warm_RT[:, step] = _log_probabilities(logits_RV / np.float32(temperature), every, labels_R)
            tokens = labels_R
        return [
            TokenScores(
                scores_RT[row, :length].tolist(), None if temperature is None else warm_RT[row, :length].tolist()
            )
            for row, length in enumerate(lengths.tolist())
        ]

    def forced_trace(self, source: list[int], output: list[int], *, best: int) -> ForcedTrace:
        best = min(best, self.engine_model.target_size)
        found = self.engine_model.force(source, output[:-1], threads=self.threads, best=best, attention=True)
        if output[-1] != self.eos:
            # `force` has scored EOS in its place.
            (scores,) = self._forced_by_steps([(source, output)], None, never_stop)
            found.logp[-1] = scores.scores[-1]
        encoder, decoder, between = found.attention
        return ForcedTrace(found.logp, found.columns, found.values, [*encoder], [*decoder], [*between])

    def refuse_shortlist(self) -> None:
        """The engine has them."""

    def refuse_coverage(self) -> None:
        if not self.engine_model.config.depth:
            raise DecodeError("coverage_penalty needs attention over the source, which this Transformer has not")

    def coverage_penalties(self, rows: Sequence[Row], *, tags: int = 0, budget: int = 8192) -> list[float]:
        def penalty(row: Row, threads: int) -> float:
            source, target = row
            # The longest hypothesis of a model with learned positions has no room for EOS.
            read = target if self.max_length is None else target[: self.max_length - 1]
            weights_HTS = self.engine_model.last_cross_attention([*source, self.eos], read, threads=threads)
            seen_HTS = weights_HTS[:, :, tags : len(source)]
            covered_S: Floats = np.add.reduce(seen_HTS, axis=(0, 1)) / np.float32(len(seen_HTS))
            return float(np.log(covered_S.clip(LEAST_ATTENTION, 1.0)).sum())

        return in_threads(penalty, rows, threads=self.threads, check=never_stop)


def _in_session(options: SearchOptions, automaton: Automaton | None, limit: int) -> bool:
    """Return whether a session of the engine has the search that a sentence asks for."""
    if options.beam_groups > 1 or forbids_repetition(options):
        return False
    if options.sample and options.beam * limit > MOST_NUMBERS:
        return False
    return automaton is None or not (automaton.phrases or automaton.symbols)


def _log_probabilities(logits_RV: Floats, rows_R: np.ndarray, labels_R: np.ndarray) -> Floats:
    found: Floats = logits_RV[rows_R, labels_R] - log_normalizers(logits_RV)
    return found
