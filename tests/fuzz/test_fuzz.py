"""A sample of `make fuzz`, and every case that failed in the past."""

import json
from pathlib import Path

import pytest

from tests.commands import python
from tests.shared import make_once

pytestmark = pytest.mark.slow

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
CASES = 150


def fuzz(folder):
    """Write the summary of one run over all fixtures and a seeded sample."""
    given = [part for path in FIXTURES for part in ("--case", str(path))]
    out = ["--out", str(folder / "summary.json")]
    arguments = ["fuzz", "--cases", str(CASES), "--workers", "1", *out, *given]
    run = "import runpy\nrunpy.run_module('tests.fuzz', run_name='__main__', alter_sys=True)"
    result = python(f"import sys\nsys.argv = {arguments!r}\n{run}", timeout=600)
    assert (folder / "summary.json").exists(), result.stderr


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return json.loads((make_once(tmp_path_factory, "fuzz", fuzz) / "summary.json").read_text())


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_case_that_failed_in_the_past_is_refused_or_succeeds(table, path):
    assert table["given"][path.name] == ""


def test_damaged_folders_and_requests_are_refused_or_succeed(table):
    assert table["cases"] == CASES + len(FIXTURES)
    assert not table["drawn"], table["findings"]


def test_cases_cannot_write_outside_their_sandbox(table):
    if not table["isolated"]:
        pytest.skip(f"no mount namespace here: {table['not_isolated_because']}")
    assert table["peak_mb"] < 2000
