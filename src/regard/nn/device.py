"""Which device, and which precision it is good at."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from regard.errors import ConfigError

Precision = Literal["auto", "float32", "bfloat16"]


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"there is no kind of device called {name!r}; use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ConfigError(f"{name!r} was asked for but this machine shows {found} CUDA devices; use device=cpu or auto")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    return device


def use_device(device: torch.device) -> torch.device:
    """The device, made the current one: kernels run on that."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def pick_precision(wanted: Precision, device: torch.device) -> torch.dtype:
    """The dtype that matrix products run in. On a GPU "auto" is bfloat16 where the hardware has it.

    On a CPU "auto" is float32, which resumes bit for bit; bfloat16 is for the asking, but not emulated (~200 times slower).
    """
    if device.type == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if wanted == "bfloat16" or (wanted == "auto" and has_bfloat16) else torch.float32
    if wanted == "bfloat16" and not cpu_has_bfloat16():
        raise ConfigError("train.precision is bfloat16 but this CPU has no bfloat16 instructions; use float32 or auto")
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices in hardware."""
    flags = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(flags.get("amx_bf16") or flags.get("avx512_bf16") or flags.get("bf16") or flags.get("arm_bf16"))


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """The context that a forward pass runs in; does nothing for float32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def stream_dtype(weight: Tensor) -> torch.dtype:
    """What the residual stream is carried in: on a GPU the precision of the products, which halves what norms move."""
    half = weight.is_cuda and torch.is_autocast_enabled("cuda")
    return torch.get_autocast_dtype("cuda") if half else weight.dtype


def use_threads(count: int) -> None:
    """Sets how many CPU threads PyTorch uses; 0 leaves its choice."""
    if count > 0:
        torch.set_num_threads(count)
