"""Steps of the engine as the search of the host asks for them (`decoding.step_model`).

Shapes: B sentences, R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.decoding.hypothesis import IMPOSSIBLE
from regard.decoding.numpy_scores import NumpyScores
from regard.decoding.step_model import Integers
from regard.engine.library import EngineModel, Rows

Sources = Sequence[Sequence[int]]


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
