"""What shards are read from and written as: lines of text, or rows of Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from regard.errors import ConfigError, DataError, require
from regard.text.corpus import stream_lines

Texts = Sequence[str | None]  # None: a row of Parquet without a value
TRANSLATION = "translation"  # the column of our own


class Chunk(Protocol):
    """The text of one shard."""

    def texts(self) -> Texts:
        """What to translate."""

    def content(self, translations: Texts) -> bytes:
        """The finished shard as a file."""


class Format(Protocol):
    """A kind of file."""

    suffix: str

    def count(self, path: Path) -> int:
        """How many lines a file has; raises DataError if it is not all good."""

    def chunks(self, path: Path, size: int) -> Iterator[Chunk]:
        """A file in chunks of so many lines; only the last may have fewer."""


def pick_format(paths: Sequence[Path], column: str) -> Format:
    """What the files are, by their names."""
    tables = [path for path in paths if path.suffix.lower() == ".parquet"]
    if not tables:
        return TextFormat()
    if len(tables) < len(paths):
        other = next(path for path in paths if path not in tables)
        raise DataError(f"{tables[0]} is Parquet and {other} is not; translate them one kind at a time")
    return ParquetFormat(column)


@dataclass(frozen=True)
class TextChunk:
    """Lines."""

    lines: list[str]

    def texts(self) -> Texts:
        return self.lines

    def content(self, translations: Texts) -> bytes:
        return "".join(f"{text}\n" for text in translations).encode()


class TextFormat:
    """One sentence a line, plain or gzip."""

    suffix = ".txt"

    def count(self, path: Path) -> int:
        return sum(1 for _ in stream_lines(path))

    def chunks(self, path: Path, size: int) -> Iterator[Chunk]:
        lines = stream_lines(path)
        while chunk := list(islice(lines, size)):
            yield TextChunk(chunk)


@dataclass(frozen=True)
class TableChunk:
    """Rows with all their columns, of which one is translated."""

    table: Any
    column: str

    def texts(self) -> Texts:
        texts: list[str | None] = self.table[self.column].to_pylist()
        return texts

    def content(self, translations: Texts) -> bytes:
        arrow = require("pyarrow", extra="ray")
        file = arrow.BufferOutputStream()
        written = self.table.append_column(TRANSLATION, arrow.array(translations, arrow.string()))
        require("pyarrow.parquet", extra="ray").write_table(written, file)
        return bytes(file.getvalue())


class ParquetFormat:
    """A column of sentences; the other columns are kept, and the translation is one more."""

    suffix = ".parquet"

    def __init__(self, column: str) -> None:
        self.column = column

    def count(self, path: Path) -> int:
        return sum(len(chunk.texts()) for chunk in self.chunks(path, 65_536))

    def chunks(self, path: Path, size: int) -> Iterator[Chunk]:
        arrow = require("pyarrow", extra="ray")
        try:
            with require("pyarrow.parquet", extra="ray").ParquetFile(path) as file:
                self._check(path, file.schema_arrow, arrow)
                waiting = file.schema_arrow.empty_table()  # row groups end where they like; our shards do not
                for batch in file.iter_batches(batch_size=size):
                    rows = arrow.Table.from_batches([batch])
                    rows.validate(full=True)  # that strings are UTF-8, among others
                    waiting = arrow.concat_tables([waiting, rows])
                    while waiting.num_rows >= size:
                        yield TableChunk(waiting.slice(0, size), self.column)
                        waiting = waiting.slice(size)
                if waiting.num_rows:
                    yield TableChunk(waiting, self.column)
        except (arrow.ArrowException, OSError) as error:
            problem = str(error).splitlines()[0]
            raise DataError(f"{path} cannot be read as Parquet ({problem}); write it anew") from error

    def _check(self, path: Path, schema: Any, arrow: Any) -> None:
        if self.column not in schema.names:
            names = ", ".join(schema.names)
            raise ConfigError(f"{path} has no column {self.column!r}; name one with --column ({names})")
        kind = schema.field(self.column).type
        if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind)):
            raise ConfigError(f"column {self.column!r} of {path} holds {kind}, not text; name another with --column")
        if TRANSLATION in schema.names:
            raise DataError(f"{path} has a column {TRANSLATION!r}, which is where ours goes; rename it first")
