"""Chapters and exercises as Jupyter notebooks: text as Markdown, code that is included or run as cells, in one order."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from regard.errors import ConfigError, did_you_mean
from regard.learn.exercise_files import STUB, exercises
from regard.learn.numbers import with_numbers
from regard.learn.render import Block, split_blocks
from regard.learn.results_table import results_table
from regard.learn.sources import PAGES, excerpt

LINK = re.compile(r"\[([^]]*)\]\((?!https?:)[^)]*\)")  # to a page of the site, which a notebook does not have
FORMAT = (4, 5)  # of nbformat
# The first cell of a notebook whose code needs the folders examples/ or benchmarks/.
REPOSITORY = """import os
import sys

from regard.learn.sources import repository

os.chdir(repository())
sys.path.insert(0, "")"""


class NotebookCell(NamedTuple):
    """A cell: whether it is code, and its text."""

    code: bool
    text: str


def notebook_text(name: str) -> str:
    """Return the notebook of a chapter or of an exercise, as JSON."""
    path = PAGES / "en" / f"{name}.md"
    known = sorted(one.stem for one in (PAGES / "en").glob("*.md"))
    if name not in exercises() and name not in known:
        raise ConfigError(f"there is no chapter or exercise {name!r}; {did_you_mean(name, [*exercises(), *known])}")
    if name in exercises():
        cells = list(_cells(exercises()[name].blocks, _lines(PAGES / "en" / "exercises.md")))
    else:
        lines = _lines(path)
        cells = list(_cells(split_blocks("\n".join(lines)), lines))
    if any("from examples." in cell.text or "benchmarks/" in cell.text for cell in cells if cell.code):
        cells.insert(0, NotebookCell(True, REPOSITORY))
    return json.dumps(notebook(cells), ensure_ascii=False, indent=1) + "\n"


def notebook(cells: Sequence[NotebookCell]) -> dict[str, Any]:
    """Return cells in the format of Jupyter, which any of its programs opens."""
    made = []
    for number, cell in enumerate(cells):
        common = {"id": f"cell-{number}", "metadata": {}, "source": cell.text.splitlines(keepends=True)}
        code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
        made.append({**(code if cell.code else {"cell_type": "markdown"}), **common})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": FORMAT[0], "nbformat_minor": FORMAT[1]}


def _cells(blocks: Sequence[Block], lines: Sequence[str]) -> Iterator[NotebookCell]:
    """Return the cells of a page. Paragraphs between two code cells are one cell."""
    text: list[str] = []
    imported: set[str] = set()
    for block in blocks:
        code = list(_code(block, imported))
        if not code:
            text.append(_markdown(block, lines))
            continue
        if any(text):
            yield NotebookCell(False, "\n\n".join(one for one in text if one))
        text = []
        yield from (NotebookCell(True, one.rstrip()) for one in code)
    if any(text):
        yield NotebookCell(False, "\n\n".join(one for one in text if one))


def _code(block: Block, imported: set[str]) -> Iterator[str]:
    """Return the code cells of a block: what it needs of its file, itself, and the tests if it is an exercise."""
    if block.directive == "run":
        yield block.tokens[0].content
    if block.directive == "include":
        _, path, name = block.tokens[0].info.split()
        if name != "*" and path not in imported:
            # What the lines call; the cells behind define some of it anew.
            yield f"from {'.'.join(PurePosixPath(path.removeprefix('src/')).with_suffix('').parts)} import *"
        imported.add(path)
        yield excerpt(path, name).text
        stub = STUB.fullmatch(block.tokens[0].info.strip())
        if stub is not None:
            yield f'from regard.learn.check import check_here\n\ncheck_here("{stub[1]}", globals())'


def _markdown(block: Block, lines: Sequence[str]) -> str:
    """Return a block as Markdown of a notebook."""
    token = block.tokens[0]
    if block.directive == "output":
        return ""
    if block.directive in ("live", "drawing"):
        return "*(The page of `regard learn` has a figure here.)*"
    if block.directive == "results":
        return results_table(token.info.split()[1], token.content)
    if block.directive == "formula":
        return f"$$\n{token.content.strip()}\n$$"
    if block.directive == "hint":
        return f"<details><summary>Hint</summary>\n\n{html.escape(token.content.strip(), quote=False)}\n\n</details>"
    assert token.map is not None, token
    text = "\n".join(lines[token.map[0] : token.map[1]]).rstrip()
    return text if block.kind == "fence" else LINK.sub(r"\1", text)


def _lines(path: Path) -> list[str]:
    return with_numbers(path.read_text(encoding="utf-8"), path.name).splitlines()
