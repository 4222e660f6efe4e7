"""Measure the products of the engine's kernels on one core, next to PyTorch's float32: billions of operations per second.

    python benchmarks/products.py
    python benchmarks/products.py --warm --rows 1,4,16,64 --out products.json

A product reads weights that were not used for a while, as a step of search does; with --warm they are in the caches if
they fit. The systems take turns; a number is the median of the calls, or the best tenth with --best.
"""

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import torch

from machine import machine
from regard.engine import build

SHAPES = ((256, 1024), (512, 512), (512, 2048), (2048, 512), (512, 8192), (512, 37000))  # width in, width out
MEMORY = 96 * 2**20  # bytes of copies of the weights, more than the caches hold
SECONDS = 0.4  # of each number


class Kernels(ctypes.Structure):
    """The first fields of RegardKernels (kernels.h)."""

    _fields_ = [
        ("name", c_char_p),
        ("panel_f32", c_int64),
        ("panel_int8", c_int64),
        ("size_f32", CFUNCTYPE(c_size_t, c_int64, c_int64)),
        ("pack_f32", CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)),
        ("times_f32", CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, c_int, c_void_p, *[c_int64] * 6)),
        ("size_int8", CFUNCTYPE(c_size_t, c_int64, c_int64)),
        ("pack_int8", CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)),
        ("quantize", CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, c_int64, c_int64)),
        ("times_int8", CFUNCTYPE(None, *[c_void_p] * 5, c_int, c_void_p, *[c_int64] * 6)),
    ]


def kernel_sets() -> list[Kernels]:
    """Return the sets that this processor supports."""
    library = ctypes.CDLL(str(build.build(Path(build.__file__).parent)))
    library.regard_kernels_count.restype = c_int64
    library.regard_kernels.argtypes, library.regard_kernels.restype = [c_int64], ctypes.POINTER(Kernels)
    return [library.regard_kernels(number).contents for number in range(library.regard_kernels_count())]


def aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def calls(kernels: Kernels, kind: str, D: int, F: int, most: int, warm: bool) -> Callable[[int], None]:
    """Return a function that computes one product of so many rows, each time with other weights."""
    rng = np.random.default_rng(0)
    x, out = rng.standard_normal((most, D), dtype=np.float32), np.empty((most, F), np.float32)
    bias, scales = np.zeros(F, np.float32), np.ones(F, np.float32)
    integers, x_scales = np.empty((most, -(-D // 64) * 64), np.int8), np.empty(most, np.float32)
    kernels.quantize(x.ctypes.data, D, integers.ctypes.data, x_scales.ctypes.data, most, D)
    if kind == "f32":
        weight, size, panel = rng.standard_normal((F, D), dtype=np.float32), kernels.size_f32(D, F), kernels.panel_f32
    else:
        weight, size, panel = rng.integers(-127, 128, (F, D), np.int8), kernels.size_int8(D, F), kernels.panel_int8
    copies = [aligned(size) for _ in range(1 if warm else MEMORY // size + 1)]
    for packed in copies:
        (kernels.pack_f32 if kind == "f32" else kernels.pack_int8)(weight.ctypes.data, packed.ctypes.data, D, F)
    places, turn, last = [packed.ctypes.data for packed in copies], iter(()), -(-F // panel)

    def call(R: int) -> None:
        nonlocal turn
        place = next(turn, None)
        if place is None:
            turn = iter(places)
            place = next(turn)
        if kind == "f32":
            kernels.times_f32(x.ctypes.data, D, place, bias.ctypes.data, 0, out.ctypes.data, F, R, D, F, 0, last)
        else:
            sources = (integers.ctypes.data, x_scales.ctypes.data, place, scales.ctypes.data, bias.ctypes.data)
            kernels.times_int8(*sources, 0, out.ctypes.data, F, R, D, F, 0, last)

    call.copies = copies  # type: ignore[attr-defined]  # the memory lives as long as the function
    return call


def torch_calls(D: int, F: int, most: int, warm: bool) -> Callable[[int], None]:
    x, bias = torch.randn(most, D), torch.zeros(F)
    weights = [torch.randn(F, D) for _ in range(1 if warm else MEMORY // (4 * D * F) + 1)]
    count = 0

    @torch.inference_mode()
    def call(R: int) -> None:
        nonlocal count
        count += 1
        torch.nn.functional.linear(x[:R], weights[count % len(weights)], bias)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,4,8,16,32,64", help="numbers of rows, comma-separated")
    parser.add_argument("--warm", action="store_true", help="use the same weights again and again")
    parser.add_argument("--best", action="store_true", help="report the best tenth in place of the median")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [int(part) for part in options.rows.split(",")]
    found = []
    for D, F in SHAPES:
        systems = {
            f"{kernels.name.decode()} {kind}": calls(kernels, kind, D, F, max(rows), options.warm)
            for kernels in kernel_sets()
            for kind in ("f32", "int8")
        } | {"torch f32": torch_calls(D, F, max(rows), options.warm)}
        print(f"{D} x {F}".ljust(18) + "".join(f"{R:9}" for R in rows) + "   rows, GOPS")
        times: dict[str, list[float]] = {name: [] for name in systems}
        for R in rows:
            took: dict[str, list[float]] = {name: [] for name in systems}
            for call in systems.values():
                call(R)
            end = time.perf_counter() + SECONDS * len(systems)
            while time.perf_counter() < end:
                for name, call in systems.items():
                    began = time.perf_counter()
                    call(R)
                    took[name].append(time.perf_counter() - began)
            for name, seconds in took.items():
                typical = sorted(seconds)[len(seconds) // (10 if options.best else 2)]
                times[name].append(2e-9 * R * D * F / typical)
        for name, gops in times.items():
            print(name.ljust(18) + "".join(f"{value:9.1f}" for value in gops), flush=True)
            found += [
                {"width": D, "out": F, "rows": R, "system": name, "gops": value}
                for R, value in zip(rows, gops, strict=True)
            ]
    if options.out:
        options.out.write_text(
            json.dumps({"machine": machine(), "options": vars(options) | {"out": None}, "products": found}, indent=1)
        )


if __name__ == "__main__":
    main()
