"""Weights in fewer bytes: float16, or int8 with one scale a row, and back to float32.

A matrix in int8 is stored beside `NAME.scale`: row r is integers[r] * scale[r]. Vectors stay float16: they are few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from regard.errors import CheckpointError, ConfigError

WeightKind = Literal["float32", "float16", "int8"]
SCALE = ".scale"


def compact(weights: Mapping[str, Tensor], kind: WeightKind) -> dict[str, Tensor]:
    """The weights as they are stored."""
    if kind == "float32":
        return dict(weights)
    stored = {}
    for name, weight in weights.items():
        if kind == "float16" or weight.dim() < 2:
            stored[name] = weight.to(torch.float16)
            if not stored[name].isfinite().all():
                raise ConfigError(f"{name} holds numbers too large for float16; store float32")
            continue
        scale = weight.float().abs().amax(dim=1).clamp(min=1e-12) / 127
        stored[name] = (weight.float() / scale[:, None]).round().to(torch.int8)
        stored[name + SCALE] = scale
    return stored


def expanded_shapes(stored: Mapping[str, tuple[torch.dtype, torch.Size]]) -> dict[str, torch.Size]:
    """The shapes that `expand` gives, by the types and shapes that are stored; CheckpointError where a scale is missing."""
    shapes = {}
    for name, (dtype, shape) in stored.items():
        if dtype is torch.int8 and stored.get(name + SCALE) != (torch.float32, shape[:1]):
            raise CheckpointError(f"{name[:80]!r} is stored as int8 without a scale for each row")
        if not (name.endswith(SCALE) and stored.get(name.removesuffix(SCALE), (None,))[0] is torch.int8):
            shapes[name] = shape
    return shapes


def expand(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights as they are computed with: what was made small, in float32."""
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
