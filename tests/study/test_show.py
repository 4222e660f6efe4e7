"""`regard study show` and `regard study check`."""

import json

import pytest
from typer.testing import CliRunner

from regard.cli.commands import app
from regard.errors import ConfigError
from tests.study.synthetic import make_cells, write_study


@pytest.fixture
def shown(tmp_path):
    """Calls a command with arguments."""
    file, study = write_study(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(app, ["study", *map(str, arguments)])

    return call, file, study


def test_show_prints_tables_or_json_and_writes_files_and_a_bundle_that_check_accepts(shown, tmp_path):
    call, file, study = shown
    make_cells(study, tmp_path / "out")
    bundle = tmp_path / "bundle"
    done = call("show", file, "--out", tmp_path / "out", "--trials", 100, "--bundle", bundle)
    assert done.exit_code == 0, done.output
    assert "no difference found" in done.stdout
    written = json.loads((tmp_path / "out" / "study.json").read_bytes())
    assert written["trials"] == 100
    assert (tmp_path / "out" / "table.tex").read_text(encoding="utf-8").startswith("\\documentclass")
    done = call("check", bundle)
    assert done.exit_code == 0, done.output
    assert "is correct: 72 files match their hashes; 4 files with" in done.stdout

    done = call("show", file, "--out", tmp_path / "out", "--trials", 1, "--json")
    assert json.loads(done.stdout)["baseline"] == "base"

    table = bundle / "table.md"
    table.write_text(table.read_text(encoding="utf-8").replace("worse", "better", 1), encoding="utf-8")
    done = call("check", bundle)
    assert done.exit_code == 1
    assert "table.md" in done.stderr
    assert "is correct" not in done.stdout


def test_a_study_without_cells_is_refused(shown, tmp_path):
    call, file, _ = shown
    done = call("show", file, "--out", tmp_path / "out")
    assert isinstance(done.exception, ConfigError)
    assert "regard study run" in str(done.exception)


def test_the_folder_of_a_study_is_no_bundle_and_a_place_that_is_taken_is_refused_first(shown, tmp_path):
    call, file, study = shown
    make_cells(study, tmp_path / "out")
    done = call("check", tmp_path / "out")
    assert done.exit_code == 1
    assert "it is the folder of a study, not a bundle" in done.stderr.replace("\n", " ") and "note:" not in done.stderr
    done = call("show", file, "--out", tmp_path / "out", "--bundle", tmp_path / "out")
    assert isinstance(done.exception, ConfigError) and "is not an empty folder" in str(done.exception)
    assert done.stdout == "" and not (tmp_path / "out" / "study.json").exists()


def test_what_is_no_bundle_is_named(shown, tmp_path):
    call, *_ = shown
    done = call("check", tmp_path)
    assert done.exit_code == 1
    assert "MANIFEST is missing" in done.stderr
