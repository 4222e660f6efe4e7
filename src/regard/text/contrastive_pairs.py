"""Contrastive pairs: a source with a right and a wrong translation. How they are read from a file.

The columns are `source`, `right`, `wrong` and, if there is one, `category`. TSV and CSV name them in the first line; JSON
lines have them as keys.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from regard.errors import DataError
from regard.messages import counted
from regard.text.compression import ENDINGS
from regard.text.lines import stream_lines

COLUMNS = ("source", "right", "wrong")
CATEGORY = "category"


class ContrastivePair(NamedTuple):
    """A source text, a right and a wrong translation of it, and the kind of the mistake."""

    source: str
    right: str
    wrong: str
    category: str = ""


def read_contrastive_pairs(path: Path) -> list[ContrastivePair]:
    """Return the pairs of a TSV, CSV or JSON lines file, which may be compressed. A bad line raises DataError."""
    name = path.name.lower()
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    readers = {".tsv": _read_tsv, ".csv": _read_csv, ".jsonl": _read_jsonl, ".ndjson": _read_jsonl}
    for ending, read in readers.items():
        if name.endswith(ending):
            found = [_pair(path, number, record) for number, record in read(path)]
            if not found:
                raise DataError(f"{path} has no contrastive pair")
            return found
    raise DataError(
        f"{path} is not a file of contrastive pairs by its name; name it {', '.join(readers)} "
        f"({', '.join(ENDINGS)} may follow)"
    )


def _pair(path: Path, number: int, record: dict[str, Any]) -> ContrastivePair:
    texts = [record.get(column) for column in COLUMNS]
    category = record.get(CATEGORY) or ""
    for column, text in zip((*COLUMNS, CATEGORY), (*texts, category), strict=True):
        if not isinstance(text, str) or (column != CATEGORY and not text.strip()):
            raise DataError(f"line {number} of {path} has no text as {column!r}; it needs {', '.join(COLUMNS)}")
    if texts[1] == texts[2]:
        raise DataError(f"line {number} of {path} has the same text as right and as wrong; remove it")
    source, right, wrong = map(str, texts)
    return ContrastivePair(source, right, wrong, category)


def _read_tsv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = stream_lines(path)
    header = _header(next(lines).split("\t"), path)
    for number, line in enumerate(lines, start=2):
        yield number, _record(header, line.split("\t"), path, number)


def _read_csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    text = io.StringIO("\n".join(stream_lines(path)))
    reader = csv.reader(text, strict=True)
    try:
        header = _header(next(reader), path)
        for cells in reader:
            if cells:
                yield reader.line_num, _record(header, cells, path, reader.line_num)
    except csv.Error as error:
        raise DataError(f"line {reader.line_num} of {path} is not a CSV record ({error})") from error


def _read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(stream_lines(path), start=1):
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            example = '{"source": "...", "right": "...", "wrong": "..."}'
            raise DataError(f"line {number} of {path} is not {example} ({error})") from error


def _header(cells: list[str], path: Path) -> list[str]:
    names = [cell.strip().lower() for cell in cells]
    if not set(COLUMNS) <= set(names):
        raise DataError(
            f"the first line of {path} must name the columns {', '.join(COLUMNS)}, and {CATEGORY} if there is one"
        )
    return names


def _record(header: list[str], cells: list[str], path: Path, number: int) -> dict[str, Any]:
    if len(cells) != len(header):
        raise DataError(
            f"line {number} of {path} has {counted(len(cells), 'column')}; the first line names {len(header)}"
        )
    return dict(zip(header, cells, strict=True))
