"""Steps of the engine under the control of the caller, and as the search of the host asks for them (`decoding.step_model`).

Shapes: B sentences, R rows, V vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.decoding.hypothesis import IMPOSSIBLE
from regard.decoding.numpy_scores import NumpyScores
from regard.decoding.step_model import Integers
from regard.engine.bindings import engine, error, library
from regard.engine.model import EngineModel
from regard.errors import DecodeError

Sources = Sequence[Sequence[int]]


class Rows:
    """Steps of many sentences under the control of the caller: one row per sentence at first, then `beams`."""

    def __init__(
        self, model: EngineModel, sources: Sequence[Sequence[int]], *, beams: int = 1, threads: int = 1
    ) -> None:
        self.model = model
        self._process = os.getpid()
        ids = np.concatenate([np.asarray(one, dtype=np.int32) for one in sources])
        offsets = np.cumsum([0, *map(len, sources)], dtype=np.int64)
        self._handle = engine().regard_rows_new(
            model.handle, ids.ctypes.data, offsets.ctypes.data, len(sources), beams, threads
        )
        if not self._handle:
            raise DecodeError(error())

    def __len__(self) -> int:
        return int(engine().regard_rows_count(self._handle))

    def step(self, tokens: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Return the logits after one more token per row: [R, V]."""
        tokens = np.ascontiguousarray(tokens, dtype=np.int32)
        assert tokens.shape == (len(self),), (tokens.shape, len(self))
        logits = np.empty((len(tokens), self.model.target_size), dtype=np.float32)
        if engine().regard_rows_step(self._handle, tokens.ctypes.data, logits.ctypes.data):
            raise DecodeError(error())
        return logits

    def expand_beams(self) -> None:
        """Expand each sentence from one row to `beams` rows. Call once, after the first step; skip when beams is 1."""
        if engine().regard_rows_expand(self._handle):
            raise DecodeError(error())

    def reorder(self, rows: NDArray[np.integer[Any]]) -> None:
        """Make row i continue row rows[i]. Sentences may be dropped, but keep their order."""
        parents = np.ascontiguousarray(rows, dtype=np.int64)
        if engine().regard_rows_reorder(self._handle, parents.ctypes.data, parents.size):
            raise DecodeError(error())

    def __del__(self) -> None:
        # A child of `fork` cannot end its parent's threads.
        if getattr(self, "_handle", None) and self._process == os.getpid() and (found := library()) is not None:
            found.regard_rows_free(self._handle)
        self._handle = None


class EngineState:
    """Rows in the engine, and which tokens each may output, if that is restricted."""

    def __init__(self, rows: Rows, beams: int, allowed_RV: NDArray[np.bool_] | None) -> None:
        self.rows, self.beams, self.allowed = rows, beams, allowed_RV

    def expand_beams(self) -> None:
        if self.beams > 1:
            self.rows.expand_beams()
        if self.allowed is not None:
            self.allowed = self.allowed.repeat(self.beams, axis=0)

    def reorder(self, rows: Integers) -> None:
        self.rows.reorder(rows)
        if self.allowed is not None:
            self.allowed = self.allowed[rows]


class EngineStepModel:
    """A model of the engine whose steps the host controls. Sources are lists of ids, with EOS."""

    def __init__(self, model: EngineModel, *, threads: int = 1, vocabularies: Sequence[Integers] | None = None) -> None:
        self.model, self.threads, self.vocabularies = model, threads, vocabularies
        self.bos, self.eos, self.max_length = model.bos, model.eos, model.max_length
        self.never = (model.bos,)

    def place(self, *arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        return arrays

    def source_ids(self, source: Sources) -> list[list[int]]:
        return [list(ids) for ids in source]

    def with_vocabularies(self, vocabularies: Sequence[Integers]) -> EngineStepModel:
        return EngineStepModel(self.model, threads=self.threads, vocabularies=vocabularies)

    def encode(self, source: Sources) -> Sources:
        return source

    def start(self, memory: Sources, *, beams: int) -> EngineState:
        allowed_BV = None
        if self.vocabularies is not None:
            allowed_BV = np.zeros((len(memory), self.model.target_size), dtype=np.bool_)
            for allowed_V, ids in zip(allowed_BV, self.vocabularies, strict=True):
                allowed_V[ids] = True
        return EngineState(Rows(self.model, memory, beams=beams, threads=self.threads), beams, allowed_BV)

    def step(self, tokens: Integers, state: EngineState) -> NumpyScores:
        logits_RV = state.rows.step(tokens)
        if state.allowed is not None:
            logits_RV[~state.allowed] = IMPOSSIBLE
        return NumpyScores(logits_RV)
