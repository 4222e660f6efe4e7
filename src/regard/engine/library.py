"""The engine's library, read with ctypes (`engine.h`).

An `EngineModel` holds a model's weights. A `Session` searches many sentences with threads of the engine's own; `Rows` are
steps under the control of the caller; `EngineModel.force` scores given outputs. Calls release the GIL.

Shapes: R rows, V vocabulary, S source tokens, T output tokens and EOS, L layers, H heads.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config.search_options import SearchOptions
from regard.config.transformer import TransformerConfig
from regard.errors import CheckpointError, ConfigError, DecodeError

LIBRARY = Path(__file__).with_name("libregard.dylib" if sys.platform == "darwin" else "libregard.so")
TYPES = {"float32": 0, "float16": 1, "int8": 2}
POSITIONS = ("none", "sinusoid", "sinusoid-halves", "sinusoid-log", "learned", "rotary")
FEED_FORWARD = ("relu", "gelu", "silu", "swiglu", "conv")
TIES = ("all", "target", "none")
NO_WINDOW = -1
WAIT = 100  # milliseconds between two calls of `check` while the engine searches

Ids = NDArray[np.int32]


class _Config(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("width", "hidden", "num_heads", "key_width", "value_width")),
        *(
            (name, c_int32)
            for name in ("encoder_layers", "decoder_layers", "positions", "first_position", "max_positions")
        ),
        *(
            (name, c_int32)
            for name in ("rms_norm", "pre_norm", "final_norm", "feed_forward", "attention_bias", "qk_norm")
        ),
        *((name, c_int32) for name in ("window", "tie", "scale_embeddings", "output_bias", "start_id", "source_eos")),
        *((name, c_int32) for name in ("copy", "source_size", "target_size", "bos", "eos", "int8")),
        ("norm_eps", c_float),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("beam", "nbest", "limit", "min_length", "power_penalty", "early_stopping")),
        *((name, c_int32) for name in ("scores", "token_scores", "sample", "top_k")),
        *((name, c_float) for name in ("length_penalty", "temperature", "top_p", "epsilon")),
        *((name, c_void_p) for name in ("numbers", "prefix", "never", "allowed")),
        *((name, c_int64) for name in ("num_prefix", "num_never", "num_allowed")),
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        ("ticket", c_int64),
        ("count", c_int32),
        ("lengths", POINTER(c_int32)),
        ("ids", POINTER(c_int32)),
        ("scores", POINTER(c_double)),
        ("num_token_scores", POINTER(c_int32)),
        ("token_scores", POINTER(c_double)),
        ("memory", c_void_p),
    ]


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "model_new": (c_void_p, [POINTER(_Config)]),
    "model_set": (c_int, [c_void_p, c_char_p, c_int32, c_void_p, c_void_p, c_int64, c_int64]),
    "model_ready": (c_int, [c_void_p]),
    "model_bytes": (c_int64, [c_void_p]),
    "model_silence": (c_int, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "model_free": (None, [c_void_p]),
    "session_new": (c_void_p, [c_void_p, c_int32, c_int32, c_int32]),
    "session_add": (c_int64, [c_void_p, c_void_p, c_int64, POINTER(_Options)]),
    "session_next": (c_int, [c_void_p, c_int64, POINTER(_Result)]),
    "session_cancel": (None, [c_void_p, c_int64]),
    "session_free": (None, [c_void_p]),
    "result_free": (None, [POINTER(_Result)]),
    "rows_new": (c_void_p, [c_void_p, c_void_p, c_void_p, c_int64, c_int32, c_int32]),
    "rows_step": (c_int, [c_void_p, c_void_p, c_void_p]),
    "rows_expand": (c_int, [c_void_p]),
    "rows_reorder": (c_int, [c_void_p, c_void_p, c_int64]),
    "rows_count": (c_int64, [c_void_p]),
    "rows_free": (None, [c_void_p]),
    "force": (
        c_int,
        [c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int32, c_void_p, c_int32, c_void_p, c_void_p, c_void_p],
    ),
    "error": (c_char_p, []),
    "processor": (c_char_p, []),
    "choose_kernels": (c_int64, [c_char_p]),
}


@cache
def library() -> ctypes.CDLL | None:
    """Return the engine's library; None where it has not been built."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(found, f"regard_{name}")
            function.restype, function.argtypes = result, arguments
        return found
    except (OSError, AttributeError):
        return None


def _engine() -> ctypes.CDLL:
    found = library()
    if found is None:
        raise ConfigError(
            "the engine has not been compiled; install a C compiler and regard again, or use engine='torch'"
        )
    return found


def _error() -> str:
    return _engine().regard_error().decode(errors="replace")


def processor() -> str:
    """Return the name of the kernels in use."""
    return _engine().regard_processor().decode()


class Tensor(NamedTuple):
    """A weight as it is stored: float32, float16, or int8 with one scale per row."""

    data: NDArray[Any]
    scales: NDArray[np.float32] | None = None


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
        self._handle = _engine().regard_model_new(ctypes.byref(config_struct(config, sizes)))
        if not self._handle:
            raise ConfigError(f"the engine cannot compute this model: {_error()}")
        for name, tensor in weights:
            self._set(name, tensor)
        if _engine().regard_model_ready(self._handle):
            raise CheckpointError(f"the weights do not fit the recipe: {_error()}")

    def _set(self, name: str, tensor: Tensor) -> None:
        data, scales = np.ascontiguousarray(tensor.data), tensor.scales
        if data.dtype.name not in TYPES:
            raise CheckpointError(f"{name} is stored as {data.dtype.name}; the engine reads {', '.join(TYPES)}")
        scales = None if scales is None else np.ascontiguousarray(scales, dtype=np.float32)
        rows, columns = data.shape if data.ndim == 2 else (1, data.size)
        given = data.ctypes.data, None if scales is None else scales.ctypes.data
        if _engine().regard_model_set(self._handle, name.encode(), TYPES[data.dtype.name], *given, rows, columns):
            raise CheckpointError(f"the weights do not fit the recipe: {_error()}")

    @property
    def handle(self) -> int:
        assert self._handle is not None
        return self._handle

    @property
    def num_bytes(self) -> int:
        """The memory of the weights."""
        return int(_engine().regard_model_bytes(self.handle))

    def silence(self, stack: int, layer: int, head: int = -1, *, silent: bool = True) -> None:
        """Make a head, or a whole layer, give nothing. `stack`: 0 encoder, 1 decoder, 2 attention to the encoder."""
        if _engine().regard_model_silence(self.handle, stack, layer, head, silent):
            raise DecodeError(_error())

    def force(
        self, source: Sequence[int], target: Sequence[int], *, threads: int = 1, best: int = 0, attention: bool = False
    ) -> Forced:
        """Return how likely each token of a given output is, EOS last; its `best` likeliest tokens; attention weights."""
        config, H = self.config, self.config.num_heads
        T, S = len(target) + 1, len(source) - (not config.source_eos and len(source) > 1)
        logp, columns = np.empty(T, dtype=np.float32), np.empty((T, best), dtype=np.int32)
        values = np.empty((T, best), dtype=np.float32)
        shapes = [(config.num_layers, H, S, S), (config.depth, H, T, T), (config.depth, H, T, S)]
        sizes = [int(np.prod(shape)) for shape in shapes]
        weights = np.zeros(sum(sizes) if attention else 0, dtype=np.float32)
        source_ids, target_ids = np.asarray(source, dtype=np.int32), np.asarray(target, dtype=np.int32)
        failed = _engine().regard_force(
            *(self.handle, source_ids.ctypes.data, len(source), target_ids.ctypes.data, len(target), threads),
            *(
                logp.ctypes.data,
                best,
                columns.ctypes.data,
                values.ctypes.data,
                weights.ctypes.data if attention else None,
            ),
        )
        if failed:
            raise DecodeError(_error())
        parts = np.split(weights, np.cumsum(sizes)[:-1]) if attention else []
        return Forced(logp, columns, values, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)])

    def __del__(self) -> None:
        if self._handle and (found := library()) is not None:
            found.regard_model_free(self._handle)
            self._handle = None


class Forced(NamedTuple):
    """What a model says of a given output."""

    logp: NDArray[np.float32]  # of each token and of EOS: [T]
    columns: Ids  # the likeliest tokens at each position: [T, best]
    values: NDArray[np.float32]  # their log-probabilities
    attention: list[NDArray[np.float32]]  # of encoder [L, H, S, S], decoder [L, H, T, T], and between them [L, H, T, S]


def config_struct(config: TransformerConfig, sizes: dict[str, int]) -> _Config:
    """Return RegardConfig, 32 bits per field."""
    heads = config.heads
    found = _Config(**sizes)
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


class Found(NamedTuple):
    """An output of a session: ids without EOS, the score, and the log-probability of each token if wanted."""

    ids: list[int]
    score: float
    token_scores: list[float] | None


class Session:
    """Searches many sentences; `rows` and `tokens` limit the batch of each thread."""

    def __init__(self, model: EngineModel, *, threads: int = 1, rows: int = 128, tokens: int = 8192) -> None:
        self.model = model  # lives as long as the session
        self._handle = _engine().regard_session_new(model.handle, threads, rows, tokens)
        if not self._handle:
            raise ConfigError(_error())

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
        given = _Options(
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
        ticket = int(_engine().regard_session_add(self._handle, ids.ctypes.data, ids.size, ctypes.byref(given)))
        if ticket < 0:
            raise DecodeError(_error())
        return ticket

    def next(self, milliseconds: int = WAIT) -> tuple[int, list[Found] | None] | None:
        """Return a sentence that has ended: its ticket and outputs, best first; None if none has within this time.

        In place of outputs there is None if there was no memory for the search.
        """
        result = _Result()
        status = _engine().regard_session_next(self._handle, milliseconds, ctypes.byref(result))
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
        _engine().regard_result_free(ctypes.byref(result))
        return ticket, found

    def cancel(self, ticket: int = -1) -> None:
        """Forget a sentence, or all of them."""
        _engine().regard_session_cancel(self._handle, ticket)

    def close(self) -> None:
        """End the threads and forget all sentences."""
        if self._handle:
            _engine().regard_session_free(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and library() is not None:
            self.close()


class Rows:
    """Steps of many sentences under the control of the caller: one row per sentence at first, then `beams`."""

    def __init__(
        self, model: EngineModel, sources: Sequence[Sequence[int]], *, beams: int = 1, threads: int = 1
    ) -> None:
        self.model = model
        ids = np.concatenate([np.asarray(one, dtype=np.int32) for one in sources])
        offsets = np.cumsum([0, *map(len, sources)], dtype=np.int64)
        self._handle = _engine().regard_rows_new(
            model.handle, ids.ctypes.data, offsets.ctypes.data, len(sources), beams, threads
        )
        if not self._handle:
            raise DecodeError(_error())

    def __len__(self) -> int:
        return int(_engine().regard_rows_count(self._handle))

    def step(self, tokens: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Return the logits after one more token per row: [R, V]."""
        tokens = np.ascontiguousarray(tokens, dtype=np.int32)
        assert tokens.shape == (len(self),), (tokens.shape, len(self))
        logits = np.empty((len(tokens), self.model.target_size), dtype=np.float32)
        if _engine().regard_rows_step(self._handle, tokens.ctypes.data, logits.ctypes.data):
            raise DecodeError(_error())
        return logits

    def expand_beams(self) -> None:
        """Expand each sentence from one row to `beams` rows. Call once, after the first step; skip when beams is 1."""
        if _engine().regard_rows_expand(self._handle):
            raise DecodeError(_error())

    def reorder(self, rows: NDArray[np.integer[Any]]) -> None:
        """Make row i continue row rows[i]. Sentences may be dropped, but keep their order."""
        parents = np.ascontiguousarray(rows, dtype=np.int64)
        if _engine().regard_rows_reorder(self._handle, parents.ctypes.data, parents.size):
            raise DecodeError(_error())

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and (found := library()) is not None:
            found.regard_rows_free(self._handle)
            self._handle = None
