"""Edits of binary files: plain bytes, safetensors, SentencePiece models and arrays of integers."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

from tests.fuzz.tree_edits import apply_edit, as_json, draw_edit, encoded

Edit = dict[str, Any]

BYTE_ACTIONS = ["flip", "flip", "truncate", "insert", "splice", "empty", "append"]
TENSOR_ACTIONS = [
    "tree",
    "tree",
    "offsets-out",
    "offsets-overlap",
    "offsets-negative",
    "offsets-reversed",
    "dtype",
    "shape-overflow",
    "shape-negative",
    "shape-other",
    "shape-scalar",
    "header-huge",
    "header-empty",
    "header-length",
    "twice",
    "drop",
    "extra",
    "nan",
    "inf",
    "large",
    "metadata",
]
DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "F8_E4M3", "U64", "C64", "XX", ""]
PROTO_ACTIONS = ["delete", "repeat", "empty", "long", "bytes", "varint", "float", "swap", "truncate"]
INTEGERS = [-1, 0, 1, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]


def draw_bytes(random: Random) -> Edit:
    edit: Edit = {"action": random.choice(BYTE_ACTIONS), "at": random.randrange(10**6)}
    if edit["action"] in ("insert", "append"):
        edit["bytes"] = random.randbytes(random.choice([1, 4, 100])).hex()
    if edit["action"] == "flip":
        edit["bit"] = random.randrange(8)
    if edit["action"] == "splice":
        edit |= {"to": random.randrange(10**6), "length": random.choice([1, 8, 64])}
    return edit


def apply_bytes(content: bytes, edit: Edit) -> bytes:
    at = edit["at"] % (len(content) + 1)
    match edit["action"]:
        case "flip" if content:
            changed = bytearray(content)
            changed[at % len(content)] ^= 1 << edit["bit"]
            return bytes(changed)
        case "truncate":
            return content[:at]
        case "insert":
            return content[:at] + bytes.fromhex(edit["bytes"]) + content[at:]
        case "append":
            return content + bytes.fromhex(edit["bytes"])
        case "splice":
            to = edit["to"] % (len(content) + 1)
            return content[:to] + content[at : at + edit["length"]] + content[to:]
        case "empty":
            return b""
    return content


def read_header(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of a safetensors file and the bytes after it."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def draw_tensors(random: Random, content: bytes) -> Edit:
    header, _ = read_header(content)
    edit: Edit = {"action": random.choice(TENSOR_ACTIONS), "tensor": random.choice(list(header))}
    if edit["action"] == "tree":
        values = ["null", "minus-one", "2**63", "10**5000", "nan", "list", "object", "deep-list", "long-string"]
        edit["edit"] = draw_edit(random, header, values, ["dtype", "__metadata__"])
    if edit["action"] == "dtype":
        edit["dtype"] = random.choice(DTYPES)
    return edit


def apply_tensors(content: bytes, edit: Edit) -> bytes:
    try:
        header, data = read_header(content)
    except (ValueError, RecursionError):  # damaged by an earlier edit
        return content
    name, action = edit["tensor"], edit["action"]
    if not isinstance(header, dict) or name not in header or action == "header-length":
        return (2**62).to_bytes(8, "little") + content[8:]
    entry = header[name]
    begin, end = entry["data_offsets"]
    match action:
        case "tree":
            header = apply_edit(header, edit["edit"])
        case "offsets-out":
            entry["data_offsets"] = [begin, end + 10**9]
        case "offsets-overlap":
            entry["data_offsets"] = [0, end - begin]
        case "offsets-negative":
            entry["data_offsets"] = [-8, end]
        case "offsets-reversed":
            entry["data_offsets"] = [end, begin]
        case "dtype":
            entry["dtype"] = edit["dtype"]
        case "shape-overflow":
            entry["shape"] = [2**40, 2**40]
        case "shape-negative":
            entry["shape"] = [-1, *entry["shape"]]
        case "shape-other":
            entry["shape"] = [1, *reversed(entry["shape"])]
        case "shape-scalar":
            entry["shape"] = []
        case "header-empty":
            header = {}
        case "twice":
            header[f"@@twice:{name}@@"] = entry
        case "drop":
            header, data = _without(header, data, name)
        case "extra":
            header[name + ".extra"] = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
        case "metadata":
            header["__metadata__"] = {"a": "b" * 100_000}
        case "nan" | "inf" | "large":
            data = data[:begin] + _not_finite(entry["dtype"], action, end - begin) + data[end:]
    words = encoded(as_json(header, indent=None))
    if action == "header-huge":
        words += b" " * 5_000_000
    return len(words).to_bytes(8, "little") + words + data


def _without(header: dict[str, Any], data: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """Return the tensors without one of them, and without a gap."""
    begin, end = header[name]["data_offsets"]
    kept = {}
    for other, entry in header.items():
        if other != name and "data_offsets" in entry:
            moved = [at - (end - begin) if at >= end else at for at in entry["data_offsets"]]
            kept[other] = {**entry, "data_offsets": moved}
    return kept, data[:begin] + data[end:]


def _not_finite(dtype: str, what: str, size: int) -> bytes:
    number = {"nan": float("nan"), "inf": float("inf"), "large": 6e4 if dtype == "F16" else 3e38}[what]
    packed = {"F32": "<f", "F16": "<e", "F64": "<d"}.get(dtype)
    one = struct.pack(packed, number) if packed else b"\x80"
    return (one * (size // len(one) + 1))[:size]


# SentencePiece models: protocol buffers, read without their schema


def parse_message(content: bytes) -> list[tuple[int, int, Any]]:
    """Return the fields of a message: number, wire type, value."""
    fields, at = [], 0
    while at < len(content):
        tag, at = _varint(content, at)
        value: Any
        match tag & 7:
            case 0:
                value, at = _varint(content, at)
            case 1:
                value, at = content[at : at + 8], at + 8
            case 2:
                size, at = _varint(content, at)
                value, at = content[at : at + size], at + size
            case 5:
                value, at = content[at : at + 4], at + 4
            case other:
                raise ValueError(f"wire type {other}")
        fields.append((tag >> 3, tag & 7, value))
    return fields


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < len(content):
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number is truncated")


def _number(value: int) -> bytes:
    value &= 2**64 - 1
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def render_message(fields: list[tuple[int, int, Any]]) -> bytes:
    parts = []
    for number, kind, value in fields:
        parts.append(_number(number << 3 | kind))
        if kind == 0:
            parts.append(_number(value))
        else:
            parts += [_number(len(value)), value] if kind == 2 else [value]
    return b"".join(parts)


def draw_proto(random: Random) -> Edit:
    return {
        "action": random.choice(PROTO_ACTIONS),
        "field": random.randrange(10**6),
        "inner": random.randrange(10**6) if random.random() < 0.7 else None,
        "value": random.choice(INTEGERS),
        "bytes": random.randbytes(random.choice([1, 8, 300])).hex(),
    }


def apply_proto(content: bytes, edit: Edit) -> bytes:
    try:
        fields = parse_message(content)
    except ValueError:
        return content
    if not fields:
        return content
    place = edit["field"] % len(fields)
    number, kind, value = fields[place]
    if edit["inner"] is not None and kind == 2:
        inner = apply_proto(value, {**edit, "field": edit["inner"], "inner": None})
        fields[place] = number, kind, inner
        return render_message(fields)
    match edit["action"]:
        case "delete":
            del fields[place]
        case "repeat":
            fields += [fields[place]] * 200
        case "empty":
            fields[place] = number, kind, b"" if kind == 2 else value
        case "long":
            fields[place] = number, 2, b"x" * 100_000
        case "bytes":
            fields[place] = number, 2, bytes.fromhex(edit["bytes"])
        case "varint":
            fields[place] = number, 0, edit["value"]
        case "float":
            fields[place] = number, 5, struct.pack("<f", [float("nan"), float("inf"), 3e38][edit["value"] % 3])
        case "swap":
            other = edit["value"] % len(fields)
            fields[place], fields[other] = fields[other], fields[place]
        case "truncate":
            return content[: edit["value"] % len(content)]
    return render_message(fields)


def draw_array(random: Random) -> Edit:
    return {"action": "array", "at": random.randrange(10**6), "value": random.choice(INTEGERS)}


def apply_array(content: bytes, edit: Edit, width: int) -> bytes:
    """Set one integer of an array of integers of `width` bytes."""
    if len(content) < width:
        return content
    at = edit["at"] % (len(content) // width) * width
    value = (edit["value"] % 2 ** (8 * width)).to_bytes(width, "little")
    return content[:at] + value + content[at + width :]
