"""Lines of a run's log: JSON objects that end in a checksum of themselves, so that a damaged line is noticed."""

from __future__ import annotations

import json
import math
import zlib
from typing import Any

TAIL = len(', "crc": "00000000"}')


def log_line(event: dict[str, Any]) -> str:
    """The event as a line; numbers that are not finite become null, for JSON has none."""
    event = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in event.items()
    }
    body = json.dumps(event, ensure_ascii=False, allow_nan=False)
    return f'{body[:-1]}, "crc": "{zlib.crc32(body.encode()):08x}"}}\n'


def parse_log_line(line: bytes) -> dict[str, Any] | None:
    """The event of a line without its newline; None if the line is not what was written."""
    body, tail = line[:-TAIL] + b"}", line[-TAIL:]
    if tail != f', "crc": "{zlib.crc32(body):08x}"}}'.encode():
        return None
    event: dict[str, Any] = json.loads(body)
    return event
