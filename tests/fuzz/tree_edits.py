"""Edits of JSON and TOML trees, rendered with raw values in the edited places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from random import Random
from typing import Any

from regard.toml import dump_toml
from tests.fuzz.odd_values import JSON_VALUES, NAMES, RARE, TOML_VALUES

Edit = dict[str, Any]
Path = list[Any]  # keys and indices from the root
_VALUE = re.compile('"@@value:([^@]*)@@"')
_TWICE = re.compile('"@@twice:([^@]*)@@"')
_RAW_TWICE = re.compile("@@twice:([^@]*)@@")
ACTIONS = ["set"] * 12 + ["delete"] * 3 + ["rename", "rename", "twice", "swap", "add", "add"]


def draw_edit(random: Random, tree: Any, values: Iterable[str], keys: list[str]) -> Edit:
    """Return a random edit of the tree; `keys` are names to add."""
    path = _draw_path(random, tree)
    action = random.choice(ACTIONS) if path else "set"
    names = list(values)
    value = random.choice(names)
    if value in RARE and random.random() < 0.8:
        value = random.choice([name for name in names if name not in RARE])
    edit: Edit = {"action": action, "path": path}
    if action in ("set", "add"):
        edit["value"] = value
    if action == "rename":
        edit["name"] = random.choice(NAMES)
    if action == "add":
        edit["name"] = random.choice([*NAMES, *keys, *keys])
    if action == "swap":
        edit["other"] = _draw_path(random, tree)
    return edit


def _draw_path(random: Random, tree: Any) -> Path:
    path: Path = []
    while isinstance(tree, dict | list) and tree and not (path and random.random() < 0.25):
        key = random.choice(list(tree)) if isinstance(tree, dict) else random.randrange(len(tree))
        path.append(key)
        tree = tree[key]
    return path if random.random() < 0.98 else []


def apply_edit(tree: Any, edit: Edit) -> Any:
    """Return the edited tree; places that an earlier edit removed are skipped."""
    path, action = edit["path"], edit["action"]
    if not path:
        return f"@@value:{edit['value']}@@"
    parent, key = _parent(tree, path), path[-1]
    if parent is None or not _has(parent, key):
        return tree
    if action == "set":
        parent[key] = f"@@value:{edit['value']}@@"
    elif action == "delete":
        del parent[key]
    elif action == "rename" and isinstance(parent, dict):
        parent[edit["name"]] = parent.pop(key)
    elif action == "add":
        container = parent[key] if isinstance(parent[key], dict) else parent
        if isinstance(container, dict):
            container[edit["name"]] = f"@@value:{edit['value']}@@"
    elif action == "twice":
        if isinstance(parent, dict):
            parent[f"@@twice:{key}@@"] = parent[key]
        else:
            parent.append(parent[key])
    elif action == "swap":
        other, name = _parent(tree, edit["other"]), edit["other"][-1] if edit["other"] else None
        nested = edit["other"][: len(path)] == path or path[: len(edit["other"])] == edit["other"]
        if other is not None and _has(other, name) and not nested:
            parent[key], other[name] = other[name], parent[key]
    return tree


def _parent(tree: Any, path: Path) -> Any:
    for key in path[:-1]:
        if not _has(tree, key):
            return None
        tree = tree[key]
    return tree if path and isinstance(tree, dict | list) else None


def _has(tree: Any, key: Any) -> bool:
    if isinstance(tree, dict):
        return key in tree
    return isinstance(tree, list) and isinstance(key, int) and key < len(tree)


def as_json(tree: Any, *, indent: int | None = 1) -> str:
    """Render the tree as JSON with raw values."""
    text = json.dumps(tree, ensure_ascii=False, indent=indent)
    text = _TWICE.sub(lambda found: json.dumps(found[1]), text)
    return _VALUE.sub(lambda found: JSON_VALUES[found[1]], text)


def as_toml(tree: Any) -> str:
    """Render the tree as TOML with raw values."""
    text = dump_toml(tree) if isinstance(tree, dict) else str(tree)
    text = _RAW_TWICE.sub(lambda found: found[1], _TWICE.sub(lambda found: found[1], text))
    return _VALUE.sub(lambda found: TOML_VALUES[found[1]], text)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
