"""Closed and broken standard streams do not stop a run, and untrusted text cannot control a terminal."""

import errno
import io
import os
import pty
import subprocess
import sys

import pytest

from regard.cli import terminal
from regard.cli.terminal import printable
from regard.run.folder import RunFolder
from tests.commands import Forked, folder_of_command
from tests.faults.test_kills import SETTINGS

TRAIN = [*SETTINGS, "train.steps=20", "train.checkpoint_every=1000"]


def in_a_shell(redirected, run, *command, **settings):
    """Train in a shell with redirections: by `regard`, or by another command, whose process begins with them."""
    command = command or [str(folder_of_command() / "regard")]
    line = f'"$@" {redirected}'
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["sh", "-c", line, "sh", *command, "train", "reverse", "--out", str(run), *TRAIN],
        env=environment,
        timeout=120,
        text=True,
        **settings,
    )


def is_complete(run):
    folder = RunFolder(run)
    steps = [event["step"] for event in folder.read_log() if event["event"] == "progress"]
    return folder.finished and folder.problems() == [] and steps == list(range(1, 21))


@pytest.mark.slow
def test_a_run_with_a_broken_pipe_is_trained_to_its_end(tmp_path):
    done = in_a_shell("2>&1 | head -1", tmp_path / "run", capture_output=True)
    assert is_complete(tmp_path / "run")
    assert "Traceback" not in done.stderr + done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_is_trained_to_its_end(tmp_path, closed):
    done = in_a_shell(closed, tmp_path / "run", sys.executable, "-m", "regard", capture_output=True)
    assert done.returncode == 0
    assert is_complete(tmp_path / "run")
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.slow
def test_a_run_that_cannot_write_messages_is_trained_to_its_end(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    assert in_a_shell("2> /dev/full", tmp_path / "run").returncode == 0
    assert is_complete(tmp_path / "run")


@pytest.mark.slow
def test_a_run_whose_terminal_is_closed_is_trained_to_its_end(tmp_path):
    ours, its = pty.openpty()
    command = ["train", "reverse", "--out", str(tmp_path / "run"), *TRAIN]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm"}
    with open(its, "r+b", buffering=0) as terminal:
        process = Forked(command, stdin=terminal, stdout=terminal, stderr=terminal, environment=environment)
    assert os.read(ours, 1)
    os.close(ours)
    assert process.wait(timeout=120) == 0
    assert is_complete(tmp_path / "run")


def test_control_characters_are_escaped_and_nothing_else():
    assert printable("a\x1b]0;title\x07 \x9b2J \r \x7f\x00") == "a\\x1b]0;title\\x07 \\x9b2J \\x0d \\x7f\\x00"
    assert printable("Größe\t水曜日\n٢٥ 🙂") == "Größe\t水曜日\n٢٥ 🙂"


@pytest.mark.parametrize("speak", [terminal.print_message, terminal.print_error, terminal.print_warning])
def test_what_is_said_cannot_control_a_terminal(speak, capfd):
    speak("a folder called \x1b[2J\x9b1m\x08")
    assert "a folder called \\x1b[2J\\x9b1m\\x08" in capfd.readouterr().err


class Broken(io.StringIO):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, "gone")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EAGAIN])
def test_messages_that_cannot_be_written_are_dropped(number, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Broken(number))
    terminal.print_message("hello")
