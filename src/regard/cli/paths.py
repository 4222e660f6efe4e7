"""Paths that commands are given: runs that are still training, and files that would be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.cli.terminal import print_message
from regard.errors import ConfigError

BEGINNING = 1000  # bytes that are compared
# What the beginning of our pages, pictures of each kind, numbers of `regard probe`, and scripts for Slurm contains.
MARKS = {
    "html": b"default-src 'none'", "svg": b"<svg", "png": b"\x89PNG", "json": b'"probe": "', "sbatch": b"#SBATCH"
}  # fmt: skip
KINDS = {"html": "a page of regard", "json": "a result of regard probe", "sbatch": "a batch script for Slurm"}


def note_unfinished(runs: Sequence[Path]) -> None:
    """Print how far each of these runs is, unless it is finished."""
    from regard.run.finding import find_run

    for run in runs:
        if unfinished := find_run(run).unfinished():
            print_message(unfinished)


def refuse_to_replace(path: Path, kind: str, *, option: str = "--out") -> None:
    """Raise ConfigError if there is a file that a page, picture or result of this kind would replace, and it is not one."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file with {option}, such as {path / f'regard.{kind}'}")
    if not path.is_file():
        return
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    if beginning and MARKS[kind] not in beginning:
        what = KINDS.get(kind, f"a picture ({kind})")
        raise ConfigError(f"{path} is there already and is not {what}; name another file with {option}, or remove it")
