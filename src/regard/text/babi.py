"""The files of the bAbI tasks (Weston et al. 2015), as stories that end in a question, and answers.

A file holds numbered lines, and a story begins where the number is 1. A line with tabs is a question, its answer, and the
numbers of the sentences that support it, which are not used. An example is a question with all sentences before it, as one
line ("sentence | sentence | question"). There is no dev set; every tenth story of the training file serves as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from regard.errors import DataError
from regard.text.lines import stream_lines
from regard.text.pair import Pair
from regard.text.segmenter import SEPARATOR, join_sentences

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
HELD_OUT = 10  # one of so many stories of a training file is for validation
_FILE = re.compile(r"qa(\d+)_.*_(train|test)\.txt(\.gz)?")


def find_babi(name: str, part: Part, folders: Sequence[Path]) -> list[Path]:
    """Return the files of a task, named as in "en-10k/qa1", or those of all tasks in a folder, in the order of the tasks."""
    split = "test" if part == "test" else "train"
    for folder in folders:
        place, task = folder / name, 0
        if (named := re.fullmatch(r"qa(\d+)", place.name)) and not place.is_dir():
            place, task = place.parent, int(named[1])
        if not place.is_dir():
            continue
        matches = [(found, path) for path in sorted(place.iterdir()) if (found := _FILE.fullmatch(path.name))]
        # A plain file is sorted before its compressed copy, which is then left out.
        files: dict[int, Path] = {}
        for found, path in matches:
            if found[2] == split and task in (0, int(found[1])):
                files.setdefault(int(found[1]), path)
        if files:
            return [files[number] for number in sorted(files)]
    return []


def stream_babi(paths: Sequence[Path], part: Part) -> Iterator[Pair]:
    """Yield the examples of some files: all of test files; those of training files that are for this part."""
    for path in paths:
        story = -1
        sentences: list[str] = []
        for number, line in enumerate(stream_lines(path), start=1):
            place, _, text = line.partition(" ")
            if not place.isdecimal() or not text.strip() or (number == 1 and place != "1"):
                raise DataError(
                    f"line {number} of {path} is not from a bAbI file; lines look like '1 Mary went home.', and questions "
                    "have an answer after a tab"
                )
            if place == "1":
                story, sentences = story + 1, []
            columns = [column.strip() for column in text.split("\t")]
            if SEPARATOR in text:
                raise DataError(f"line {number} of {path} holds {SEPARATOR!r}, which separates sentences; remove it")
            if len(columns) == 1:
                sentences.append(columns[0])
            elif part == "test" or (part == "valid") == (story % HELD_OUT == HELD_OUT - 1):
                if not columns[0] or not columns[1]:
                    raise DataError(f"line {number} of {path} has no question or no answer; fill it in or remove it")
                yield Pair(join_sentences([*sentences, columns[0]]), columns[1])
