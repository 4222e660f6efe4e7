"""Weights stored in fewer bytes: float16, or int8 with one scale per row; and their conversion back to float32.

An int8 matrix NAME has a vector NAME.scale: row r is integers[r] * scale[r]. Vectors are stored as float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from regard.errors import CheckpointError, ConfigError

WeightKind = Literal["float32", "float16", "int8"]
SCALE = ".scale"


def quantize(weights: Mapping[str, Tensor], kind: WeightKind) -> dict[str, Tensor]:
    """Return the tensors to store."""
    if kind == "float32":
        return dict(weights)
    stored = {}
    for name, weight in weights.items():
        if kind == "float16" or weight.dim() < 2:
            stored[name] = weight.to(torch.float16)
            if not stored[name].isfinite().all():
                raise ConfigError(f"{name} has values too large for float16; store float32")
            continue
        scale = weight.float().abs().amax(dim=1).clamp(min=1e-12) / 127
        stored[name] = (weight.float() / scale[:, None]).round().to(torch.int8)
        stored[name + SCALE] = scale
    return stored


def dequantized_shapes(stored: Mapping[str, tuple[torch.dtype, torch.Size]]) -> dict[str, torch.Size]:
    """Return the shapes that `dequantize` would return for these types and shapes.

    Raise CheckpointError if a scale is missing.
    """
    shapes = {}
    for name, (dtype, shape) in stored.items():
        if dtype is torch.int8 and stored.get(name + SCALE) != (torch.float32, shape[:1]):
            raise CheckpointError(f"{name[:80]!r} is stored as int8 without one scale per row")
        if not (name.endswith(SCALE) and stored.get(name.removesuffix(SCALE), (None,))[0] is torch.int8):
            shapes[name] = shape
    return shapes


def dequantize(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights for computation: float16 and int8 tensors are converted to float32."""
    weights = {}
    for name, tensor in stored.items():
        if name.endswith(SCALE) and _is_int8(stored.get(name.removesuffix(SCALE))):
            continue
        if _is_int8(tensor):
            tensor = tensor.float() * stored[name + SCALE][:, None]
        weights[name] = tensor.float() if tensor.dtype == torch.float16 else tensor
    return weights


def _is_int8(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype == torch.int8
