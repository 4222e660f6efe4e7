"""Lines of a run's log: JSON objects that end in a checksum of themselves, so that a damaged line is noticed.

A log may come from a stranger, checksums and all, so every event that we know is checked for the fields that readers use.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Annotated, Any

import msgspec

from regard.errors import CheckpointError
from regard.storage.folder import parse_json

TAIL = len(', "crc": "00000000"}')
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Event(msgspec.Struct, kw_only=True):
    event: str


class _OfStep(_Event, kw_only=True):
    step: Count


class _Started(_OfStep, kw_only=True):
    steps: Count
    parameters: Count
    seconds: float | None
    how: str = ""
    machine: dict[str, str] = {}


class _Progress(_OfStep, kw_only=True):
    steps: Count
    loss: float | None
    rate: float | None
    gradient_norm: float | None
    tokens_per_second: float | None
    seconds: float | None


class _Example(msgspec.Struct):
    source: str
    output: str
    reference: str


class _Attention(msgspec.Struct):
    source: list[str]
    target: list[str]
    percent: list[list[int]]


class _Validated(_OfStep, kw_only=True):
    best: bool
    examples: list[_Example]
    histograms: dict[str, list[Count]] | None = None
    attention: _Attention | None = None


class _Noted(_OfStep, kw_only=True):
    text: str


_FIELDS: dict[str, type[_Event]] = {
    "started": _Started,
    "progress": _Progress,
    "validated": _Validated,
    "noted": _Noted,
}


def log_line(event: dict[str, Any]) -> str:
    """The event as a line; numbers that are not finite become null, for JSON has none."""
    event = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in event.items()
    }
    body = json.dumps(event, ensure_ascii=False, allow_nan=False)
    return f'{body[:-1]}, "crc": "{zlib.crc32(body.encode()):08x}"}}\n'


def parse_line(line: bytes) -> dict[str, Any] | None:
    """What `log_line` was given, from its line without the newline; None if the line is not what was written."""
    body, tail = line[:-TAIL] + b"}", line[-TAIL:]
    if tail != f', "crc": "{zlib.crc32(body):08x}"}}'.encode():
        return None
    try:
        found = parse_json(body, origin="a line")
    except CheckpointError:
        return None
    return found if isinstance(found, dict) else None


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line of the log; None if it lacks what readers use."""
    event = parse_line(line)
    try:
        kind = msgspec.convert(event, _Event).event
        msgspec.convert(event, _FIELDS.get(kind, _Event))
    except msgspec.ValidationError:
        return None
    return event
