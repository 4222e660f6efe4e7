"""Reading of parallel text, plain or gzip: two aligned files, or one table of pairs.

Only "\\n" ends a line, so that line numbers are those of `sed`; other Unicode separators are part of the line. Nothing is
repaired silently: malformed text raises DataError with the file, the line and what to do.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec

from regard.errors import DataError
from regard.messages import counted

MAX_LINE_CHARS = 100_000
# At most four bytes per character in UTF-8, a byte order mark, and the newline.
_MAX_LINE_BYTES = 4 * MAX_LINE_CHARS + 4
_BLOCK = 2**18  # bytes read at a time
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that do not begin a character


class Pair(NamedTuple):
    """A source text and its target: a translation, a summary, a pronunciation ..."""

    source: str
    target: str


class _Row(msgspec.Struct):
    source: str
    target: str


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file without newlines. Lines may be empty; an empty file raises DataError."""
    return list(stream_lines(path))


def read_pairs(source: Path, target: Path | None = None) -> list[Pair]:
    """Return the pairs of two parallel files, or of one table (.tsv or .jsonl). A blank side raises DataError."""
    return list(stream_pairs(source, target))


def stream_pairs(source: Path, target: Path | None = None) -> Iterator[Pair]:
    """Yield the pairs as they are read; see `read_pairs`."""
    if target is not None:
        return _checked(_parallel_lines(source, target), str(source), str(target))
    return _checked(_parsed(stream_lines(source), _table_parser(source), str(source)), str(source), str(source))


def stream_texts(path: Path) -> Iterator[Pair]:
    """Yield each line of a file as a pair whose two sides are the line. A blank line raises DataError."""
    return _checked((Pair(line, line) for line in stream_lines(path)), str(path), str(path))


def decode_pairs(file: io.BufferedReader, name: str) -> Iterator[Pair]:
    """Yield the pairs of an open .tsv file or pipe, plain or gzip. `name` is used in error messages."""
    return _checked(_parsed(decode_lines(file, name), _parse_tsv, name), name, name)


def _parsed(lines: Iterable[str], parse: Callable[[str, str], Pair], name: str) -> Iterator[Pair]:
    return (parse(line, f"line {number} of {name}") for number, line in enumerate(lines, start=1))


def _parallel_lines(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = stream_lines(source), stream_lines(target)
    for number, (one, other) in enumerate(zip_longest(sources, targets), start=1):
        if one is None or other is None:
            more = number + sum(1 for _ in (targets if one is None else sources))
            counts = (number - 1, more) if one is None else (more, number - 1)
            raise DataError(
                f"{source} has {counted(counts[0], 'line')} but {target} has {counts[1]}; line N of one must translate "
                "line N of the other, so find where they diverge"
            )
        yield Pair(one, other)


def _checked(pairs: Iterable[Pair], source: str, target: str) -> Iterator[Pair]:
    """Yield the pairs. Raise DataError, with these file names, if a side is blank."""
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
        raise DataError(
            f"{where} has {counted(len(columns), 'column')}; it needs 2, source and target, with one tab between them"
        )
    return Pair(*columns)


_decode_row = msgspec.json.Decoder(_Row).decode


def _parse_json(line: str, where: str) -> Pair:
    try:
        row = _decode_row(line)
    except msgspec.DecodeError as error:
        fits = '{"source": "...", "target": "..."}'
        raise DataError(f"{where} is not a pair ({error}); every line must look like {fits}") from error
    for side, text in (("source", row.source), ("target", row.target)):
        # Both can be escaped in JSON, and would break files with one sentence per line.
        if "\n" in text or "\0" in text:
            raise DataError(f"{where} has a line break or a NUL inside its {side}; replace it with a space")
    return Pair(row.source, row.target)


def stream_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file as they are read; see `read_lines`."""
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
        raise DataError(f"{path} is empty; it needs one sentence per line")


def decode_lines(file: io.BufferedReader, name: str) -> Iterator[str]:
    """Yield the lines of an open file or pipe, plain or gzip. `name` is used in error messages."""
    return chain.from_iterable(decode_blocks(file, name))


def unpacked(file: io.BufferedReader) -> io.BufferedIOBase:
    """Return the file, or if it is gzip, a stream of its content."""
    # Detect gzip by its content: file names can be wrong, and a pipe cannot be read twice.
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP_MAGIC else file


def decode_blocks(file: io.BufferedReader, name: str) -> Iterator[Iterator[str]]:
    """Yield the lines of an open file or pipe in the blocks in which they are read; see `decode_lines`.

    Consume each block before the next. A block may be empty.
    """
    stream = unpacked(file)
    number, rest = 0, b""
    try:
        # read1 returns what is available, so that lines typed into a pipe are processed at once.
        while block := stream.read1(_BLOCK):
            block = rest + block
            end = block.rfind(b"\n") + 1
            complete = block[:end].removeprefix(_BYTE_ORDER_MARK) if number == 0 else block[:end]
            yield _decode_block(complete, number, name)
            number += complete.count(b"\n")
            rest = block[end:]
            if len(rest) >= _MAX_LINE_BYTES:
                # Raises the error that explains what is wrong with this line.
                _text(rest, stream, f"line {number + 1} of {name}")
        if number == 0:
            # A file with only a byte order mark is empty.
            rest = rest.removeprefix(_BYTE_ORDER_MARK)
        if rest:
            yield iter([_text(rest, stream, f"line {number + 1} of {name}")])
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is a damaged gzip file after line {number} ({error}); copy it again") from error


def _decode_block(block: bytes, before: int, name: str) -> Iterator[str]:
    """Yield the lines of a block of complete lines: decoded together if all are valid, else one by one up to the error."""
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
    """Return one decoded line. `stream` is positioned after `raw`, to measure a line that is longer than `raw`."""
    if b"\0" in raw:
        raise DataError(f"{where} has a NUL byte, so the file is binary or UTF-16; give it as UTF-8 text")
    complete = raw.endswith(b"\n") or len(raw) < _MAX_LINE_BYTES - len(_BYTE_ORDER_MARK)
    if not complete:
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
            f"{where} ends in a carriage return (a Windows line ending); convert the file, for example with dos2unix"
        )
    if len(text) > MAX_LINE_CHARS:
        _refuse_long(len(text), where)
    return text


def _refuse_long(characters: int, where: str) -> None:
    raise DataError(
        f"{where} has {characters:,} characters, more than the limit of {MAX_LINE_CHARS:,}; split it or remove it"
    )


def _count_characters(chunk: bytes, stream: io.BufferedIOBase) -> int:
    """Return the number of characters of a line of any length, with one chunk in memory at a time."""
    count = len(chunk.translate(None, _CONTINUATION_BYTES))
    while not chunk.endswith(b"\n") and (chunk := stream.readline(_MAX_LINE_BYTES)):
        count += len(chunk.removesuffix(b"\n").translate(None, _CONTINUATION_BYTES))
    return count
