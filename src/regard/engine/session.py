"""Sessions of the engine: many sentences searched with threads of its own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config.search_options import SearchOptions
from regard.engine.bindings import Result, SentenceOptions, engine, error, library
from regard.engine.model import EngineModel
from regard.errors import ConfigError, DecodeError

WAIT = 100  # milliseconds between two calls of `check` while the engine searches


class Found(NamedTuple):
    """An output of a session: ids without EOS, the score, and the log-probability of each token if wanted."""

    ids: list[int]
    score: float
    token_scores: list[float] | None


class Session:
    """Searches many sentences; `rows` and `tokens` limit the batch of each thread."""

    def __init__(self, model: EngineModel, *, threads: int = 1, rows: int = 128, tokens: int = 8192) -> None:
        self.model = model  # lives as long as the session
        self._process = os.getpid()
        self._handle = engine().regard_session_new(model.handle, threads, rows, tokens)
        if not self._handle:
            raise ConfigError(error())

    @property
    def in_this_process(self) -> bool:
        """Whether it was begun here. A child of `fork` has none of its parent's threads, and must not use its session."""
        return self._process == os.getpid()

    def add(
        self,
        source: Sequence[int],
        options: SearchOptions,
        limit: int,
        *,
        prefix: Sequence[int] = (),
        never: Sequence[int] = (),
        allowed: Sequence[int] | NDArray[np.int64] = (),
        numbers: NDArray[np.float64] | None = None,
    ) -> int:
        """Queue a source, EOS included, and return its ticket. `numbers` [beam, limit] are those of samples."""
        early = {True: 1, False: 0, "never": 2}[options.early_stopping]
        lists = [np.asarray(ids, dtype=np.int32) for ids in (prefix, never, allowed)]
        if numbers is not None:
            numbers = np.ascontiguousarray(numbers, dtype=np.float64)
            assert numbers.shape == (options.beam, limit), numbers.shape
        given = SentenceOptions(
            beam=options.beam,
            nbest=options.nbest,
            limit=limit,
            min_length=min(options.min_length, 2**31 - 1),
            power_penalty=options.length_penalty_kind == "power",
            early_stopping=early,
            scores=options.scores,
            token_scores=options.token_scores,
            sample=options.sample,
            top_k=options.top_k or 0,
            length_penalty=options.length_penalty,
            temperature=options.temperature,
            top_p=-1.0 if options.top_p is None else options.top_p,
            epsilon=-1.0 if options.epsilon is None else options.epsilon,
            numbers=None if numbers is None else numbers.ctypes.data,
            **{name: ids.ctypes.data for name, ids in zip(("prefix", "never", "allowed"), lists, strict=True)},
            **{f"num_{name}": ids.size for name, ids in zip(("prefix", "never", "allowed"), lists, strict=True)},
        )
        ids = np.asarray(source, dtype=np.int32)
        ticket = int(engine().regard_session_add(self._handle, ids.ctypes.data, ids.size, ctypes.byref(given)))
        if ticket < 0:
            raise DecodeError(error())
        return ticket

    def next(self, milliseconds: int = WAIT) -> tuple[int, list[Found] | None] | None:
        """Return a sentence that has ended: its ticket and outputs, best first; None if none has within this time.

        In place of outputs there is None if there was no memory for the search.
        """
        result = Result()
        status = engine().regard_session_next(self._handle, milliseconds, ctypes.byref(result))
        if status == 0:
            return None
        if status < 0 or result.count < 0:
            return int(result.ticket), None
        found, at, scored = [], 0, 0
        for i in range(result.count):
            ids, at = result.ids[at : at + result.lengths[i]], at + result.lengths[i]
            more = scored + result.num_token_scores[i]
            token_scores = result.token_scores[scored:more] if result.token_scores else None
            found.append(Found(ids, result.scores[i], token_scores))
            scored = more
        ticket = int(result.ticket)
        engine().regard_result_free(ctypes.byref(result))
        return ticket, found

    def cancel(self, ticket: int = -1) -> None:
        """Forget a sentence, or all of them."""
        if self.in_this_process:
            engine().regard_session_cancel(self._handle, ticket)

    def close(self) -> None:
        """End the threads and forget all sentences."""
        if self._handle and self.in_this_process:
            engine().regard_session_free(self._handle)
        self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and library() is not None:
            self.close()
