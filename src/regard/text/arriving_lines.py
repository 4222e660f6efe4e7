"""Lines of a file or pipe in blocks: full ones while lines are plentiful, smaller ones while they arrive slowly."""

from __future__ import annotations

import io
import os
import select
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from regard.errors import RegardError
from regard.text.compression import unpacked
from regard.text.lines import decode_blocks, intact
from regard.text.text_report import TextReport

QUIET_SECONDS = 0.1  # without more input until a block ends
LONGEST_SECONDS = 0.5  # from the first line of a block until it ends


def read_blocks(
    file: io.BufferedReader, name: str, *, most: int, report: TextReport | None = None
) -> Iterator[list[str]]:
    """Yield the lines in blocks of `most` lines. Lines that have arrived are a block if no more follow for a moment.

    `name` is used in error messages. What is mended is counted in the report.
    """
    block: list[str] = []
    ends, number = 0.0, 1
    for lines in decode_blocks(unpacked(file, name), name, report or TextReport()):
        if not block:
            ends = time.monotonic() + LONGEST_SECONDS
        before = len(block)
        block += intact(lines, name, first=number)
        number += len(block) - before
        while len(block) >= most:
            yield block[:most]
            block, ends = block[most:], time.monotonic() + LONGEST_SECONDS
        left = ends - time.monotonic()
        if block and (left <= 0 or not _is_readable(file, min(left, QUIET_SECONDS))):
            yield block
            block = []
    if block:
        yield block


def _is_readable(file: io.BufferedReader, seconds: float) -> bool:
    """Wait for input, or its end, for at most these seconds. What has no descriptor is always readable.

    So is everything on Windows, which can wait for sockets alone.
    """
    try:
        return bool(select.select([file.fileno()], [], [], seconds)[0])
    except OSError:
        return True


def count_lines(file: io.BufferedReader) -> int | None:
    """Return the number of lines from the position of a file on, plain or compressed, and leave the position as it is.

    Return None for what cannot be read twice, such as a pipe, and for what is damaged.
    """
    try:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:
        return None
    if not regular:
        return None
    start = file.tell()
    try:
        stream, count, last = unpacked(file, str(file.name)), 0, b"\n"
        while block := stream.read1(2**18):
            count, last = count + block.count(b"\n"), block[-1:]
        return count + (last != b"\n")
    except (OSError, RegardError):
        return None
    finally:
        file.seek(start)


def count_file_lines(path: Path) -> int | None:
    """Return the number of lines of a file by its name, as `count_lines` does. A pipe is not opened."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return count_lines(file)
    except OSError:
        return None
