"""Parallel text from disk: plain or gzip, two aligned files or one table of pairs.

A line ends at "\\n" and nowhere else, so that line 7 here is line 7 for `sed`, whatever separators Unicode puts in it.
Nothing is repaired in silence: text that does not fit stops with the file, the line and what to do.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec

from regard.errors import DataError

MAX_LINE_CHARS = 100_000
_MAX_LINE_BYTES = 4 * MAX_LINE_CHARS + 4  # four bytes a character at most in UTF-8, a byte order mark, the newline
_BLOCK = 2**18  # bytes read at a time
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # the bytes of UTF-8 that do not begin a character


class Pair(NamedTuple):
    """A sentence and its translation (summary, pronunciation ...)."""

    source: str
    target: str


class _Row(msgspec.Struct):
    source: str
    target: str


def read_lines(path: Path) -> list[str]:
    """The lines of one file, without their newlines; a line may be empty, the file may not."""
    return list(stream_lines(path))


def read_pairs(source: Path, target: Path | None = None) -> list[Pair]:
    """The pairs of two parallel files, or of one table (.tsv or .jsonl); no side of a pair is blank."""
    return list(stream_pairs(source, target))


def stream_pairs(source: Path, target: Path | None = None) -> Iterator[Pair]:
    """The pairs as they are read; see `read_pairs`."""
    if target is not None:
        return _checked(_side_by_side(source, target), str(source), str(target))
    return _checked(_parsed(stream_lines(source), _table_parser(source), str(source)), str(source), str(source))


def decode_pairs(file: io.BufferedReader, name: str) -> Iterator[Pair]:
    """The pairs of an open file or pipe of .tsv lines, plain or gzip; errors call it by the name."""
    return _checked(_parsed(decode_lines(file, name), _parse_tsv, name), name, name)


def _parsed(lines: Iterable[str], parse: Callable[[str, str], Pair], name: str) -> Iterator[Pair]:
    return (parse(line, f"line {number} of {name}") for number, line in enumerate(lines, start=1))


def _side_by_side(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = stream_lines(source), stream_lines(target)
    for number, (one, other) in enumerate(zip_longest(sources, targets), start=1):
        if one is None or other is None:
            more = number + sum(1 for _ in (targets if one is None else sources))
            counts = (number - 1, more) if one is None else (more, number - 1)
            raise DataError(
                f"{source} has {counts[0]} lines but {target} has {counts[1]}; line N of one must translate "
                "line N of the other, so find where they part"
            )
        yield Pair(one, other)


def _checked(pairs: Iterable[Pair], source: str, target: str) -> Iterator[Pair]:
    """The pairs, none with a blank side; the names are for the error."""
    for number, pair in enumerate(pairs, start=1):
        if not pair.source or pair.source.isspace():
            raise DataError(f"line {number} of {source} has an empty source side; remove that pair or fill it in")
        if not pair.target or pair.target.isspace():
            raise DataError(f"line {number} of {target} has an empty target side; remove that pair or fill it in")
        yield pair


def _table_parser(path: Path) -> Callable[[str, str], Pair]:
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".tsv"):
        return _parse_tsv
    if name.endswith(".jsonl"):
        return _parse_json
    raise DataError(
        f"{path} is not a table of pairs; name it .tsv or .jsonl (.gz may follow), or give two parallel files"
    )


def _parse_tsv(line: str, where: str) -> Pair:
    columns = line.split("\t")
    if len(columns) != 2:
        raise DataError(f"{where} has {len(columns)} columns; it needs 2, source and target, with one tab between them")
    return Pair(*columns)


_decode_row = msgspec.json.Decoder(_Row).decode


def _parse_json(line: str, where: str) -> Pair:
    try:
        row = _decode_row(line)
    except msgspec.DecodeError as error:
        fits = '{"source": "...", "target": "..."}'
        raise DataError(f"{where} is not a pair ({error}); every line must look like {fits}") from error
    for side, text in (("source", row.source), ("target", row.target)):
        if "\n" in text or "\0" in text:  # escaped in JSON; it would break every file of one sentence a line after this
            raise DataError(f"{where} has a line break or a NUL inside its {side}; replace it with a space")
    return Pair(row.source, row.target)


def stream_lines(path: Path) -> Iterator[str]:
    """The lines of one file as they are read; see `read_lines`."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it")
    empty = True
    try:
        with path.open("rb") as file:
            for line in decode_lines(file, str(path)):
                empty = False
                yield line
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; check the path") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the file and its permissions") from error
    if empty:
        raise DataError(f"{path} is empty, not even line 1 is there; it needs one sentence a line")


def decode_lines(file: io.BufferedReader, name: str) -> Iterator[str]:
    """The lines of an open file or pipe, plain or gzip; errors call it by the name."""
    packed = file.peek(2)[:2] == _GZIP_MAGIC  # by content: names lie, and a pipe cannot be read twice
    stream: io.BufferedIOBase = gzip.GzipFile(fileobj=file) if packed else file
    number, rest = 0, b""
    try:
        while block := stream.read1(_BLOCK):  # what is there: a person at the other end of a pipe gets answers at once
            block = rest + block
            end = block.rfind(b"\n") + 1
            whole = block[:end].removeprefix(_BYTE_ORDER_MARK) if number == 0 else block[:end]
            for line in _whole_lines(whole, number, name):
                number += 1
                yield line
            rest = block[end:]
            if len(rest) >= _MAX_LINE_BYTES:
                _text(rest, stream, f"line {number + 1} of {name}")  # tells what is wrong with it
        if number == 0:
            rest = rest.removeprefix(_BYTE_ORDER_MARK)  # the mark alone is an empty file
        if rest:
            yield _text(rest, stream, f"line {number + 1} of {name}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is a damaged gzip file after line {number} ({error}); copy it again") from error


def _whole_lines(block: bytes, before: int, name: str) -> Iterator[str]:
    """The lines of a block that ends with one: all at once where nothing is wrong, one by one up to what is."""
    try:
        lines = block.decode().split("\n")[:-1]
        wrong = b"\0" in block or b"\r\n" in block or max(map(len, lines), default=0) > MAX_LINE_CHARS
    except UnicodeDecodeError:
        wrong = True
    if not wrong:
        return iter(lines)
    stream = io.BufferedReader(io.BytesIO(block))
    return (_text(raw, stream, f"line {number} of {name}") for number, raw in enumerate(stream, start=before + 1))


def _text(raw: bytes, stream: io.BufferedIOBase, where: str) -> str:
    """One line decoded; `stream` stands behind it, to measure a line that did not fit into `raw`."""
    if b"\0" in raw:
        raise DataError(f"{where} has a NUL byte, so the file is binary or UTF-16; give it as UTF-8 text")
    whole = raw.endswith(b"\n") or len(raw) < _MAX_LINE_BYTES - len(_BYTE_ORDER_MARK)
    if not whole:
        _refuse_long(_count_characters(raw, stream), where)
    try:
        text = raw.removesuffix(b"\n").decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where} is not UTF-8: byte {error.start + 1} of the line is 0x{raw[error.start]:02x}; "
            "convert the file to UTF-8, for example with iconv"
        ) from error
    if text.endswith("\r"):
        raise DataError(
            f"{where} ends in a carriage return (a Windows line ending); convert the file, say with dos2unix"
        )
    if len(text) > MAX_LINE_CHARS:
        _refuse_long(len(text), where)
    return text


def _refuse_long(characters: int, where: str) -> None:
    raise DataError(
        f"{where} has {characters:,} characters, more than the {MAX_LINE_CHARS:,} a sentence may have; "
        "split it or remove it"
    )


def _count_characters(chunk: bytes, stream: io.BufferedIOBase) -> int:
    """The characters of a line of any length, a chunk in memory at a time."""
    count = len(chunk.translate(None, _CONTINUATION_BYTES))
    while not chunk.endswith(b"\n") and (chunk := stream.readline(_MAX_LINE_BYTES)):
        count += len(chunk.removesuffix(b"\n").translate(None, _CONTINUATION_BYTES))
    return count
