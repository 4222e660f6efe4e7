"""Tensors in safetensors files (`run.tensor_file`), and weights quantized to fewer bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.run.tensor_file import SCALE, WeightKind, tensor_bytes
from regard.storage.folder import Folder

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in TYPES.items()}


def write_tensors(folder: Folder, name: str, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors, wide types first so that all are aligned. Writing does not hold the interpreter lock."""
    plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    keys = sorted(plain, key=lambda key: (-plain[key].element_size(), key))
    header, end = {}, 0
    for key in keys:
        begin, end = end, end + plain[key].nbytes
        header[key] = {
            "dtype": TYPES[plain[key].dtype],
            "shape": list(plain[key].shape),
            "data_offsets": [begin, end],
        }
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with folder.create_file(name) as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for key in keys:
            file.write(plain[key].flatten().view(torch.uint8).numpy().data)


def read_tensors(folder: Folder, name: str) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    tensors = {}
    for key, entry, content in tensor_bytes(folder, name):
        raw = torch.from_numpy(content)
        # Bytes other than 0 and 1 would be invalid booleans.
        tensor = raw.ne(0) if entry.dtype == "BOOL" else raw.view(_DTYPES[entry.dtype])
        tensors[key] = tensor.view(entry.shape)
    return tensors


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
