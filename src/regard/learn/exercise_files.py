"""The exercises: their tasks, which are sections of the page pages/en/exercises.md, and the files that a learner fills."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, did_you_mean
from regard.learn.render import Block, split_blocks
from regard.learn.sources import PAGES, excerpt

PAGE = "exercises"
STUB = re.compile(r"include src/regard/learn/exercises/(\w+)/stub\.py \*")
WIDTH = 100  # of the task in a learner's file


class Exercise(NamedTuple):
    """An exercise and the section of the page that is its task."""

    name: str
    title: str
    blocks: list[Block]

    @property
    def stub(self) -> str:
        return f"src/regard/learn/exercises/{self.name}/stub.py"


@cache
def exercises() -> dict[str, Exercise]:
    """Return the exercises in the order of the page."""
    found: dict[str, Exercise] = {}
    section: list[Block] = []
    for block in split_blocks((PAGES / "en" / f"{PAGE}.md").read_text(encoding="utf-8")):
        if block.kind == "h2":
            section = []
        section.append(block)
        included = STUB.fullmatch(block.tokens[0].info.strip()) if block.kind == "fence" else None
        if included is not None:
            found[included[1]] = Exercise(included[1], section[0].text, section)
    return found


def find_exercise(name: str) -> Exercise:
    """Return an exercise. Raise ConfigError, with the nearest name, if there is none of this name."""
    if name not in exercises():
        raise ConfigError(f"there is no exercise {name!r}; {did_you_mean(name, exercises())}")
    return exercises()[name]


def stub_text(exercise: Exercise, file: str) -> str:
    """Return the file that a learner starts from: the task as its docstring, and what to fill."""
    parts = [exercise.title, *(_plain(block) for block in exercise.blocks[1:])]
    parts.append(f"Check it with:  regard learn check {exercise.name} --folder {Path(file).parent}")
    task = "\n\n".join(part for part in parts if part)
    mark = 'r"""' if "\\" in task else '"""'
    return f'{mark}{task}\n"""\n\n{excerpt(exercise.stub, "*").text}'


def _plain(block: Block) -> str:
    """Return a block of the task as text. Hints stay on the page."""
    if block.kind == "fence":
        return textwrap.indent(block.tokens[0].content.rstrip(), "    ") if block.directive == "formula" else ""
    if block.kind != "bullet_list":
        return textwrap.fill(_without_marks(block.text), WIDTH)
    items = [token.content for token in block.tokens if token.type == "inline"]
    return "\n".join(
        textwrap.fill(_without_marks(one), WIDTH, initial_indent="- ", subsequent_indent="  ") for one in items
    )


def _without_marks(text: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("$", "")


def write_stubs(names: Sequence[str], folder: Path) -> tuple[list[Path], list[Path]]:
    """Write the files that exercises start from. Return those written, and those that were there and are kept."""
    written, kept = [], []
    for exercise in map(find_exercise, names):
        path = folder / f"{exercise.name}.py"
        if path.exists():
            kept.append(path)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(stub_text(exercise, str(path)), encoding="utf-8")
        written.append(path)
    return written, kept
