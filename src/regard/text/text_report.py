"""What reading text leaves out and mends, counted and listed: for the log, the card, and the file `left-out.tsv`.

Text with a problem is refused, or left out if `skip` is given. Small damage that has one obvious repair is mended in both
cases, and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import BinaryIO

from regard.errors import DataError
from regard.messages import counted, printable
from regard.text.pair import TextProblem

LEFT_OUT = "left-out.tsv"  # the name of the list in a run folder or a store
HEADER = b"file\tline\treason\ttext\n"
SHOWN = 80  # characters of a text in the list
IN_MEMORY = 2**24  # bytes of the list; a longer one is on disk
MAX_REASONS = 6  # in a sentence

WINDOWS, BOM = "Windows line endings", "byte order marks"
LINE_BREAKS, SEPARATORS = "texts with line breaks", "texts with U+2028 or U+2029"
CONTROL, MARKUP = "texts with control characters", "texts with inline codes"
NOT_XML = "blocks of XML with control characters"
NO_COUNTERPART = "no counterpart"  # the reason for lines that only one of two parallel files has
ENTITIES = "texts with HTML entities, kept as they are"


class TextReport:
    """What was left out and mended. Without `skip` a problem raises DataError; `advice` is the end of its sentence."""

    def __init__(self, *, skip: bool = False, advice: str = "") -> None:
        self.skip, self.advice = skip, advice
        self.left_out: Counter[str] = Counter()  # by reason
        self.mended: Counter[str] = Counter()  # by kind
        self._list: BinaryIO = SpooledTemporaryFile(max_size=IN_MEMORY)  # type: ignore[assignment]  # noqa: SIM115

    def leave_out(self, file: str, line: int, problem: TextProblem, *, unit: str = "line") -> None:
        """Count and list a place that gives no pair. Raise DataError if problems are refused."""
        if not self.skip and not problem.expected:
            raise DataError(f"{unit} {line} of {file} {problem.sentence}{self.advice}")
        self.left_out[problem.reason] += 1
        columns = (file, str(line), problem.reason, problem.text[:SHOWN])
        self._list.write(("\t".join(map(_one_cell, columns)) + "\n").encode(errors="replace"))

    def mend(self, kind: str, count: int = 1) -> None:
        """Count what was mended."""
        self.mended[kind] += count

    @property
    def total(self) -> int:
        """How many places were left out."""
        return self.left_out.total()

    def blocks(self) -> Iterator[bytes]:
        """Yield the list as a file of tab-separated values, block by block: file, line, reason, beginning of the text."""
        yield HEADER
        self._list.seek(0)
        while block := self._list.read(2**20):
            yield block

    def summary(self) -> dict[str, dict[str, int]]:
        """Return the counts, for the file that describes a corpus; empty if nothing was left out or mended."""
        found = {"left_out": self.left_out, "mended": self.mended}
        return {name: dict(counts.most_common()) for name, counts in found.items() if counts}

    def sentences(self, *, listed: str = "") -> list[str]:
        """Return one sentence about what was left out, with the place of the list, and one about what was repaired."""
        return summary_sentences(self.left_out, self.mended, listed=listed)


def summary_sentences(left_out: Mapping[str, int], mended: Mapping[str, int], *, listed: str = "") -> list[str]:
    """Return one sentence about what was left out, by reason, and one about what was repaired, by kind."""
    sentences = []
    if left_out:
        place = f"; {listed} lists them" if listed else ""
        lines = counted(sum(left_out.values()), "line")
        sentences.append(f"{lines} of the text left out: {_counts(left_out)}{place}")
    if NO_COUNTERPART in left_out:
        sentences.append("parallel files differ in length, so pairs may be wrong from some line on; align them again")
    if mended:
        sentences.append(f"repaired or noted in the text: {_counts(mended)}")
    return sentences


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{name} ({count:,})" for name, count in Counter(counts).most_common(MAX_REASONS)]
    rest = len(counts) - len(shown)
    return ", ".join(shown) + (f", and {rest} other reasons" if rest else "")


def _one_cell(text: str) -> str:
    """Return text that fits into one cell of the list."""
    return printable(re.sub(r"[\t\n\u2028\u2029]", " ", text))
