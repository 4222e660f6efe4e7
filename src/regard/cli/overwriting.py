"""Files that commands write where the user says: one that is something else is not replaced."""

from __future__ import annotations

from pathlib import Path

from regard.errors import ConfigError

BEGINNING = 1000  # bytes that are compared
# What the beginning of our pages, and of pictures of each kind, contains.
MARKS = {"html": b"default-src 'none'", "svg": b"<svg", "png": b"\x89PNG"}


def refuse_to_replace(path: Path, kind: str) -> None:
    """Raise ConfigError if there is a file that a page or picture of this kind would replace, and it is not one."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    if beginning and MARKS[kind] not in beginning:
        what = "a page of regard" if kind == "html" else f"a picture ({kind})"
        raise ConfigError(f"{path} is there already and is not {what}; name another file with --out, or remove it")
