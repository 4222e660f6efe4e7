"""The API reference: signatures, docstrings and fields of public names, read from the sources without importing them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import regard
from regard.errors import ConfigError
from regard.learn.sources import PACKAGE, read

Named = ast.FunctionDef | ast.ClassDef
Defined = Named | ast.Assign | ast.AnnAssign
WIDTH = 100  # characters of a signature on one line


class Module(NamedTuple):
    """A module of the package: its text and its syntax tree."""

    text: str
    tree: ast.Module


def reference_modules() -> list[str]:
    """Return the modules of the reference: `regard`, and those that docs/library.md names."""
    named = set(re.findall(r"\bregard(?:\.[a-z_]+)+", read("docs/library.md")))
    return ["regard", *sorted(name for name in named if _file(name) is not None)]


def reference_page(module: str) -> str:
    """Return the page of a module, as Markdown."""
    found = _module(module)
    parts = [f"# {module}", _docstring(found.tree)]
    names = (
        [name for name in regard.__all__ if name[0] != "_" and name != "nn"]
        if module == "regard"
        else _names(found.tree)
    )
    for name in names:
        parts += _entry(regard._MODULE_OF.get(name, "regard.errors") if module == "regard" else module, name)
    return "\n\n".join(part for part in parts if part) + "\n"


def _file(module: str) -> Path | None:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


@cache
def _module(name: str) -> Module:
    path = _file(name)
    if path is None:
        raise ConfigError(f"the reference finds no module {name}")
    text = path.read_text(encoding="utf-8")
    return Module(text, ast.parse(text))


def _names(tree: ast.Module) -> list[str]:
    """Return the public names of a module: `__all__`, or what it defines."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets
        ):
            return [str(one.value) for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
    return [node.name for node in tree.body if isinstance(node, Named) and not node.name.startswith("_")]


def _find(module: str, name: str) -> tuple[Module, Defined]:
    """Return the definition of a name, wherever it is imported from."""
    found = _module(module)
    for node in found.tree.body:
        if isinstance(node, Named) and node.name == name:
            return found, node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if isinstance(node, Defined) and name in map(_text, targets):
            return found, node
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _find(node.module, alias.name)
    if module == "regard.errors":  # `regard` imports errors and warnings itself
        return _find("regard.messages", name)
    raise ConfigError(f"the reference finds no {name} in {module}")


def _entry(module: str, name: str) -> Iterator[str]:
    source, node = _find(module, name)
    yield f"## `{name}`"
    if not isinstance(node, Named):
        yield _code(_text(node))
        return
    yield _code(_signature(node, name))
    yield _docstring(node)
    if isinstance(node, ast.ClassDef):
        yield _fields(source, node)
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and ast.get_docstring(method):
                yield f"### `{name}.{method.name}`"
                is_property = any(isinstance(one, ast.Name) and "property" in one.id for one in method.decorator_list)
                yield _code(
                    f"{method.name}: {_text(method.returns)}" if is_property else _signature(method, method.name)
                )
                yield _docstring(method)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _text(node: ast.AST | None) -> str:
    return "" if node is None else ast.unparse(node)


def _signature(node: Named, name: str) -> str:
    """Return how a function or a class is called, on one line if there is room."""
    if isinstance(node, ast.ClassDef):
        init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        if init is None:
            bases = ", ".join(_text(one) for one in node.bases)
            return f"class {name}({bases})" if bases else f"class {name}"
        arguments, returns, name = _arguments(init.args), "", f"class {name}"
    else:
        arguments, returns = _arguments(node.args), f" -> {_text(node.returns)}" if node.returns else ""
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= WIDTH:
        return line
    inside = "".join(f"    {one},\n" for one in arguments)
    return f"{name}(\n{inside}){returns}"


def _arguments(given: ast.arguments) -> list[str]:
    """Return the arguments without self, each with its type and default."""
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    found = [
        _argument(one, default) for one, default in zip(plain, defaults, strict=True) if one.arg not in ("self", "cls")
    ]
    if given.vararg:
        found.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        found.append("*")
    found += [_argument(one, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*found, f"**{_argument(given.kwarg, None)}"] if given.kwarg else found


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {_text(one.annotation)}" if one.annotation else ""
    return f"{one.arg}{annotation}" + (
        "" if default is None else f" = {_text(default)}" if annotation else f"={_text(default)}"
    )


def _fields(source: Module, node: ast.ClassDef) -> str:
    """Return the fields of a class with the comments behind them."""
    lines, rows = source.text.splitlines(), []
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            comment = lines[(one.end_lineno or one.lineno) - 1][one.end_col_offset or 0 :].strip()
            text = f"{one.target.id}: {_text(one.annotation)}" + (f" = {_text(one.value)}" if one.value else "")
            rows.append(f"- `{text}`" + (f" {comment.lstrip('# ')}" if comment.startswith("#") else ""))
    return "\n".join(rows)


def _docstring(node: ast.Module | Named) -> str:
    """Return a docstring as Markdown; examples of a session become code."""
    text = ast.get_docstring(node) or ""
    return re.sub(r"(?:^>>> .*\n?)(?:^.+\n?)*", lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text, flags=re.M)
