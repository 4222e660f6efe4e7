"""Pairs in tables of text: TSV, CSV with quotes, and JSON lines.

A reader yields one `Row` per line or record. `Sides` names the two sides: columns by name or number, keys, or languages.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from regard.errors import DataError, did_you_mean
from regard.messages import counted
from regard.text.lines import Line, decode_lines
from regard.text.pair import Pair, Row, TextProblem
from regard.text.text_report import TextReport

SOURCE_AND_TARGET = ("source", "target")
MAX_RECORD_LINES = 100  # of a CSV record with line breaks inside quotes; a quote that is never closed is found by it
MAX_COLUMNS = 10_000
Names = tuple[str | int, str | int]


@dataclass(frozen=True)
class Sides:
    """What the source and the target are called in a file."""

    columns: Names | None = None  # names of columns, keys or languages; numbers of columns, from 1
    languages: tuple[str, str] | None = None  # used where no columns are named, by formats that name languages

    def named(self) -> tuple[str, str] | None:
        """Return the names of the two sides, also where they are languages; None if there are none."""
        names = self.columns or self.languages
        return None if names is None else (str(names[0]), str(names[1]))


def read_tsv(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport) -> Iterator[Row]:
    """Yield the rows of a file of tab-separated values: two columns, or the two that are named in its first line."""
    lines = decode_lines(stream, name, report)
    start, places, width = 1, (0, 1), 2
    exact = True
    if sides.columns is not None and all(isinstance(column, int) for column in sides.columns):
        places, exact = _places(sides.columns, [], name), False
        width = max(places) + 1
    elif sides.columns is not None:
        header = _header(next(lines), name).split("\t")
        start, places, width = 2, _places(sides.columns, header, name), len(header)
    for number, line in enumerate(lines, start=start):
        if not isinstance(line, str):
            yield Row(number, line)
            continue
        columns = line.split("\t")
        if len(columns) == width or (len(columns) > width and not exact):
            yield Row(number, Pair(columns[places[0]], columns[places[1]]))
        else:
            more = ", source and target, with one tab between them" if sides.columns is None else ""
            yield Row(number, _wrong_width(len(columns), width, line, more))


def read_csv(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport) -> Iterator[Row]:
    """Yield the rows of a file of comma-separated values whose first line names the columns; or with numbers, of any."""
    records = _Records(decode_lines(stream, name, report))
    numbers = sides.columns is not None and all(isinstance(column, int) for column in sides.columns)
    places, width = ((0, 0), 0) if not numbers else (_places(sides.columns or (1, 2), [], name), 0)
    if not numbers:
        first = _header(records.first_line(), name)
        records.delimiter = max(",;\t", key=first.count)
        _, header = next(records)
        if isinstance(header, TextProblem):
            raise DataError(f"line 1 of {name} {header.sentence}")
        places, width = _places(_columns_of(header, sides), header, name), len(header)
    for number, record in records:
        if isinstance(record, TextProblem):
            yield Row(number, record)
            continue
        width = width or len(record)
        if len(record) != width or width <= max(places):
            yield Row(number, _wrong_width(len(record), max(width, max(places) + 1), ", ".join(record)))
        else:
            yield Row(number, Pair(record[places[0]], record[places[1]]))


class _Records:
    """The records of a CSV file with the numbers of their first lines.

    A bad record ends with its first line, so that one quote too many does not spoil the records that follow.
    """

    delimiter = ","

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._again: deque[Line] = deque()  # lines to be read again
        self._number = 0  # of the last line read

    def __iter__(self) -> _Records:
        return self

    def first_line(self) -> Line:
        """Return the first line, which the first record will have too."""
        line = next(self._lines)
        self._again.append(line)
        return line

    def __next__(self) -> tuple[int, list[str] | TextProblem]:
        used: list[Line] = []
        number = self._number + 1

        def feed() -> Iterator[str]:
            while len(used) < MAX_RECORD_LINES:
                line = self._again.popleft() if self._again else next(self._lines, None)
                if line is None:
                    return
                used.append(line)
                if not isinstance(line, str):
                    return
                yield line + "\n"

        record: list[str] | TextProblem
        try:
            # Strict, so that a quote without its end is an error and does not take the rest of the file with it.
            record = next(csv.reader(feed(), delimiter=self.delimiter, strict=True))
        except (csv.Error, StopIteration) as error:
            if not used:
                raise StopIteration from None
            first = used[0]
            self._again.extendleft(reversed(used[1:]))
            used = used[:1]
            what = str(error) or "unexpected end of data"
            sentence = f"is not a CSV record ({what}); close its quotes, or double those inside a quoted column"
            record = TextProblem("malformed CSV", sentence, first) if isinstance(first, str) else first
        self._number += len(used)
        if isinstance(record, list) and not record:
            record = TextProblem("empty line", "is empty; remove it")
        return number, record


def read_jsonl(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport) -> Iterator[Row]:
    """Yield the rows of JSON lines: objects with two keys, or with a key `translation` whose value has them."""
    keys = None if sides.columns is None else sides.named()
    for number, line in enumerate(decode_lines(stream, name, report), start=1):
        if not isinstance(line, str):
            yield Row(number, line)
            continue
        try:
            value = _decode_json(line)
        except (msgspec.DecodeError, RecursionError) as error:
            yield Row(number, _no_pair(error, line, keys))
            continue
        inner = value.get("translation")
        inner = inner if isinstance(inner, dict) else {}
        if keys is None and not value.keys() >= set(SOURCE_AND_TARGET) and (inner or sides.languages):
            keys = sides.languages
            if keys is None:
                raise DataError(
                    f"line {number} of {name} has a translation in {', '.join(map(repr, inner))}; "
                    'name the source and the target with columns, as in columns = ["en", "de"]'
                )
        one, other = keys or SOURCE_AND_TARGET
        table = inner if inner and one not in value and other not in value else value
        yield Row(number, _pair_of(table, one, other, line, keys))


_decode_json = msgspec.json.Decoder(dict[str, Any]).decode


def _pair_of(
    table: dict[str, Any], one: str, other: str, line: str, keys: tuple[str, str] | None
) -> Pair | TextProblem:
    for key in (one, other):
        if key not in table:
            return _no_pair(f"it has no key {key!r}", line, keys)
        if not isinstance(table[key], str) and table[key] is not None:
            return _no_pair(f"{key!r} is of type {type(table[key]).__name__}, not text", line, keys)
    return Pair(table[one] or "", table[other] or "")


def _no_pair(problem: object, line: str, keys: tuple[str, str] | None) -> TextProblem:
    one, other = keys or SOURCE_AND_TARGET
    fits = f'{{"{one}": "...", "{other}": "..."}}'
    return TextProblem("no pair in JSON", f"is not a pair ({problem}); every line must look like {fits}", line)


def _header(line: Line, name: str) -> str:
    if not isinstance(line, str):
        raise DataError(f"line 1 of {name} {line.sentence}")
    return line


def _columns_of(header: Sequence[str], sides: Sides) -> Names:
    """Return the columns to read: those named, else `source` and `target`, else the languages if the header has both."""
    if sides.columns is not None:
        return sides.columns
    known = {column.strip().lower() for column in header}
    return sides.languages if sides.languages and known >= set(sides.languages) else SOURCE_AND_TARGET


def _places(columns: Names, header: Sequence[str], name: str) -> tuple[int, int]:
    """Return the places of two columns, from 0."""
    known = [column.strip().lower() for column in header]
    places = []
    for column in columns:
        if isinstance(column, int):
            places.append(column - 1)
        elif column.lower() in known:
            places.append(known.index(column.lower()))
        else:
            raise DataError(
                f"the first line of {name} names no column {column!r}; name the two columns with columns, "
                f"{did_you_mean(column, header)}"
            )
    return places[0], places[1]


def _wrong_width(found: int, expected: int, line: str, more: str = "") -> TextProblem:
    sentence = f"has {counted(found, 'column')}; it needs {expected}{more}"
    return TextProblem(f"{counted(found, 'column')} instead of {expected}", sentence, line)
