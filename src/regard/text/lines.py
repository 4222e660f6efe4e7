"""Lines of a file or pipe, plain or compressed.

Only "\\n" ends a line, so that line numbers are those of `sed`; other Unicode separators are part of the line. Windows line
endings and a byte order mark are removed and counted. A line that cannot be read is a `TextProblem` in its place.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from regard.errors import DataError
from regard.text.compression import Damaged, opened
from regard.text.pair import TextProblem
from regard.text.text_report import BOM, SHOWN, WINDOWS, TextReport

MAX_LINE_CHARS = 100_000
# At most four bytes per character in UTF-8, a byte order mark, and the newline.
_MAX_LINE_BYTES = 4 * MAX_LINE_CHARS + 4
_BLOCK = 2**18  # bytes read at a time
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that do not begin a character

Line = str | TextProblem


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file without newlines. Lines may be empty; an empty file raises DataError."""
    return list(stream_lines(path))


def stream_lines(path: Path, report: TextReport | None = None) -> Iterator[str]:
    """Yield the lines of a file as they are read; see `read_lines`. A line that cannot be read raises DataError."""
    return intact(file_lines(path, report or TextReport()), str(path))


def file_lines(path: Path, report: TextReport) -> Iterator[Line]:
    """Yield the lines of a file, or in place of one the problem that it has. An empty file raises DataError."""
    with opened(path) as stream:
        yield from decode_lines(stream, str(path), report)


def decode_lines(stream: io.BufferedReader, name: str, report: TextReport) -> Iterator[Line]:
    """Yield the lines of an open file or pipe as `file_lines` does."""
    lines = chain.from_iterable(decode_blocks(stream, name, report))
    first = next(lines, None)
    if first is None:
        raise DataError(f"{name} is empty; it needs one sentence per line")
    yield first
    yield from lines


def intact(lines: Iterable[Line], name: str, *, first: int = 1) -> Iterator[str]:
    """Yield the lines; raise DataError for the first problem in place of one. `first` is the number of the first line."""
    for number, line in enumerate(lines, start=first):
        if not isinstance(line, str):
            raise DataError(f"line {number} of {name} {line.sentence}")
        yield line


def decode_blocks(stream: io.BufferedReader, name: str, report: TextReport) -> Iterator[Iterator[Line]]:
    """Yield the lines of an open file or pipe in the blocks in which they are read. `name` is used in error messages.

    Consume each block before the next. A block may be empty.
    """
    number, rest = 0, b""
    try:
        # read1 returns what is available, so that lines typed into a pipe are processed at once.
        while block := stream.read1(_BLOCK):
            block = rest + block
            end = block.rfind(b"\n") + 1
            complete = _without_mark(block[:end], report) if number == 0 else block[:end]
            yield _decode_block(complete, report)
            number += complete.count(b"\n")
            rest = block[end:]
            if len(rest) >= _MAX_LINE_BYTES:
                yield iter([_too_long(_count_characters(rest, stream), rest)])
                number, rest = number + 1, b""
        if number == 0:
            # A file with only a byte order mark is empty.
            rest = _without_mark(rest, report)
        if rest:
            yield _decode_block(rest + b"\n", report)
    except Damaged as error:
        raise DataError(
            f"{name} is a damaged {error.kind} file after line {number} ({error.problem}); copy it again"
        ) from error


def _without_mark(block: bytes, report: TextReport) -> bytes:
    if block.startswith(_BYTE_ORDER_MARK):
        report.mend(BOM)
    return block.removeprefix(_BYTE_ORDER_MARK)


def _decode_block(block: bytes, report: TextReport) -> Iterator[Line]:
    """Yield the lines of a block of complete lines: decoded together if all are valid, else one by one."""
    if windows := block.count(b"\r\n"):
        report.mend(WINDOWS, windows)
        block = block.replace(b"\r\n", b"\n")
    try:
        lines = block.decode().split("\n")[:-1]
        if b"\0" not in block and max(map(len, lines), default=0) <= MAX_LINE_CHARS:
            return iter(lines)
    except UnicodeDecodeError:
        pass
    return map(_decode_line, block.split(b"\n")[:-1])


def _decode_line(raw: bytes) -> Line:
    if b"\0" in raw:
        sentence = "has a NUL byte, so the file is binary or UTF-16; give it as UTF-8 text"
        return TextProblem("NUL byte", sentence, _beginning(raw))
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        sentence = (
            f"is not UTF-8: byte {error.start + 1} of the line is 0x{raw[error.start]:02x}; "
            "convert the file to UTF-8, for example with iconv"
        )
        return TextProblem("not UTF-8", sentence, _beginning(raw))
    return text if len(text) <= MAX_LINE_CHARS else _too_long(len(text), raw)


def _too_long(characters: int, raw: bytes) -> TextProblem:
    return long_text(characters, _beginning(raw))


def long_text(characters: int, beginning: str) -> TextProblem:
    """Return the problem of a text that is longer than a line may be."""
    sentence = f"has {characters:,} characters, more than the limit of {MAX_LINE_CHARS:,}; split it or remove it"
    return TextProblem(f"more than {MAX_LINE_CHARS:,} characters", sentence, beginning)


def _beginning(raw: bytes) -> str:
    return raw[: 4 * SHOWN].decode(errors="backslashreplace")


def _count_characters(chunk: bytes, stream: io.BufferedIOBase) -> int:
    """Return the number of characters of a line of any length, with one chunk in memory at a time."""
    count = len(chunk.translate(None, _CONTINUATION_BYTES))
    while not chunk.endswith(b"\n") and (chunk := stream.readline(_MAX_LINE_BYTES)):
        count += len(chunk.removesuffix(b"\n").translate(None, _CONTINUATION_BYTES))
    return count
