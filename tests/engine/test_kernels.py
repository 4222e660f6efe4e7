"""The kernels of the engine against numpy in float64, and every set of instructions against the others."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.engine import build

SOURCES = Path(build.__file__).parent
SIZES = [1, 3, 16, 17, 64, 65, 130]
EPSILON = 2.0**-23


class Kernels(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("panel_f32", c_int64),
        ("panel_int8", c_int64),
        ("size_f32", ctypes.CFUNCTYPE(c_size_t, c_int64, c_int64)),
        ("pack_f32", ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)),
        ("times_f32", ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, c_int, c_void_p, *[c_int64] * 6)),
        ("size_int8", ctypes.CFUNCTYPE(c_size_t, c_int64, c_int64)),
        ("pack_int8", ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)),
        ("quantize", ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int64)),
        ("times_int8", ctypes.CFUNCTYPE(None, *[c_void_p] * 5, c_int, c_void_p, *[c_int64] * 6)),
        (
            "attend",
            ctypes.CFUNCTYPE(
                None,
                *[c_void_p, c_int64] * 4,
                *[c_void_p, c_void_p, c_float],
                *[c_void_p, c_int64] * 2,
                *[c_void_p, c_int64, c_int64, c_int64],
            ),
        ),
        ("add_norm", ctypes.CFUNCTYPE(None, *[c_void_p] * 4, c_float, c_void_p, c_int64, c_int64)),
        ("add", ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int64)),
        ("gelu", ctypes.CFUNCTYPE(None, c_void_p, c_int64)),
        ("silu", ctypes.CFUNCTYPE(None, c_void_p, c_int64)),
        ("gate", ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)),
        ("log_sum_exp", ctypes.CFUNCTYPE(c_float, c_void_p, c_int64)),
        ("best", ctypes.CFUNCTYPE(c_int64, c_void_p, c_int64, c_int64, c_void_p, c_void_p)),
    ]


@pytest.fixture(scope="session")
def sets() -> list[Kernels]:
    """Return every set of kernels that this processor supports, the last one without special instructions."""
    try:
        loaded = ctypes.CDLL(str(build.build(SOURCES)))
    except build.BuildError as error:
        pytest.skip(str(error))
    loaded.regard_kernels_count.restype = c_int64
    loaded.regard_kernels.argtypes, loaded.regard_kernels.restype = [c_int64], ctypes.POINTER(Kernels)
    return [loaded.regard_kernels(number).contents for number in range(loaded.regard_kernels_count())]


def same_bits(sets: list[Kernels], compute: Callable[[Kernels], np.ndarray]) -> np.ndarray:
    """Return what every set computes, bit for bit."""
    first, *others = [compute(kernels) for kernels in sets]
    for kernels, other in zip(sets[1:], others, strict=True):
        assert first.tobytes() == other.tobytes(), (sets[0].name, kernels.name)
    return first


def at(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


def guarded(*shape: int, dtype: Any = np.float32) -> tuple[np.ndarray, Callable[[], None]]:
    """Return an array at an odd address, and a check that the bytes around it did not change."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.full(size + 256, 0xA5, np.uint8)
    offset = -memory.ctypes.data % 64 + 4 if np.dtype(dtype).itemsize > 1 else 33
    array = memory[offset : offset + size].view(dtype).reshape(shape)

    def check() -> None:
        assert (memory[:offset] == 0xA5).all() and (memory[offset + size :] == 0xA5).all()

    return array, check


def numbers(seed: int, *shape: int) -> np.ndarray:
    values, _ = guarded(*shape)
    values[...] = np.random.default_rng(seed).standard_normal(shape)
    return values


def times_f32(
    kernels: Kernels, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, relu: int = 0, parts: int = 1
) -> np.ndarray:
    (R, D), F = x.shape, len(weight)
    packed = aligned(kernels.size_f32(D, F))
    kernels.pack_f32(at(weight), at(packed), D, F)
    out, check = guarded(R, F)
    panels = -(-F // kernels.panel_f32)
    for part in range(parts):
        first, last = panels * part // parts, panels * (part + 1) // parts
        kernels.times_f32(at(x), D, at(packed), at(bias), relu, at(out), F, R, D, F, first, last)
    check()
    return out


def aligned(size: int) -> np.ndarray:
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def quantize(kernels: Kernels, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    R, D = x.shape
    integers, check = guarded(R, -(-D // 64) * 64, dtype=np.int8)
    scales, check_scales = guarded(R)
    kernels.quantize(at(x), D, at(integers), at(scales), R, D)
    check(), check_scales()
    return integers, scales


def times_int8(
    kernels: Kernels,
    x: np.ndarray,
    weight: np.ndarray,
    scales: np.ndarray,
    bias: np.ndarray | None,
    relu: int = 0,
    parts: int = 1,
) -> np.ndarray:
    (R, D), F = x.shape, len(weight)
    packed = aligned(kernels.size_int8(D, F))
    kernels.pack_int8(at(weight), at(packed), D, F)
    integers, x_scales = quantize(kernels, x)
    out, check = guarded(R, F)
    panels = -(-F // kernels.panel_int8)
    for part in range(parts):
        first, last = panels * part // parts, panels * (part + 1) // parts
        kernels.times_int8(*map(at, (integers, x_scales, packed, scales, bias)), relu, at(out), F, R, D, F, first, last)
    check()
    return out


@pytest.mark.parametrize("R", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33])
@pytest.mark.parametrize(("D", "F"), [(1, 1), (3, 17), (65, 40), (64, 130), (256, 64), (1030, 33)])
def test_float_products_equal_numpy(sets: list[Kernels], R: int, D: int, F: int) -> None:
    x, weight, bias = numbers(R, R, D), numbers(D, F, D), numbers(F, F)
    expected = x.astype(float) @ weight.T.astype(float) + bias
    bound = (np.abs(x.astype(float)) @ np.abs(weight.T.astype(float)) + np.abs(bias)) * EPSILON * (math.sqrt(D) + 1)
    for kernels in sets:
        assert (np.abs(times_f32(kernels, x, weight, bias) - expected) <= bound).all()
        rectified = times_f32(kernels, x, weight, bias, relu=1)
        assert (rectified == np.maximum(times_f32(kernels, x, weight, bias), 0)).all()
        assert (np.abs(times_f32(kernels, x, weight, None) - (expected - bias)) <= bound).all()


def test_a_row_of_a_product_does_not_depend_on_other_rows_or_threads(sets: list[Kernels]) -> None:
    for D, F in ((65, 200), (512, 330)):
        x, weight, scales, bias = numbers(0, 70, D), numbers(1, F, D), np.abs(numbers(2, F)), numbers(3, F)
        integers = np.random.default_rng(4).integers(-127, 128, (F, D), dtype=np.int8)
        for kernels in sets:
            whole, whole8 = times_f32(kernels, x, weight, bias), times_int8(kernels, x, integers, scales, bias)
            for begin, end in ((0, 1), (5, 7), (5, 8), (3, 14), (69, 70)):
                rows = x[begin:end]
                assert (times_f32(kernels, rows, weight, bias) == whole[begin:end]).all()
                assert (times_int8(kernels, rows, integers, scales, bias) == whole8[begin:end]).all()
            for parts in (2, 3):
                assert (times_f32(kernels, x, weight, bias, parts=parts) == whole).all()
                assert (times_int8(kernels, x, integers, scales, bias, parts=parts) == whole8).all()


@pytest.mark.parametrize("R", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33])
@pytest.mark.parametrize(("D", "F"), [(1, 1), (3, 17), (65, 40), (64, 130), (256, 64), (2100, 33), (66000, 3)])
def test_integer_products_are_exact_in_every_set(sets: list[Kernels], R: int, D: int, F: int) -> None:
    random = np.random.default_rng(D)
    weight = random.integers(-127, 128, (F, D), dtype=np.int8)
    scales, bias, x = np.abs(numbers(2, F)), numbers(3, F), numbers(4, R, D)
    out = same_bits(sets, lambda kernels: times_int8(kernels, x, weight, scales, bias))
    integers, x_scales = quantize(sets[0], x)
    sums = integers[:, :D].astype(np.int64) @ weight.T.astype(np.int64)
    assert (out == sums.astype(np.float32) * (scales * x_scales[:, None]) + bias).all()
    rectified = same_bits(sets, lambda kernels: times_int8(kernels, x, weight, scales, bias, relu=1))
    assert (rectified == np.maximum(out, 0)).all()


def test_extreme_integers_do_not_saturate(sets: list[Kernels]) -> None:
    D, F = 256, 48
    weight = np.full((F, D), -127, np.int8)
    weight[::2] = 127
    x = np.full((3, D), 5.0, np.float32)
    x[1] = -5.0
    ones = np.ones(F, np.float32)
    out = same_bits(sets, lambda kernels: times_int8(kernels, x, weight, ones, None))
    scale = np.float32(5.0) / np.float32(127)
    expected = np.float32(127 * 127 * D) * scale
    assert (out[0, ::2] == expected).all() and (out[0, 1::2] == -expected).all() and (out[1] == -out[0]).all()


@pytest.mark.parametrize("D", SIZES)
def test_quantized_rows_are_within_half_a_step(sets: list[Kernels], D: int) -> None:
    x = numbers(D, 5, D)
    x[2] = 0
    for kernels in sets:
        integers, scales = quantize(kernels, x)
        expected = np.abs(x).max(1) / np.float32(127)
        assert (scales == expected).all() and scales[2] == 0
        assert (integers[:, D:] == 0).all() and (integers[2] == 0).all()
        assert (np.abs(integers[:, :D] * scales[:, None].astype(float) - x) <= scales[:, None] * (0.5 + 1e-4)).all()
        assert (np.abs(integers[[0, 1, 3, 4]].astype(int)).max(1) == 127).all()
    same_bits(sets, lambda kernels: quantize(kernels, x)[0])


def test_infinite_and_missing_numbers_make_a_row_not_finite(sets: list[Kernels]) -> None:
    x = numbers(0, 3, 70)
    x[0, 69], x[1, 5] = np.nan, np.inf
    weight, ones = np.ones((20, 70), np.int8), np.ones(20, np.float32)
    for kernels in sets:
        out = times_int8(kernels, x, weight, ones, None)
        assert not np.isfinite(out[:2]).any() and np.isfinite(out[2]).all()


def attend(
    kernels: Kernels,
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    counts: np.ndarray,
    *,
    firsts: np.ndarray | None = None,
    slots: np.ndarray | None = None,
    keep: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    (R, K), W = q.shape, values.shape[1]
    out, check = guarded(R, W)
    weights, check_weights = guarded(R, len(keys))
    weights[...] = 0
    scores, check_scores = guarded(int(counts.max()) + 16)
    kernels.attend(
        *(
            at(q),
            K,
            at(keys),
            K,
            at(values),
            W,
            at(slots),
            0 if slots is None else slots.shape[1],
            at(firsts),
            at(counts),
        ),
        *(K**-0.5, at(out), W, at(weights) if keep else None, len(keys), at(scores), R, K, W),
    )
    check(), check_weights(), check_scores()
    return out, weights


def attention(q: np.ndarray, keys: np.ndarray, values: np.ndarray, seen: list[np.ndarray]) -> np.ndarray:
    out = np.zeros((len(q), values.shape[1]))
    for r, slots in enumerate(seen):
        if len(slots):
            scores = keys[slots].astype(float) @ q[r].astype(float) * q.shape[1] ** -0.5
            weights = np.exp(scores - scores.max())
            out[r] = weights @ values[slots].astype(float) / weights.sum()
    return out


@pytest.mark.parametrize("R", [1, 2, 3, 4, 5, 9, 33])
@pytest.mark.parametrize(("K", "W"), [(1, 1), (3, 65), (64, 64), (65, 17), (128, 32), (40, 130)])
@pytest.mark.parametrize("S", [1, 3, 16, 37, 700])
def test_attention_equals_numpy(sets: list[Kernels], R: int, K: int, W: int, S: int) -> None:
    q, keys, values = numbers(0, R, K) * 3, numbers(1, S, K), numbers(2, S, W)
    random = np.random.default_rng(5)
    full, zeros = np.full(R, S, np.int32), np.zeros(R, np.int32)
    firsts = random.integers(0, S, R).astype(np.int32)
    counts = random.integers(0, S - firsts + 1).astype(np.int32)
    slots = np.stack([random.permutation(S) for _ in range(R)]).astype(np.int32)
    for options in (
        {"counts": full, "firsts": zeros},
        {"counts": counts, "firsts": firsts},
        {"counts": counts, "slots": slots},
    ):
        seen = [
            options["slots"][r, :n] if "slots" in options else np.arange(n) + options["firsts"][r]
            for r, n in enumerate(options["counts"])
        ]
        out = same_bits(sets, lambda kernels, options=options: attend(kernels, q, keys, values, **options)[0])
        assert np.abs(out - attention(q, keys, values, seen)).max() <= 4e-6
        weights = same_bits(
            sets, lambda kernels, options=options: attend(kernels, q, keys, values, **options, keep=True)[1]
        )
        assert np.abs(weights.sum(1) - (options["counts"] > 0)).max() <= 2e-6
        alone = [
            attend(sets[0], q[r : r + 1], keys, values, **{k: v[r : r + 1] for k, v in options.items()})[0]
            for r in range(R)
        ]
        assert (np.concatenate(alone) == out).all()


def test_slots_that_are_not_seen_may_hold_anything(sets: list[Kernels]) -> None:
    q, keys, values = numbers(0, 6, 64), numbers(1, 40, 64), numbers(2, 40, 64)
    keys[:2], values[:2], keys[30:], values[30:] = np.nan, np.inf, np.inf, np.nan
    firsts, counts = np.full(6, 2, np.int32), np.array([28, 28, 28, 28, 27, 1], np.int32)
    assert np.isfinite(
        same_bits(sets, lambda kernels: attend(kernels, q, keys, values, counts, firsts=firsts)[0])
    ).all()


@pytest.mark.parametrize("D", SIZES)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("branched", [True, False])
def test_norms_equal_numpy(sets: list[Kernels], D: int, biased: bool, branched: bool) -> None:
    R = 4
    x, branch, weight, bias = numbers(0, R, D) * 3 + 1, numbers(1, R, D), numbers(2, D), numbers(3, D)
    both = (x + branch if branched else x).astype(float)
    centered = both - both.mean(1, keepdims=True) if biased else both
    expected = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * weight + (bias if biased else 0)

    def compute(kernels: Kernels) -> np.ndarray:
        out, check = guarded(R, D)
        kernels.add_norm(
            at(x), at(branch) if branched else None, at(weight), at(bias) if biased else None, 1e-5, at(out), R, D
        )
        check()
        for place in (x.copy(), branch.copy()):  # out may be one of the inputs
            inputs = [x, branch] if place.tobytes() != x.tobytes() else [place, branch]
            inputs = [inputs[0], place] if inputs[0] is x else inputs
            if branched or inputs[0] is place:
                arguments = (
                    at(inputs[0]),
                    at(inputs[1]) if branched else None,
                    at(weight),
                    at(bias) if biased else None,
                )
                kernels.add_norm(*arguments, 1e-5, at(place), R, D)
                assert place.tobytes() == out.tobytes()
        return out

    assert np.abs(same_bits(sets, compute) - expected).max() <= 3e-6 * (1 if D > 1 else 500)


def in_place(kernels: Kernels, function: str, x: np.ndarray) -> np.ndarray:
    out, check = guarded(len(x))
    out[...] = x
    getattr(kernels, function)(at(out), len(x))
    check()
    return out


def test_activations_equal_numpy(sets: list[Kernels]) -> None:
    x = np.concatenate([np.linspace(-12, 12, 40003), np.geomspace(1e-30, 1e3, 1000)]).astype(np.float32)
    exact = x.astype(float)
    phi = np.array([0.5 * (1 + math.erf(value * math.sqrt(0.5))) for value in exact])
    gelu = same_bits(sets, lambda kernels: in_place(kernels, "gelu", x))
    # as for PyTorch, what 1 + erf loses below zero is relative to x
    assert (np.abs(gelu - exact * phi) <= 1.5 * EPSILON * np.maximum(np.abs(exact * phi), np.abs(exact) * 0.5)).all()
    sigmoid = 1 / (1 + np.exp(-exact))
    silu = same_bits(sets, lambda kernels: in_place(kernels, "silu", x))
    assert (np.abs(silu - exact * sigmoid) <= 2 * EPSILON * np.abs(exact * sigmoid) + 1e-36).all()
    for n in SIZES:
        for function in ("gelu", "silu"):
            whole = in_place(sets[0], function, x)
            assert (same_bits(sets, lambda k, n=n, f=function: in_place(k, f, x[:n])) == whole[:n]).all()


@pytest.mark.parametrize("F", SIZES)
def test_gate_and_add_equal_numpy(sets: list[Kernels], F: int) -> None:
    x, other = numbers(0, 3, 2 * F), numbers(1, 3, 2 * F)

    def gate(kernels: Kernels) -> np.ndarray:
        out, check = guarded(3, F)
        kernels.gate(at(x), at(out), 3, F)
        check()
        return out

    exact = x.astype(float)
    expected = exact[:, :F] / (1 + np.exp(-exact[:, :F])) * exact[:, F:]
    assert (np.abs(same_bits(sets, gate) - expected) <= 3 * EPSILON * np.abs(expected)).all()
    for kernels in sets:
        both, check = guarded(3, 2 * F)
        both[...] = x
        kernels.add(at(both), at(other), 6 * F)
        check()
        assert (both == x + other).all()


@pytest.mark.parametrize("n", [1, 2, 15, 16, 63, 64, 65, 127, 1000, 37000])
def test_log_sum_exp_equals_numpy(sets: list[Kernels], n: int) -> None:
    for scale in (0.1, 5.0, 60.0):
        x = numbers(n, n) * np.float32(scale)
        if n > 2:
            x[1] = -np.inf
        exact = x.astype(float)
        expected = exact.max() + np.log(np.exp(exact - exact.max()).sum())
        found = same_bits(sets, lambda kernels, x=x: np.float32(kernels.log_sum_exp(at(x), len(x))))
        assert abs(found - expected) <= 1.5 * EPSILON * max(abs(expected), 0.5)
    nothing = np.full(n, -np.inf, np.float32)
    assert same_bits(sets, lambda kernels: np.float32(kernels.log_sum_exp(at(nothing), n))) == -np.inf
    x[n // 2] = np.nan
    assert n == 1 or all(np.isnan(kernels.log_sum_exp(at(x), n)) for kernels in sets)


def best(kernels: Kernels, x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    (values, check), (places, check_places) = guarded(count), guarded(count, dtype=np.int32)
    found = kernels.best(at(x), len(x), count, at(values), at(places))
    check(), check_places()
    return values[:found], places[:found]


@pytest.mark.parametrize("n", [1, 3, 63, 64, 65, 1000, 37000])
@pytest.mark.parametrize("count", [1, 2, 5, 10, 100])
def test_best_entries_are_those_of_a_stable_sort(sets: list[Kernels], n: int, count: int) -> None:
    coarse = np.round(numbers(n, n) * 2)  # with many equal entries
    coarse[: n // 2 : 3] = -np.inf
    for x in (numbers(n, n), coarse, np.sort(coarse), np.sort(coarse)[::-1].copy(), np.full(n, -np.inf, np.float32)):
        order = np.argsort(-x, kind="stable")[:count]
        order = order[x[order] > -np.inf]
        for kernels in sets:
            values, places = best(kernels, x, count)
            assert (places == order).all() and (values == x[order]).all()


def test_best_entries_leave_out_what_is_not_a_number(sets: list[Kernels]) -> None:
    x = numbers(0, 200)
    x[[3, 70, 199]] = np.nan
    order = np.argsort(-np.nan_to_num(x, nan=-1e9), kind="stable")[:20]
    for kernels in sets:
        assert (best(kernels, x, 20)[1] == order).all()


def test_every_set_has_a_name(sets: list[Kernels]) -> None:
    names = [kernels.name.decode() for kernels in sets]
    assert len(set(names)) == len(names) and names[-1] in ("scalar", "neon", "wasm")
