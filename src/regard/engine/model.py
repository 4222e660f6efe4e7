"""A Transformer in the engine: its weights, and outputs that are given to it.

Shapes: S source tokens, T output tokens and EOS, L layers, H heads.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config.transformer import TransformerConfig
from regard.engine.bindings import Config, engine, error, library
from regard.errors import CheckpointError, ConfigError, DecodeError

TYPES = {"float32": 0, "float16": 1, "int8": 2}
POSITIONS = ("none", "sinusoid", "sinusoid-halves", "sinusoid-log", "learned", "rotary")
FEED_FORWARD = ("relu", "gelu", "silu", "swiglu", "conv")
TIES = ("all", "target", "none")
NO_WINDOW = -1
ALL_ATTENTION, LAST_CROSS_ATTENTION = 0, 1  # of `regard_force`

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]


class Tensor(NamedTuple):
    """A weight as it is stored: float32, float16, or int8 with one scale per row."""

    data: NDArray[Any]
    scales: Floats | None = None


class EngineModel:
    """A Transformer in the engine. `weights` are named as in a run folder."""

    def __init__(
        self,
        config: TransformerConfig,
        weights: Iterable[tuple[str, Tensor]],
        *,
        source_size: int,
        target_size: int,
        bos: int,
        eos: int,
        int8: bool = False,
    ) -> None:
        self._handle: int | None = None
        self.config, self.source_size, self.target_size, self.int8 = config, source_size, target_size, int8
        self.bos, self.eos = bos, eos
        self.max_length = config.max_positions if config.positions == "learned" else None
        sizes = {"source_size": source_size, "target_size": target_size, "bos": bos, "eos": eos, "int8": int8}
        self._handle = engine().regard_model_new(ctypes.byref(config_struct(config, sizes)))
        if not self._handle:
            raise ConfigError(f"the engine cannot compute this model: {error()}")
        for name, tensor in weights:
            self._set(name, tensor)
        if engine().regard_model_ready(self._handle):
            raise CheckpointError(f"the weights do not fit the recipe: {error()}")

    def _set(self, name: str, tensor: Tensor) -> None:
        data, scales = np.ascontiguousarray(tensor.data), tensor.scales
        if data.dtype.name not in TYPES:
            raise CheckpointError(f"{name} is stored as {data.dtype.name}; the engine reads {', '.join(TYPES)}")
        scales = None if scales is None else np.ascontiguousarray(scales, dtype=np.float32)
        rows, columns = data.shape if data.ndim == 2 else (1, data.size)
        given = data.ctypes.data, None if scales is None else scales.ctypes.data
        if engine().regard_model_set(self._handle, name.encode(), TYPES[data.dtype.name], *given, rows, columns):
            raise CheckpointError(f"the weights do not fit the recipe: {error()}")

    @property
    def handle(self) -> int:
        assert self._handle is not None
        return self._handle

    @property
    def num_bytes(self) -> int:
        """The memory of the weights."""
        return int(engine().regard_model_bytes(self.handle))

    def silence(self, stack: int, layer: int, head: int = -1, *, silent: bool = True) -> None:
        """Make a head, or a whole layer, give nothing. `stack`: 0 encoder, 1 decoder, 2 attention to the encoder."""
        if engine().regard_model_silence(self.handle, stack, layer, head, silent):
            raise DecodeError(error())

    def force(
        self, source: Sequence[int], target: Sequence[int], *, threads: int = 1, best: int = 0, attention: bool = False
    ) -> Forced:
        """Return how likely each token of a given output is, EOS last; its `best` likeliest tokens; attention weights."""
        config, H, (T, S) = self.config, self.config.num_heads, self._lengths(source, target)
        logp, columns = np.empty(T, dtype=np.float32), np.empty((T, best), dtype=np.int32)
        values = np.empty((T, best), dtype=np.float32)
        shapes = [(config.num_layers, H, S, S), (config.depth, H, T, T), (config.depth, H, T, S)] if attention else []
        sizes = [math.prod(shape) for shape in shapes]
        weights = np.empty(sum(sizes), dtype=np.float32)
        outputs = logp.ctypes.data, best, columns.ctypes.data, values.ctypes.data
        self._force(source, target, threads, *outputs, weights.ctypes.data if attention else None, ALL_ATTENTION)
        parts = np.split(weights, np.cumsum(sizes)[:-1]) if attention else []
        return Forced(logp, columns, values, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])

    def last_cross_attention(self, source: Sequence[int], target: Sequence[int], *, threads: int = 1) -> Floats:
        """Return the attention of the last decoder layer to the source, for a given output: [H, T, S]."""
        assert self.config.depth
        weights = np.empty((self.config.num_heads, *self._lengths(source, target)), dtype=np.float32)
        nothing = None, 0, None, None
        self._force(source, target, threads, *nothing, weights.ctypes.data, LAST_CROSS_ATTENTION)
        return weights

    def _lengths(self, source: Sequence[int], target: Sequence[int]) -> tuple[int, int]:
        """Return T and S."""
        return len(target) + 1, len(source) - (not self.config.source_eos and len(source) > 1)

    def _force(self, source: Sequence[int], target: Sequence[int], threads: int, *outputs: int | None) -> None:
        source_ids, target_ids = np.asarray(source, dtype=np.int32), np.asarray(target, dtype=np.int32)
        given = source_ids.ctypes.data, len(source), target_ids.ctypes.data, len(target)
        if engine().regard_force(self.handle, *given, threads, *outputs):
            raise DecodeError(error())

    def __del__(self) -> None:
        if self._handle and (found := library()) is not None:
            found.regard_model_free(self._handle)
            self._handle = None


class Forced(NamedTuple):
    """What a model says of a given output."""

    logp: Floats  # of each token and of EOS: [T]
    columns: Ids  # the likeliest tokens at each position: [T, best]
    values: Floats  # their log-probabilities
    attention: list[Floats]  # of encoder [L, H, S, S], decoder [L, H, T, T], and between them [L, H, T, S]


def config_struct(config: TransformerConfig, sizes: dict[str, int]) -> Config:
    """Return RegardConfig, 32 bits per field."""
    heads = config.heads
    found = Config(**sizes)
    for name in (
        "width",
        "hidden",
        "num_heads",
        "first_position",
        "max_positions",
        "attention_bias",
        "qk_norm",
        "norm_eps",
    ):
        setattr(found, name, getattr(config, name))
    for name in ("scale_embeddings", "output_bias", "start_id", "source_eos", "copy"):
        setattr(found, name, getattr(config, name))
    found.key_width, found.value_width = heads.key_width, heads.value_width
    found.encoder_layers, found.decoder_layers = config.num_layers, config.depth
    found.positions, found.feed_forward = POSITIONS.index(config.positions), FEED_FORWARD.index(config.feed_forward)
    found.rms_norm, found.pre_norm = config.norm == "rms", config.norm_order == "pre"
    found.final_norm, found.tie = config.has_final_norm, TIES.index(config.tie)
    found.window = NO_WINDOW if config.window is None else config.window
    return found
