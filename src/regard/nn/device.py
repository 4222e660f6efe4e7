"""Devices: their choice, their description, and the precision and the library of matrix products on them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

import regard
from regard.config import SearchPrecision
from regard.errors import ConfigError
from regard.messages import counted

Precision = Literal["auto", "float32", "bfloat16", "float16"]
TENSOR_CORES = (7, 0)  # the first GPUs that multiply float16 quickly
ON_ARM = platform.machine() == "aarch64"
_casts: dict[int, Tensor] = {}  # by the identity of the weight


def pick_device(name: str) -> torch.device:
    """Return the device of that name. "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"there is no kind of device called {name!r}; use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ConfigError(f"device is {name!r}, but this machine has {found} CUDA devices; use device=cpu or auto")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    return device


def use_device(device: torch.device) -> torch.device:
    """Make the device the current one, on which kernels run, and return it."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def pick_precision(wanted: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products. On a GPU "auto" is bfloat16 if the hardware supports it, else float16.

    On a CPU "auto" is float32, so that a run resumes bit for bit. bfloat16 must be requested, and needs hardware support:
    emulation is about 200 times slower.
    """
    if device.type == "cuda":
        if wanted != "auto":
            return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[wanted]
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        return torch.float16 if torch.cuda.get_device_capability(device) >= TENSOR_CORES else torch.float32
    if wanted == "float16":
        raise ConfigError("train.precision is float16, which only GPUs compute fast; use float32 or auto on a CPU")
    if wanted == "bfloat16" and not cpu_has_bfloat16():
        raise ConfigError("train.precision is bfloat16 but this CPU has no bfloat16 instructions; use float32 or auto")
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def search_precision(wanted: SearchPrecision, device: torch.device, *, supported: bool) -> torch.dtype:
    """Return the precision of search. `supported` says whether the model computes in bfloat16.

    "auto" is bfloat16 on a GPU that has it in hardware, if the model supports it, else float32.
    """
    if wanted not in get_args(SearchPrecision):
        raise ConfigError(f"precision is {wanted!r}; use auto, float32 or bfloat16")
    if wanted == "bfloat16" and device.type != "cuda":
        raise ConfigError("precision is bfloat16, which is for search on a GPU; leave it out, or use device=cuda")
    if wanted == "bfloat16" and not supported:
        raise ConfigError(
            "precision is bfloat16, which is for Transformers without copying and convolutions; leave it out"
        )
    if wanted == "float32" or device.type != "cuda" or not supported:
        return torch.float32
    hardware = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if wanted == "bfloat16" or hardware else torch.float32


def cpu_has_bfloat16() -> bool:
    """Return whether this CPU multiplies bfloat16 matrices in hardware."""
    flags = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(flags.get("amx_bf16") or flags.get("avx512_bf16") or flags.get("bf16") or flags.get("arm_bf16"))


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Return the context of a forward pass. It does nothing for float32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def stream_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of the residual stream: on a GPU that of the products, which halves the memory traffic of norms."""
    half = weight.is_cuda and torch.is_autocast_enabled("cuda")
    return torch.get_autocast_dtype("cuda") if half else weight.dtype


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the precision of products with x: autocast's where it is enabled, else that of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


@contextmanager
def precast(weights: Sequence[Tensor], dtype: torch.dtype) -> Iterator[None]:
    """Cast these weights to `dtype` in one call. Within the context, `cast_weight` returns the copies."""
    wanted = {id(one): one for one in weights if one.is_cuda and one.dtype != dtype}
    copies = [torch.empty_like(one, dtype=dtype) for one in wanted.values()]
    if copies:
        with torch.no_grad():
            torch._foreach_copy_(copies, list(wanted.values()))
    _casts.update(zip(wanted, copies, strict=True))
    try:
        yield
    finally:
        _casts.clear()


def cast_weight(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weight in this precision, without gradient."""
    known = _casts.get(id(weight))
    return weight.detach().to(dtype) if known is None or known.dtype != dtype else known


@contextmanager
def own_blas(device: torch.device, precision: torch.dtype) -> Iterator[None]:
    """Let PyTorch's own BLAS compute all float32 products of training on an Arm CPU. A switch for the whole process.

    There PyTorch gives xWᵀ to oneDNN and the Arm Compute Library, which reach 62 GFLOP/s where its own BLAS reaches 69
    (LOG.md, "On a Neoverse N1"), and the two products of the backward pass to its own BLAS.
    """
    if not ON_ARM or device.type != "cpu" or precision != torch.float32:
        yield
        return
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def use_threads(count: int) -> None:
    """Set the number of CPU threads of PyTorch. 0 keeps PyTorch's choice."""
    if count > 0:
        torch.set_num_threads(count)


def describe_machine(device: torch.device) -> dict[str, str]:
    """Return the names of the processor and the system, and the versions of Python, torch and regard."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "system": f"{platform.system()} {platform.machine()}, {counted(os.cpu_count() or 1, 'core')}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "regard": regard.__version__,
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
