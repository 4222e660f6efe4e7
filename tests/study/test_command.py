"""`regard study run` as a command: what it prints, and its exit status."""

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import ConfigError
from regard.study.running.job import ENDED, REFUSED
from tests.study.test_running import Finished, write_pretended


def call(*words):
    return CliRunner().invoke(app, ["study", "run", *map(str, words)])


@pytest.fixture
def start_with(monkeypatch):
    """Replaces the processes of cells by a function of their job."""
    monkeypatch.setattr("regard.study.running.runner.POLL_SECONDS", 0.01)
    return lambda start: monkeypatch.setattr("regard.study.running.runner.start_here", lambda job, running: start(job))


def pretend(job):
    write_pretended(job)
    return Finished(job, ENDED)


def test_a_study_whose_cells_have_all_ended_exits_with_0(write_study, tmp_path, start_with):
    start_with(pretend)
    result = call(write_study(), "--out", tmp_path / "out")
    assert result.exit_code == 0 and "all cells have ended" in result.stderr
    assert (tmp_path / "out" / "study.html").is_file()


def test_a_failed_cell_is_explained_and_exits_with_1(write_study, tmp_path, start_with):
    start_with(lambda job: pretend(job) if job.row == "two layers" else Finished(job, REFUSED, "no such file"))
    result = call(write_study(), "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "failed: one layer, seed 1: no such file" in result.stderr.replace("\n", " ")


def test_cells_that_failed_are_tried_again_unless_the_command_says_no(write_study, tmp_path, start_with):
    file, out, tried = write_study(), tmp_path / "out", []

    def refuse(job):
        tried.append(job.cell.key)
        return Finished(job, REFUSED, "no such file")

    start_with(refuse)
    for options, count in (((), 4), (("--no-retry",), 4), ((), 8)):
        assert call(file, "--out", out, *options).exit_code == 1
        assert len(tried) == count


def test_a_study_that_is_not_finished_in_time_exits_with_3(write_study, tmp_path, start_with):
    start_with(lambda job: Finished(job, None))
    result = call(write_study(), "--out", tmp_path / "out", "--seconds", 1)
    assert result.exit_code == 3 and "0 of 4 cells have ended; resume with:" in result.stderr.replace("\n", " ")


def test_a_file_that_is_missing_is_reported(tmp_path):
    result = call(tmp_path / "no.toml")
    assert isinstance(result.exception, ConfigError) and "cannot read" in str(result.exception)
