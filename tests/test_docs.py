"""Run every snippet in the README and in docs/, in order."""

import importlib.util
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import folder_of_command, python

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WORDS = {
    "das": "the",
    "ein": "a",
    "haus": "house",
    "hund": "dog",
    "ist": "is",
    "klein": "small",
    "rot": "red",
    "und": "and",
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the kind and the text of every fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def write_bitext(folder: Path) -> None:
    """Write small parallel files under the names that the pages use."""
    generator = random.Random(1)
    for name, size in {"train": 200, "dev": 20, "test": 20}.items():
        lines = [generator.choices(list(WORDS), k=generator.randint(2, 7)) for _ in range(size)]
        (folder / f"{name}.de").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.en").write_text("".join(" ".join(WORDS[word] for word in line) + "\n" for line in lines))


def recipe() -> str:
    """Return the README's recipe with few steps and a small model."""
    [text] = [text for kind, text in blocks(ROOT / "README.md") if kind == "toml"]
    assert "steps = 8000" in text
    assert 'preset = "tiny"' in text
    small = "width = 32\nnum_heads = 2\nnum_layers = 2\nhidden = 64"
    return text.replace('preset = "tiny"', small).replace("steps = 8000", "steps = 4\nthreads = 1")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page, tmp_path):
    write_bitext(tmp_path)
    (tmp_path / "my.toml").write_text(recipe())
    path = f"{folder_of_command()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    for kind, written in blocks(page):
        text = re.sub(r"\btrain\.steps=\d+", "train.steps=4", written)  # it must run, not reach a good score
        if "--ray" in text and not importlib.util.find_spec("ray"):
            continue  # CI does not install this extra
        # The make targets run this test, so it must not run them.
        if kind == "sh" and not text.startswith("make "):
            command = ["bash", "-euo", "pipefail", "-c", text]
            result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        elif kind == "python":
            result = python(text, cwd=tmp_path, environment=environment, timeout=300)
        else:
            assert kind in ("sh", "toml", "text"), f"snippets of kind {kind!r} are not run by this test"
            continue
        assert result.returncode == 0, f"{text}\n{result.stderr}"


def test_links_between_pages_are_valid():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
