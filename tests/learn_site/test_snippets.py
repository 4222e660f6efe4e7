"""The Python of the chapters runs, from the first block of a page to its last, and prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

from regard.learn.sources import PAGES

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(run|output)\n(.*?)^```", flags=re.M | re.S)
RUN = [path for path in sorted((PAGES / "en").glob("*.md")) if "```run\n" in path.read_text(encoding="utf-8")]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SLOW = ("explain",)  # integrates gradients of a real model
CHAPTERS = [pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else ()) for path in RUN]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_snippets_print_what_the_page_shows(path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where a reader who types them would be: `examples` is there
    monkeypatch.syspath_prepend(str(ROOT))
    names, printed = {"__name__": path.stem}, ""
    with torch.random.fork_rng():
        for kind, text in FENCED.findall(path.read_text(encoding="utf-8")):
            if kind == "run":
                written = io.StringIO()
                with contextlib.redirect_stdout(written):
                    exec(compile(text, f"{path.name}", "exec"), names)
                printed = written.getvalue()
            else:
                assert NUMBER.sub("#", text).split() == NUMBER.sub("#", printed).split()
                for shown, found in zip(NUMBER.findall(text), NUMBER.findall(printed), strict=True):
                    assert float(found) == pytest.approx(float(shown), rel=1e-9, abs=last_digit(shown)), printed


def last_digit(number):
    """Two units of the last digit after the point: processors round differently. Whole numbers are exact."""
    decimals = len(number.partition(".")[2])
    return 2 * 10.0**-decimals if decimals else 1e-9
