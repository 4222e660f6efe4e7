"""Tables of chapters, made from our results: columns of a Markdown table, or of a list in JSON."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from regard.errors import ConfigError
from regard.learn.sources import read


def results_table(path: str, content: str) -> str:
    """Return a table in Markdown.

    `content` is TOML: `columns` are headings by column, `list` is the name of a list in JSON, and `cells` are texts of cells
    in another language by their English ones.
    """
    try:
        options = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the options of the results {path} are not TOML: {error}") from None
    columns: dict[str, str] = options["columns"]
    translated: dict[str, str] = options.get("cells", {})
    rows = json.loads(read(path))[options["list"]] if path.endswith(".json") else markdown_rows(read(path))
    missing = [name for name in columns if name not in rows[0]]
    if missing:
        raise ConfigError(f"{path} has no column {missing[0]!r}; there are {', '.join(map(repr, rows[0]))}")
    cells = [[_shown(row[name]) for name in columns] for row in rows]
    unused = translated.keys() - {cell for row in cells for cell in row}
    if unused:
        raise ConfigError(f"{path} has no cell {unused.pop()!r}")
    cells = [[translated.get(cell, cell) for cell in row] for row in cells]
    numeric = [all(re.fullmatch(r"[-−\d.,]*( [kM])?", row[at]) for row in cells) for at in range(len(columns))]
    lines = [list(columns.values()), ["---:" if one else "---" for one in numeric], *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def markdown_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of the first table of a Markdown text."""
    found = re.search(r"(?:^\|.*\n)+", text, flags=re.M)
    if found is None:
        raise ConfigError("the results have no table")
    heading, _, *rows = (
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in found[0].splitlines()
    )
    return [dict(zip(heading, row, strict=True)) for row in rows]


def _shown(value: Any) -> str:
    return "" if value is None else str(value)
