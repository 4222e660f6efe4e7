"""The engine's own sines, cosines and powers against those of numpy. `test_processors.py` compares processors."""

from ctypes import c_int32, c_int64, c_void_p

import numpy as np
import pytest

from regard.engine.bindings import engine
from regard.engine.model import POSITIONS
from tests.engine_models import needs_engine

pytestmark = needs_engine
LAST_BIT = 2.0**-24  # of a float32 number from 0.5 to 1


def encoded(kind: str, width: int, first: int, count: int) -> np.ndarray:
    function = engine().regard_positions
    function.restype, function.argtypes = None, [c_int32, c_int64, c_int64, c_int64, c_void_p]
    out = np.empty((count, width), dtype=np.float32)
    function(POSITIONS.index(kind), width, first, count, out.ctypes.data)
    return out


def by_numpy(kind: str, width: int, first: int, count: int) -> np.ndarray:
    """As in `nn.positions`."""
    steps = max(width // 2 - 1, 1) if kind == "sinusoid-log" else width / 2
    angles = np.arange(first, first + count)[:, None] * 10000.0 ** -(np.arange(width // 2) / steps)
    if kind == "rotary":
        angles = angles.astype(np.float32).astype(np.float64)
        return np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(count, width)
    if kind == "sinusoid":
        return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(count, width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


@pytest.mark.parametrize("kind", [kind for kind in POSITIONS if kind.startswith("sinusoid") or kind == "rotary"])
@pytest.mark.parametrize("width", [2, 4, 24, 512])
def test_positions_are_those_of_numpy_rounded_to_float32(kind, width):
    for first in (0, 2**12, 2**21 - 64):
        found, wanted = encoded(kind, width, first, 64), by_numpy(kind, width, first, 64)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1.01 * LAST_BIT / 2)


def test_position_zero_is_exact():
    np.testing.assert_array_equal(encoded("sinusoid", 8, 0, 1), [[0, 1, 0, 1, 0, 1, 0, 1]])
