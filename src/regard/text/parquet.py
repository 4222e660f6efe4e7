"""Pairs in two columns of a Parquet file, or in a column `translation` that has both languages."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from regard.errors import DataError, require
from regard.text.pair import Pair, Row, TextProblem
from regard.text.table_files import SOURCE_AND_TARGET, Sides
from regard.text.text_report import TextReport

ROWS = 1024  # read at a time
MAX_GROUP = 2**32  # bytes of one group of rows, unpacked
MAX_BATCH = 2**28  # bytes of a column in the rows that are read at a time
TRANSLATION = "translation"


def read_parquet(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport) -> Iterator[Row]:
    """Yield one row per row of the table."""
    arrow, parquet = require("pyarrow", extra="parquet"), require("pyarrow.parquet", extra="parquet")
    if not stream.seekable():
        raise DataError(
            f"{name} is Parquet, which is compressed inside; give the file itself, without gzip, xz, zstd or a pipe"
        )
    try:
        table = parquet.ParquetFile(stream)
        nested, columns = _columns(table.schema_arrow, sides, name, arrow)
        _refuse_large(table.metadata, name)
        # A text that is stored once for many rows stays one text, until its size in all of them is known.
        shared = [f"{TRANSLATION}.{column}" if nested else column for column in columns]
        with parquet.ParquetFile(stream, read_dictionary=shared) as file:
            number = 0
            for batch in file.iter_batches(batch_size=ROWS, columns=shared):
                texts = [_texts(batch, column, nested, arrow, name) for column in columns]
                for one, other in zip(*texts, strict=True):
                    number += 1
                    yield Row(number, _pair(one, other))
    except (arrow.ArrowException, OSError, ValueError, LookupError, MemoryError) as error:
        problem = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DataError(f"{name} cannot be read as Parquet ({problem}); write the file again") from error
    if not number:
        raise DataError(f"{name} has no rows")


def _pair(one: bytes | None, other: bytes | None) -> Pair | TextProblem:
    try:
        return Pair((one or b"").decode(), (other or b"").decode())
    except UnicodeDecodeError:
        text = (one or b"")[:400].decode(errors="backslashreplace")
        return TextProblem("not UTF-8", "is not UTF-8; write the file again from text in UTF-8", text)


def _texts(batch: Any, column: str, nested: bool, arrow: Any, name: str) -> list[bytes | None]:
    """Return a column of a batch as bytes, because a damaged file may hold text that is not UTF-8."""
    compute = require("pyarrow.compute", extra="parquet")
    values = batch.column(TRANSLATION).field(column) if nested else batch.column(column)
    distinct = values.dictionary.cast(arrow.large_binary())
    size = compute.sum(compute.take(compute.binary_length(distinct), values.indices)).as_py() or 0
    if size > MAX_BATCH:
        raise DataError(
            f"{name} has {len(values):,} rows with {size:,} bytes of text, more than {MAX_BATCH:,}; split long texts"
        )
    texts: list[bytes | None] = compute.take(distinct, values.indices).to_pylist()
    if nested:
        # A missing translation has no texts, whatever its fields hold.
        valid = batch.column(TRANSLATION).is_valid().to_pylist()
        texts = [text if there else None for text, there in zip(texts, valid, strict=True)]
    return texts


def _columns(schema: Any, sides: Sides, name: str, arrow: Any) -> tuple[bool, list[str]]:
    """Return whether the texts are fields of the column `translation`, and the names of columns or fields."""
    top = {one.name: one.type for one in schema}
    inner = {}
    if TRANSLATION in top and arrow.types.is_struct(top[TRANSLATION]):
        inner = {one.name: one.type for one in top[TRANSLATION]}
    named = sides.named() if sides.columns is not None or not top.keys() >= set(SOURCE_AND_TARGET) else None
    wanted = list(named or SOURCE_AND_TARGET)
    nested = not top.keys() >= set(wanted) and inner.keys() >= set(wanted)
    types = inner if nested else top
    for column in wanted:
        if column not in types:
            known = ", ".join(map(repr, [*(one for one in top if one != TRANSLATION or not inner), *inner][:24]))
            raise DataError(f"{name} has no column {column!r}; name the two columns with columns (it has {known})")
        kind = types[column]
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
        if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind)):
            raise DataError(f"the column {column!r} of {name} is of type {kind}, not text; name another one")
    return nested, wanted


def _refuse_large(metadata: Any, name: str) -> None:
    # The sizes of single columns are not asked for: with damaged statistics that ends the process.
    size = max((metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)), default=0)
    if size > MAX_GROUP:
        raise DataError(f"{name} has a group of rows of {size:,} bytes, more than {MAX_GROUP:,}; write smaller groups")
