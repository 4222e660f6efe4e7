"""Each example program runs on its own and prints what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import python

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name):
    """Run an example in a process of its own; the first imports everything anew. Return what it prints."""
    path, environment = str(EXAMPLES / f"{name}.py"), os.environ | {"OMP_NUM_THREADS": "1"}
    if name == FIRST:
        command = [sys.executable, path]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    else:
        program = f"import runpy\nrunpy.run_path({path!r}, run_name='__main__')"
        result = python(program, environment=environment, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout


def number(pattern, text):
    """Return the number that the pattern finds in the text."""
    found = re.search(pattern, text)
    assert found, text
    return float(found.group(1))


def plain_calls(text):
    # Four hypotheses: two for each of the two sentences. A new model is near a uniform guess, or worse.
    assert text.count("with score") == 4
    assert "logits: [7, 100]" in text
    assert number(r"loss per token: ([\d.]+)", text) > 4


def own_training_loop(text):
    assert "abcde -> edcba" in text
    assert number(r"([\d.]+) % of new words", text) > 90


def new_attention(text):
    assert "c a b d e -> c a b d e" in text
    assert number(r"([\d.]+) % of the letters", text) > 80


def new_task(text):
    assert number(r"3 1 4 1 5 -> ([\d.]+)", text) == pytest.approx(14, abs=1)
    assert number(r"mean error on 200 new rows: ([\d.]+)", text) < 0.5
    assert "# sums has a card" in text


def attention_tensors(text):
    assert "Der Hund ist müde." in text
    assert "[4, 6, 6]" in text
    assert number(r"between the two ways: ([\d.e+-]+)", text) < 1e-4


def paper(text):
    assert number(r"(\d+)% of 200 new sentences", text) > 95


CHECKS = {
    check.__name__: check
    for check in (plain_calls, own_training_loop, new_attention, new_task, attention_tensors, paper)
}
FIRST = next(iter(CHECKS))


@pytest.mark.slow(unless=[FIRST])
@pytest.mark.parametrize("name", CHECKS)
def test_the_example_prints_its_result(name):
    CHECKS[name](run(name))


def test_every_example_is_run_and_says_what_one_learns():
    files = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert files.keys() == CHECKS.keys()
    for name, text in files.items():
        assert text.startswith('"""') and f"python examples/{name}.py" in text
        assert name == "paper" or "What you learn:" in text
