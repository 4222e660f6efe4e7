"""The functions and structs of the engine's library (`engine.h`), read with ctypes. Calls release the GIL."""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from regard.errors import ConfigError

LIBRARY = Path(__file__).with_name("libregard.dylib" if sys.platform == "darwin" else "libregard.so")


class Config(ctypes.Structure):
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


class SentenceOptions(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("beam", "nbest", "limit", "min_length", "power_penalty", "early_stopping")),
        *((name, c_int32) for name in ("scores", "token_scores", "sample", "top_k")),
        *((name, c_double) for name in ("length_penalty", "temperature", "top_p", "epsilon")),
        *((name, c_void_p) for name in ("numbers", "prefix", "never", "allowed")),
        *((name, c_int64) for name in ("num_prefix", "num_never", "num_allowed")),
    ]


class Result(ctypes.Structure):
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
    "model_new": (c_void_p, [POINTER(Config)]),
    "model_set": (c_int, [c_void_p, c_char_p, c_int32, c_void_p, c_void_p, c_int64, c_int64]),
    "model_ready": (c_int, [c_void_p]),
    "model_bytes": (c_int64, [c_void_p]),
    "model_silence": (c_int, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "model_free": (None, [c_void_p]),
    "session_new": (c_void_p, [c_void_p, c_int32, c_int32, c_int32]),
    "session_add": (c_int64, [c_void_p, c_void_p, c_int64, POINTER(SentenceOptions)]),
    "session_next": (c_int, [c_void_p, c_int64, POINTER(Result)]),
    "session_cancel": (None, [c_void_p, c_int64]),
    "session_free": (None, [c_void_p]),
    "result_free": (None, [POINTER(Result)]),
    "rows_new": (c_void_p, [c_void_p, c_void_p, c_void_p, c_int64, c_int32, c_int32]),
    "rows_step": (c_int, [c_void_p, c_void_p, c_void_p]),
    "rows_expand": (c_int, [c_void_p]),
    "rows_reorder": (c_int, [c_void_p, c_void_p, c_int64]),
    "rows_count": (c_int64, [c_void_p]),
    "rows_free": (None, [c_void_p]),
    "force": (
        c_int,
        [c_void_p, *[c_void_p, c_int64] * 2, c_int32, c_void_p, c_int32, *[c_void_p] * 3, c_int32],
    ),
    "sizes": (c_int64, []),
    "error": (c_char_p, []),
    "processor": (c_char_p, []),
    "choose_kernels": (c_int64, [c_char_p]),
}


@cache
def library() -> ctypes.CDLL | None:
    """Return the engine's library; None where it has not been built, or from other sources than these."""
    try:
        found = load(LIBRARY)
    except (OSError, AttributeError):
        return None
    sizes = [ctypes.sizeof(struct) for struct in (Config, SentenceOptions, Result)]
    return found if found.regard_sizes() == (sizes[0] * 1000 + sizes[1]) * 1000 + sizes[2] else None


def load(path: Path) -> ctypes.CDLL:
    """Return a library with the types of its functions. Raise OSError or AttributeError where it is not the engine."""
    found = ctypes.CDLL(str(path))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(found, f"regard_{name}")
        function.restype, function.argtypes = result, arguments
    return found


def engine() -> ctypes.CDLL:
    """Return the engine's library. Raise ConfigError where it has not been built."""
    found = library()
    if found is None:
        raise ConfigError(
            "the engine has not been compiled from these sources; install a C compiler and regard again "
            "(in a checkout: make engine), or use engine='torch'"
        )
    return found


def error() -> str:
    """Return why the last call of this thread failed."""
    return engine().regard_error().decode(errors="replace")


def processor() -> str:
    """Return the name of the kernels in use."""
    return engine().regard_processor().decode()
