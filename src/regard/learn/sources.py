"""Where the text of the site is: chapters in the package, guides and results in the repository or in a wheel."""

from __future__ import annotations

import ast
import textwrap
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import regard
from regard.errors import ConfigError

PACKAGE = Path(regard.__file__).parent
PAGES = PACKAGE / "learn" / "pages"
ASSETS = PACKAGE / "learn" / "assets"
COPIES = PACKAGE / "learn" / "repository"  # in a wheel: docs, examples, results and other files that the pages link to


@cache
def repository() -> Path:
    """Return the folder with docs/ and examples/: the repository, or the copies of a wheel."""
    for folder in (PACKAGE.parent.parent, COPIES):
        if (folder / "docs").is_dir() and (folder / "examples" / "paper.py").is_file():
            return folder
    raise ConfigError(
        "the guides and examples of the site are not installed; install regard from a wheel or its repository"
    )


def find(path: str) -> Path | None:
    """Return a file or folder of the repository, or None. Sources of the package are there in a wheel as well."""
    clean = PurePosixPath(path)
    if clean.is_absolute() or ".." in clean.parts:
        return None
    inside = PACKAGE.joinpath(*clean.parts[2:]) if clean.parts[:2] == ("src", "regard") else repository() / clean
    return inside if inside.exists() else None


def read(path: str) -> str:
    """Return the text of a file of the repository."""
    found = find(path)
    if found is None or not found.is_file():
        raise ConfigError(f"there is no file {path}")
    return found.read_text(encoding="utf-8")


class Excerpt(NamedTuple):
    """Lines of a source file."""

    path: str
    first: int
    last: int
    text: str


def excerpt(path: str, name: str) -> Excerpt:
    """Return the lines of a function, a class or, as in Transformer.embed, a method. `*` is all behind the docstring."""
    text = read(path)
    module = ast.parse(text)
    found: ast.AST = module
    if name == "*":
        begin = module.body[1 if ast.get_docstring(module) else 0]
        return _lines(path, text, begin.lineno, text.count("\n"))
    for part in name.split("."):
        inside = [one for one in ast.iter_child_nodes(found) if getattr(one, "name", None) == part]
        if not inside:
            raise ConfigError(f"{path} has no {name}")
        found = inside[0]
    assert isinstance(found, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
    first = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    last = found.end_lineno or first
    return _lines(path, text, first, last)


def _lines(path: str, text: str, first: int, last: int) -> Excerpt:
    lines = text.splitlines()[first - 1 : last]
    return Excerpt(path, first, last, textwrap.dedent("\n".join(lines)) + "\n")
