"""The log of a run: one JSON object per line, each with a checksum of itself, so that damaged lines are detected.

A log may be untrusted even if its checksums are correct. Events of known kinds are therefore checked for the fields that
readers use.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from typing import Annotated, Any

import msgspec

from regard.errors import CheckpointError
from regard.storage.folder import LARGE, Folder, parse_json

LOG = "log.jsonl"
CHECKSUM_BYTES = len(', "crc": "00000000"}')
LogCount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Event(msgspec.Struct, kw_only=True):
    event: str


class _StepEvent(_Event, kw_only=True):
    step: LogCount


class _Started(_StepEvent, kw_only=True):
    steps: LogCount
    parameters: LogCount
    seconds: float | None
    how: str = ""
    machine: dict[str, str] = {}


class _Progress(_StepEvent, kw_only=True):
    steps: LogCount
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
    labels: list[str] = []


class _Validated(_StepEvent, kw_only=True):
    best: bool
    examples: list[_Example]
    histograms: dict[str, list[LogCount]] | None = None
    attention: _Attention | None = None


class _Noted(_StepEvent, kw_only=True):
    text: str


class _Command(_Event, kw_only=True):
    recipe: str
    overrides: list[str]
    out: str | None = None


_FIELDS: dict[str, type[_Event]] = {
    "command": _Command,
    "started": _Started,
    "progress": _Progress,
    "validated": _Validated,
    "noted": _Noted,
}


def log_line(event: dict[str, Any]) -> str:
    """Return an event as a line. Numbers that are not finite become null, since JSON has none."""
    event = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in event.items()
    }
    body = json.dumps(event, ensure_ascii=False, allow_nan=False)
    return f'{body[:-1]}, "crc": "{zlib.crc32(body.encode()):08x}"}}\n'


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line without its newline, or None if the checksum does not match."""
    body, checksum = line[:-CHECKSUM_BYTES] + b"}", line[-CHECKSUM_BYTES:]
    if checksum != f', "crc": "{zlib.crc32(body):08x}"}}'.encode():
        return None
    try:
        found = parse_json(body, origin="a line")
    except CheckpointError:
        return None
    return found if isinstance(found, dict) else None


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line, or None if it is damaged or lacks fields that readers use."""
    event = parse_line(line)
    try:
        kind = msgspec.convert(event, _Event).event
        msgspec.convert(event, _FIELDS.get(kind, _Event))
    except msgspec.ValidationError:
        return None
    return event


# The file


def append_event(folder: Folder, event: dict[str, Any]) -> None:
    """Append an event to the log of a run folder."""
    with folder.append_file(LOG) as file:
        file.write(log_line(event).encode())


def sync_log(folder: Folder) -> None:
    """Flush the log to disk."""
    with folder.append_file(LOG) as file:
        os.fsync(file.fileno())
    folder.sync()


def read_events(folder: Folder) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events of the log, and one sentence for each damaged line."""
    path = folder.path / LOG
    if LOG not in folder.names():
        return [], []
    lines = folder.load_bytes(LOG, limit=LARGE).split(b"\n")
    events, problems = [], []
    for number, line in enumerate(lines[:-1], start=1):
        event = parse_event(line)
        if event is None:
            problems.append(f"{path} is damaged: line {number} is not what was written")
        else:
            events.append(event)
    if lines[-1]:
        problems.append(f"{path} is damaged: its last line is incomplete")
    return events, problems


def rewind_log(folder: Folder, step: int) -> None:
    """Remove the events after a step, so that repeating those steps does not log them twice. Commands have no step."""
    events, _ = read_events(folder)
    kept = [event for event in events if "step" not in event or event["step"] <= step]
    folder.save_text(LOG, "".join(map(log_line, kept)))
