"""Files of pairs with random damage: every line is kept or accounted for, and nothing but our own errors is raised."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.text.corpus import FORMATS, Pair, read_pairs
from regard.text.text_report import TextReport
from tests.text.test_pair_files import CONTENT, PACK

PAIRS = [Pair(f"the number {n}", f'die "Zahl" {n}') for n in range(30)]
BYTES = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\t",
    b'"',
    b"\\",
    b"<",
    b"&",
    b"\xff",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"",
    b"<tu>",
    b"{",
    b"#",
]


def damaged(content: bytes, generator: random.Random, count: int) -> bytes:
    """Return the content with a few bytes replaced, removed or inserted."""
    for _ in range(count):
        place, length = generator.randrange(len(content)), generator.choice([0, 1, 1, 8])
        content = content[:place] + generator.choice(BYTES) + content[place + length :]
    return content


@pytest.mark.parametrize("format", FORMATS)
def test_damage_raises_only_errors_that_explain_it(tmp_path: Path, format: str) -> None:
    generator, whole, read = random.Random(1), CONTENT[format](PAIRS), 0
    path = tmp_path / f"a.{format}"
    for number in range(150):
        path.write_bytes(damaged(whole, generator, 1 + number % 5))
        for skip in (False, True):
            with contextlib.suppress(DataError):
                pairs = read_pairs(path, report=TextReport(skip=skip))
                read += 1
                assert all(
                    text.strip() and not set("\0\n\r\u2028\u2029") & set(text) for pair in pairs for text in pair
                )
    assert read > 5


@pytest.mark.parametrize("packed", [".gz", ".xz", ".zst"])
def test_damage_of_a_compressed_file_raises_only_errors_that_explain_it(tmp_path: Path, packed: str) -> None:
    generator, whole = random.Random(1), PACK[packed](CONTENT["tsv"](PAIRS))
    path, refused = tmp_path / f"a.tsv{packed}", 0
    for _ in range(100):
        path.write_bytes(damaged(whole, generator, 1))
        try:
            read_pairs(path, report=TextReport(skip=True))
        except DataError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("format", ["tsv", "jsonl"])
def test_every_line_is_a_pair_or_left_out(tmp_path: Path, format: str) -> None:
    generator, whole = random.Random(1), CONTENT[format](PAIRS)
    path = tmp_path / f"a.{format}"
    for number in range(100):
        content = damaged(whole, generator, 1 + number % 20)
        path.write_bytes(content)
        report = TextReport(skip=True)
        lines = content.count(b"\n") + (not content.endswith(b"\n"))
        assert len(read_pairs(path, report=report)) + report.total == lines


def test_every_line_of_the_longer_file_is_in_a_pair_or_left_out(tmp_path: Path) -> None:
    generator = random.Random(1)
    sides = [b"".join(f"{pair[side]}\n".encode() for pair in PAIRS) for side in (0, 1)]
    for number in range(100):
        contents = [damaged(side, generator, 1 + number % 20) for side in sides]
        for name, content in zip("ab", contents, strict=True):
            (tmp_path / name).write_bytes(content)
        report = TextReport(skip=True)
        lines = max(content.count(b"\n") + (not content.endswith(b"\n")) for content in contents)
        assert len(read_pairs(tmp_path / "a", tmp_path / "b", report=report)) + report.total == lines
