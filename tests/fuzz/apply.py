"""Mutations applied to a folder on disk."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fuzz import binary_edits, seal
from tests.fuzz.bases import Base
from tests.fuzz.mutate import Case, Mutation
from tests.fuzz.odd_values import LOG_BODIES
from tests.fuzz.tree_edits import apply_edit, as_json, as_toml, encoded

REPEATED_LINES = 5_000


def make_case(case: Case, base: Base, folder: Path, outside: Path) -> None:
    """Write the folder of the case; links point to the copy of the base in `outside`."""
    base.write(folder)
    content = dict(base.files)
    for file in dict.fromkeys(one["file"] for one in case.mutations if one["kind"] in ("tree", "log")):
        edits = [one for one in case.mutations if one["file"] == file]
        is_log = file == "log.jsonl"
        content[file] = _edited_log(content[file], edits, case) if is_log else _edited(base, file, edits)
    for mutation in case.mutations:
        if edit := CONTENT.get(mutation["kind"]):
            content[mutation["file"]] = edit(content[mutation["file"]], mutation)
    for name, changed in content.items():
        if changed is not base.files[name]:
            (folder / name).write_bytes(changed)
    for mutation in case.mutations:
        if change := PLACES.get(mutation["kind"]):
            path = folder / mutation["file"]
            if any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(folder)):
                continue  # an earlier mutation replaced its folder by a link
            with suppress(OSError):  # or by a file
                change(path, mutation, outside / mutation["file"])
    if case.sealed or any(one["kind"] == "manifest" for one in case.mutations):
        _seal(case, folder)


def _seal(case: Case, folder: Path) -> None:
    edits = [one for one in case.mutations if one["kind"] == "manifest"]
    for path in sorted(folder.glob("**/manifest.json"), key=lambda path: -len(path.parts)):
        own = [one["edit"] for one in edits if folder / one["file"] == path]
        seal.seal_manifest(path.parent, _each(own) if own else None)
    seal.seal_store(folder)


def _each(edits: list[Any]) -> Callable[[Any], Any]:
    def edit(files: Any) -> Any:
        for one in edits:
            files = apply_edit(files, one)
        return files

    return edit


def _edited(base: Base, file: str, edits: list[Mutation]) -> bytes:
    tree = base.tree(file)
    for one in edits:
        if one["kind"] == "tree":
            tree = apply_edit(tree, one["edit"])
    return encoded(as_toml(tree) + "\n" if file.endswith(".toml") else as_json(tree) + "\n")


def _edited_log(content: bytes, edits: list[Mutation], case: Case) -> bytes:
    lines = content.splitlines(keepends=True)
    for one in edits:
        if one["kind"] != "log":
            continue
        at = one["line"] % len(lines)
        match one["action"]:
            case "tree":
                event = json.loads(lines[at]) if lines[at] and lines[at] in content else {}
                event.pop("crc", None)
                body = as_json(apply_edit(event, one["edit"]), indent=None)
                lines[at] = seal.log_line(body, right=case.sealed)
            case "body":
                lines[at] = seal.log_line(LOG_BODIES[one["body"]], right=case.sealed)
            case "repeat":
                lines[at : at + 1] = [lines[at]] * REPEATED_LINES
            case "delete":
                lines[at] = b""
    return b"".join(lines)


def _array(content: bytes, mutation: Mutation) -> bytes:
    return binary_edits.apply_array(content, mutation, 8 if mutation["file"].endswith(".offsets") else 2)


CONTENT: dict[str, Callable[[bytes, Mutation], bytes]] = {
    "tensors": binary_edits.apply_tensors,
    "proto": binary_edits.apply_proto,
    "array": _array,
    "bytes": binary_edits.apply_bytes,
}


# Other kinds of files


def _clear(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _link(path: Path, mutation: Mutation, outside: Path) -> None:
    was_folder = path.is_dir()
    _clear(path)
    kind = mutation["to"]
    if kind == "outside" and not outside.exists():
        outside = outside.parents[len(Path(mutation["file"]).parts) - 1] / ("folder" if was_folder else "canary.txt")
    targets = {
        "outside": str(outside),
        "loop": path.name,
        "dangling": str(outside.with_name("new-file")),
        "parent": "..",
        "self": ".",
        "device": "/dev/zero",
    }
    path.symlink_to(targets[kind])


def _hard_link(path: Path, mutation: Mutation, outside: Path) -> None:
    source = outside.parents[len(Path(mutation["file"]).parts) - 1] / "hard" / path.name
    if not path.is_dir() and source.exists():
        _clear(path)
        os.link(source, path)


def _fifo(path: Path, mutation: Mutation, outside: Path) -> None:
    _clear(path)
    os.mkfifo(path)


def _socket(path: Path, mutation: Mutation, outside: Path) -> None:
    _clear(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(path) if len(str(path)) < 100 else str(path))


def _folder(path: Path, mutation: Mutation, outside: Path) -> None:
    _clear(path)
    path.mkdir()
    (path / "inner.txt").write_text("x")


def _file(path: Path, mutation: Mutation, outside: Path) -> None:
    _clear(path)
    path.write_text("x")


def _remove(path: Path, mutation: Mutation, outside: Path) -> None:
    _clear(path)


def _sparse(path: Path, mutation: Mutation, outside: Path) -> None:
    _clear(path)
    path.touch()
    os.truncate(path, mutation["size"])


PLACES: dict[str, Callable[[Path, Mutation, Path], None]] = {
    "link": _link,
    "hard-link": _hard_link,
    "fifo": _fifo,
    "socket": _socket,
    "folder": _folder,
    "file": _file,
    "remove": _remove,
    "sparse": _sparse,
    "new-file": _file,
}
