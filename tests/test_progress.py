"""Training from Python says where it is, unless a listener takes the events."""

import sys

import pytest

import regard
from regard.cli.display import PlainDisplay
from regard.progress import ProgressLines
from regard.training.events import Noted

TINY = [
    *(
        "model.width=16",
        "model.num_layers=1",
        "model.num_heads=2",
        "model.hidden=16",
        "train.steps=4",
        "train.log_every=2",
    ),
    *("train.validate_every=4", "train.validate_pairs=2", "train.tokens=64", "train.threads=1", "train.device=cpu"),
]


@pytest.mark.slow
def test_training_prints_its_progress_to_stderr_as_the_command_does_without_a_terminal(tmp_path, capsys):
    events = []
    regard.train("copy", out=tmp_path / "run", overrides=TINY)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == "20,000 examples to train on, 500 to validate on"
    assert any(line.startswith("step 2/4  loss ") and line.endswith(" left") for line in lines)
    assert any(line.startswith("step 4  dev loss ") for line in lines)
    assert lines[-1] == f"step 4  saved {tmp_path / 'run' / 'checkpoints' / 'step-00000004'}"
    regard.train("copy", out=tmp_path / "other", overrides=TINY, listen=events.append)
    assert capsys.readouterr().err == "", "a listener replaces the lines"
    with PlainDisplay() as plain:
        for event in events:
            plain(event)
    command = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in command] == [line.split()[:2] for line in lines]


def test_a_listener_that_does_nothing_is_silent(tmp_path, capsys):
    regard.train("copy", out=tmp_path / "run", overrides=TINY, listen=lambda event: None)
    assert capsys.readouterr() == ("", "")


def test_a_run_that_is_finished_says_so(tmp_path, capsys):
    regard.train("copy", out=tmp_path / "run", overrides=TINY, listen=lambda event: None)
    assert not regard.train("copy", out=tmp_path / "run", overrides=TINY).trained
    expected = (
        f"{tmp_path / 'run'} is already finished; to train again, name another folder with --out (in Python: out=)\n"
    )
    assert capsys.readouterr().err == expected


def test_control_characters_are_escaped(capsys):
    ProgressLines()(Noted(0, "a name with \x1b[31m in it"))
    assert capsys.readouterr().err == "a name with \\x1b[31m in it\n"


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_a_stream_that_cannot_be_written_does_not_stop_training(tmp_path, monkeypatch, capsys, stderr):
    if stderr == "closed":
        stderr = (tmp_path / "messages").open("w")
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    ProgressLines()(Noted(0, "something to know"))
    assert capsys.readouterr().out == ""
