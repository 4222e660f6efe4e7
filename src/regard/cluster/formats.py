"""File formats of shards: lines of text, or rows of Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from regard.errors import ConfigError, DataError, require
from regard.text.lines import stream_lines

Texts = Sequence[str | None]  # None: a null value in a Parquet row
TRANSLATION = "translation"  # name of the output column


class ShardRows(Protocol):
    """The rows of one shard."""

    def texts(self) -> Texts:
        """Return the texts to translate."""

    def content(self, translations: Texts) -> bytes:
        """Return the content of the output file."""


class FileFormat(Protocol):
    """How files are read and how shards are written."""

    suffix: str

    def count(self, path: Path) -> int:
        """Return the number of lines; raise DataError if any of them is invalid."""

    def split(self, path: Path, size: int) -> Iterator[ShardRows]:
        """Yield `size` lines at a time; only the last group may have fewer."""


def pick_format(paths: Sequence[Path], column: str) -> FileFormat:
    """Return the format of the files, judging by their names."""
    tables = [path for path in paths if path.suffix.lower() == ".parquet"]
    if not tables:
        return TextFormat()
    if len(tables) < len(paths):
        other = next(path for path in paths if path not in tables)
        raise DataError(f"{tables[0]} is Parquet and {other} is not; translate one format at a time")
    return ParquetFormat(column)


@dataclass(frozen=True)
class TextRows:
    """Lines of text."""

    lines: list[str]

    def texts(self) -> Texts:
        return self.lines

    def content(self, translations: Texts) -> bytes:
        return "".join(f"{text}\n" for text in translations).encode()


class TextFormat:
    """One sentence per line, plain or compressed."""

    suffix = ".txt"

    def count(self, path: Path) -> int:
        return sum(1 for _ in stream_lines(path))

    def split(self, path: Path, size: int) -> Iterator[ShardRows]:
        lines = stream_lines(path)
        while some := list(islice(lines, size)):
            yield TextRows(some)


@dataclass(frozen=True)
class TableRows:
    """Rows with all their columns, one of which is translated."""

    table: Any
    column: str

    def texts(self) -> Texts:
        texts: list[str | None] = self.table[self.column].to_pylist()
        return texts

    def content(self, translations: Texts) -> bytes:
        arrow = require("pyarrow", extra="ray")
        file = arrow.BufferOutputStream()
        translated = self.table.append_column(TRANSLATION, arrow.array(translations, arrow.string()))
        require("pyarrow.parquet", extra="ray").write_table(translated, file)
        return bytes(file.getvalue())


class ParquetFormat:
    """A column of sentences. The other columns are kept, and the translation is added as a new column."""

    suffix = ".parquet"

    def __init__(self, column: str) -> None:
        self.column = column

    def count(self, path: Path) -> int:
        return sum(len(rows.texts()) for rows in self.split(path, 65_536))

    def split(self, path: Path, size: int) -> Iterator[ShardRows]:
        arrow = require("pyarrow", extra="ray")
        try:
            with require("pyarrow.parquet", extra="ray").ParquetFile(path) as file:
                self._check(path, file.schema_arrow, arrow)
                # Row groups do not end where shards do, so rows are buffered.
                buffered = file.schema_arrow.empty_table()
                for batch in file.iter_batches(batch_size=size):
                    rows = arrow.Table.from_batches([batch])
                    rows.validate(full=True)  # for example that strings are UTF-8
                    buffered = arrow.concat_tables([buffered, rows])
                    while buffered.num_rows >= size:
                        yield TableRows(buffered.slice(0, size), self.column)
                        buffered = buffered.slice(size)
                if buffered.num_rows:
                    yield TableRows(buffered, self.column)
        except (arrow.ArrowException, OSError) as error:
            problem = str(error).splitlines()[0]
            raise DataError(f"{path} cannot be read as Parquet ({problem}); write the file again") from error

    def _check(self, path: Path, schema: Any, arrow: Any) -> None:
        if self.column not in schema.names:
            names = ", ".join(schema.names)
            raise ConfigError(f"{path} has no column {self.column!r}; choose one with --column ({names})")
        kind = schema.field(self.column).type
        if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind)):
            raise ConfigError(
                f"column {self.column!r} of {path} has type {kind}, not string; choose another with --column"
            )
        if TRANSLATION in schema.names:
            raise DataError(
                f"{path} already has a column {TRANSLATION!r}, the name of the output column; rename it first"
            )
