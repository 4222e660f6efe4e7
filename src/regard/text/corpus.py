"""Pairs in files: two aligned files, or one of TSV, CSV, JSON lines, TMX, PO or Parquet; plain, gzip, xz or zstd.

A reader of a format yields rows: pairs, and problems in place of pairs. Here blank and overlong sides are found, line breaks
and control characters inside a side are replaced by spaces, and everything is counted in a `TextReport`. Problems raise
DataError with the file, the line and what to do, unless the report says that they are skipped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError
from regard.messages import counted
from regard.text.compression import ENDINGS, opened, unpacked
from regard.text.lines import MAX_LINE_CHARS, Line, file_lines, long_text
from regard.text.pair import Pair as Pair
from regard.text.pair import Row, TextProblem
from regard.text.parquet import read_parquet
from regard.text.po import read_po
from regard.text.table_files import Names, Sides, read_csv, read_jsonl, read_tsv
from regard.text.text_report import CONTROL, ENTITIES, LINE_BREAKS, NO_COUNTERPART, SEPARATORS, TextReport
from regard.text.tmx import read_tbx, read_tmx

_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
_LINE_BREAK = re.compile(r"[ \t]*(?:\r\n|\n)[ \t\r\n]*")
_SEPARATOR = re.compile("[\u2028\u2029]")
_CONTROL = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")


class PairFormat(NamedTuple):
    """How files of a format are read."""

    read: Callable[[io.BufferedReader, str, Sides, TextReport], Iterator[Row]]
    endings: tuple[str, ...]  # of file names
    unit: str = "line"  # what is counted


FORMATS = {
    "tsv": PairFormat(read_tsv, (".tsv",)),
    "csv": PairFormat(read_csv, (".csv",)),
    "jsonl": PairFormat(read_jsonl, (".jsonl", ".ndjson")),
    "tmx": PairFormat(read_tmx, (".tmx",)),
    "tbx": PairFormat(read_tbx, (".tbx",)),
    "po": PairFormat(read_po, (".po",)),
    "parquet": PairFormat(read_parquet, (".parquet",), "row"),
}
Paths = Path | Sequence[Path]


def read_pairs(
    source: Paths,
    target: Paths | None = None,
    *,
    columns: Names | None = None,
    languages: tuple[str, str] | None = None,
    format: str | None = None,
    report: TextReport | None = None,
) -> list[Pair]:
    """Return the pairs of parallel files, or of files that hold both sides. A blank side raises DataError.

    `columns` names the two sides of one file: columns by name or by number (from 1), keys of JSON, or languages.
    `languages` are used where no columns are named, by formats that name languages. `format` is one of FORMATS; by default
    it follows from the file name. With a `report` that skips, problems are counted in it instead of raised.
    """
    return list(
        stream_pairs(source, target, columns=columns, languages=languages, format=format, report=report or TextReport())
    )


def stream_pairs(
    source: Paths,
    target: Paths | None = None,
    tags: Paths | None = None,
    *,
    columns: Names | None = None,
    languages: tuple[str, str] | None = None,
    format: str | None = None,
    report: TextReport,
) -> Iterator[Pair]:
    """Yield the pairs as they are read; see `read_pairs`. `tags` has a tag for each word of the source: `the|DT dog|NN`."""
    sources = _list(source)
    if target is None:
        sides = Sides(columns, languages)
        # Formats first: a file whose format is not known is refused before the others are read.
        files = [(path, _format_of(path, format)) for path in sources]
        streams = (_one_file(path, found, sides, report) for path, found in files)
    else:
        others = [_list(target), *([_list(tags)] if tags is not None else [])]
        for named in others:
            if len(named) != len(sources):
                raise DataError(
                    f"the source has {counted(len(sources), 'file')}, but its target or tags have {len(named)}; "
                    "the files of all sides are read in pairs, so name equally many"
                )
        streams = (_parallel(*paths, report=report) for paths in zip(sources, *others, strict=True))
    return _not_empty(chain.from_iterable(streams), sources, report)


def stream_texts(paths: Paths, report: TextReport) -> Iterator[Pair]:
    """Yield each line of some files as a pair whose two sides are the line. A blank line is a problem."""

    def rows(path: Path) -> Iterator[Row]:
        for number, line in enumerate(file_lines(path, report), start=1):
            yield Row(number, Pair(line, line) if isinstance(line, str) else line)

    streams = (_kept(rows(path), str(path), str(path), report) for path in _list(paths))
    return _not_empty(chain.from_iterable(streams), _list(paths), report)


def decode_pairs(
    file: io.BufferedReader, name: str, sides: Sides, *, format: str | None, report: TextReport
) -> Iterator[Pair]:
    """Yield the pairs of an open file or pipe; TSV by default. `name` is used in error messages."""
    found = FORMATS[format or "tsv"]
    rows = found.read(unpacked(file, name), name, sides, report)
    return _not_empty(_kept(rows, name, name, report, unit=found.unit), [name], report)


def _list(paths: Paths) -> list[Path]:
    return [paths] if isinstance(paths, Path) else list(paths)


def _not_empty(pairs: Iterator[Pair], names: Sequence[Path | str], report: TextReport) -> Iterator[Pair]:
    first = next(pairs, None)
    if first is None:
        reasons = "; ".join(report.sentences()) or "there are none"
        raise DataError(f"{', '.join(map(str, names))} gave no pair: {reasons}")
    yield first
    yield from pairs


def _format_of(path: Path, named: str | None) -> PairFormat:
    """Return the format that was named, or that of the file's name."""
    if named is not None:
        return FORMATS[named]
    name = path.name.lower()
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    for found in FORMATS.values():
        if name.endswith(found.endings):
            return found
    known = ", ".join(ending for found in FORMATS.values() for ending in found.endings)
    packed = ", ".join(ENDINGS)
    raise DataError(
        f"{path} is not a file of pairs by its name; name it {known} ({packed} may follow), or say what it is with format; "
        "or give two parallel files, source and target"
    )


def _one_file(path: Path, found: PairFormat, sides: Sides, report: TextReport) -> Iterator[Pair]:
    with opened(path) as stream:
        yield from _kept(found.read(stream, str(path), sides, report), str(path), str(path), report, unit=found.unit)


def _parallel(source: Path, target: Path, tags: Path | None = None, *, report: TextReport) -> Iterator[Pair]:
    rows = _aligned(source, target, report)
    if tags is not None:
        rows = _with_tags(rows, tags, report)
    return _kept(rows, str(source), str(target), report)


def _aligned(source: Path, target: Path, report: TextReport) -> Iterator[Row]:
    """Yield the lines of two files in pairs. The lines that one has more than the other are problems."""
    sources, targets = file_lines(source, report), file_lines(target, report)
    for number, (one, other) in enumerate(zip_longest(sources, targets), start=1):
        if isinstance(one, str) and isinstance(other, str):
            yield Row(number, Pair(one, other))
        elif one is None or other is None:
            if not report.skip:
                raise _misaligned(source, target, number, sources if other is None else targets, more=other is None)
            text = other if one is None else one
            shorter = source if one is None else target
            sentence = f"has no counterpart, because {shorter} has only {counted(number - 1, 'line')}"
            beginning = text if isinstance(text, str) else ""
            file = str(target) if one is None else ""
            yield Row(number, TextProblem(NO_COUNTERPART, sentence, beginning, file=file))
        elif not isinstance(one, str):
            yield Row(number, one)
        elif not isinstance(other, str):
            yield Row(number, other._replace(file=str(target)))


def _misaligned(source: Path, target: Path, number: int, rest: Iterator[Line], *, more: bool) -> DataError:
    longer = number + sum(1 for _ in rest)
    counts = (longer, number - 1) if more else (number - 1, longer)
    return DataError(
        f"{source} has {counted(counts[0], 'line')} but {target} has {counts[1]}; line N of one must translate "
        "line N of the other, so find where they diverge"
    )


def _with_tags(rows: Iterator[Row], path: Path, report: TextReport) -> Iterator[Row]:
    """Yield the rows with sources like `the|DT dog|NN`; line N of the file has the tags of row N."""
    for number, (row, line) in enumerate(zip_longest(rows, file_lines(path, report)), start=1):
        found = row.found if row is not None else Pair("", "")
        if isinstance(found, Pair):
            found = line._replace(file=str(path)) if isinstance(line, TextProblem) else _tagged(found, line or "", path)
        yield Row(number, found)


def _tagged(pair: Pair, line: str, path: Path) -> Pair | TextProblem:
    words, tags = pair.source.split(), line.split()
    if len(words) != len(tags):
        sentence = f"has {counted(len(tags), 'tag')} for {counted(len(words), 'word')}; each word needs one tag"
        return TextProblem("wrong number of tags", sentence, line, file=str(path))
    return Pair(" ".join(map("|".join, zip(words, tags, strict=True))), pair.target)


def _kept(rows: Iterable[Row], source: str, target: str, report: TextReport, *, unit: str = "line") -> Iterator[Pair]:
    """Yield the pairs, mended. Problems are reported with the name of the file that has them."""
    for line, found in rows:
        if isinstance(found, Pair) and not _is_plain(found):
            found = _mended(found, target, report)
        if isinstance(found, Pair):
            yield found
        else:
            report.leave_out(found.file or source, line, found, unit=unit)


def _is_plain(pair: Pair) -> bool:
    """Whether there is nothing to mend, note or refuse. Quicker than the tests that follow, and true of nearly all texts."""
    source, target = pair.source, pair.target
    return (
        0 < len(source) <= MAX_LINE_CHARS
        and 0 < len(target) <= MAX_LINE_CHARS
        and source.isprintable()
        and target.isprintable()
        and "&" not in source
        and "&" not in target
        and not source.isspace()
        and not target.isspace()
    )


def _mended(pair: Pair, target: str, report: TextReport) -> Pair | TextProblem:
    """Return the pair with line breaks, separators and control characters replaced by spaces; or what is wrong with it."""
    pair = Pair(_mended_text(pair.source, report), _mended_text(pair.target, report))
    problem = _problem(pair.source, "source", pair.target)
    if problem is not None:
        return problem
    problem = _problem(pair.target, "target", pair.source)
    return pair if problem is None else problem._replace(file=target)


def _problem(text: str, side: str, other: str) -> TextProblem | None:
    if not text or text.isspace():
        return TextProblem(f"empty {side}", f"has an empty {side} side; remove that pair or fill it in", other)
    if "\0" in text:
        return TextProblem("NUL byte", f"has a NUL inside its {side}; remove it", text)
    return long_text(len(text), text) if len(text) > MAX_LINE_CHARS else None


def _mended_text(text: str, report: TextReport) -> str:
    if _ENTITY.search(text):
        report.mend(ENTITIES)
    for kind, pattern in ((LINE_BREAKS, _LINE_BREAK), (SEPARATORS, _SEPARATOR), (CONTROL, _CONTROL)):
        text, count = pattern.subn(" ", text)
        if count:
            report.mend(kind)
            text = text.strip(" ")
    return text
