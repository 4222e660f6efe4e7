"""Commands that receive signals: the exit status says that the work is unfinished, and nothing is lost."""

import os
import signal
import subprocess

import pytest
from safetensors.torch import load_file

import regard
from regard.data.pair_store import PairStore
from regard.preprocess.prepare import store_problems
from regard.run.folder import RunFolder
from tests.commands import Forked
from tests.faults.test_kills import SETTINGS

TRAIN = [*SETTINGS, "train.steps=60", "train.checkpoint_every=1000"]


def start(*arguments, stdin=None):
    return Forked(arguments, stdin=stdin, stderr=subprocess.PIPE)


def wait_for(process, begin):
    """Read the standard error output up to a line that starts with `begin`."""
    for line in process.stderr:
        if line.startswith(begin):
            return
    pytest.fail(f"the process ended before it printed {begin!r}")


def end(process):
    """Return the exit status and the rest of the output."""
    output = process.stderr.read()
    assert "Traceback" not in output
    return process.wait(timeout=60), output


def weights(run):
    return load_file(run / "final" / "weights.safetensors")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The weights of an uninterrupted run."""
    out = tmp_path_factory.mktemp("expected") / "run"
    regard.train("reverse", out=out, overrides=TRAIN)
    return weights(out)


@pytest.mark.slow(unless=["TERM"])
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["INT", "TERM", "HUP"],
)
def test_a_stopped_run_saves_exits_with_its_own_status_and_resumes_to_the_same_bits(tmp_path, expected, number, status):
    process = start("train", "reverse", "--out", str(tmp_path / "run"), *TRAIN)
    wait_for(process, "step 7/")
    process.send_signal(number)
    found, output = end(process)
    assert found == status
    assert "stopped; resume with: " in output
    [step] = RunFolder(tmp_path / "run").steps()
    assert 7 <= step < 60
    regard.train("reverse", out=tmp_path / "run", overrides=TRAIN)
    resumed = weights(tmp_path / "run")
    assert all(expected[name].equal(resumed[name]) for name in expected)


@pytest.mark.slow
def test_under_nohup_a_run_continues_when_the_terminal_hangs_up(tmp_path, expected):
    # As nohup does before the command begins.
    begin = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); sys.argv[0] = 'regard'\n"
    arguments = ["train", "reverse", "--out", str(tmp_path / "run"), *TRAIN]
    process = Forked(arguments, program=f"{begin}from regard.cli import main; main()", stderr=subprocess.PIPE)
    wait_for(process, "step 7/")
    process.send_signal(signal.SIGHUP)
    assert end(process)[0] == 0
    found = weights(tmp_path / "run")
    assert all(expected[name].equal(found[name]) for name in expected)


@pytest.mark.slow(unless=["TERM"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["TERM", "HUP"])
def test_a_stopped_prepare_exits_with_its_own_status_and_resumes(tmp_path, number, status):
    lines = [f"{'ab' * (n % 7 + 1)}\t{'ba' * (n % 7 + 1)}\n" for n in range(3000)]
    command = ("data", "prepare", "reverse", 'data.train={pairs="-"}', "--out", str(tmp_path / "ids"))
    process = start(*command, stdin=subprocess.PIPE)
    process.stdin.write("".join(lines[:2000]).encode())
    while not (tmp_path / "ids" / ".lock").exists():
        os.kill(process.pid, 0)  # it has not ended
    process.send_signal(number)
    found, output = end(process)
    assert found == status
    assert f"stopped by {number.name}" in output
    again = start(*command, stdin=subprocess.PIPE)
    again.stdin.write("".join(lines).encode())
    again.stdin.close()
    assert end(again)[0] == 0
    store = PairStore(tmp_path / "ids")
    assert len(store) == 3000 and not list(store_problems(store))


SIGNALS = pytest.mark.parametrize(
    ("number", "ending"), [("SIGTERM", (143, "")), ("SIGINT", (130, ""))], ids=["TERM", "INT"]
)


@SIGNALS
def test_a_signal_in_a_constructor_leaves_no_traceback(number, ending):
    # A file of `tempfile`, for example, looks in its finalizer for what its constructor was about to make.
    program = (
        "class Half:\n"
        "    def __init__(self):\n"
        f"        os.kill(os.getpid(), signal.{number})\n"
        "        self.file = None\n"
        "    def __del__(self):\n"
        "        self.file\n"
        "Half()\n"
    )
    assert end(interrupted(program)) == ending


@SIGNALS
def test_a_signal_in_a_finalizer_ends_the_command_too(number, ending):
    # Python drops what a finalizer raises.
    program = (
        f"class Last:\n    def __del__(self):\n        os.kill(os.getpid(), signal.{number})\nLast()\ntime.sleep(60)\n"
    )
    assert end(interrupted(program)) == ending


def interrupted(program):
    """Start a program that handles signals as commands do."""
    begin = "import os, signal, sys, time\nfrom regard.cli.terminal import exit_on_signals\nexit_on_signals()\n"
    caught = "".join(f"    {line}\n" for line in program.splitlines())
    program = f"{begin}try:\n{caught}except KeyboardInterrupt:\n    sys.exit(130)\n"
    return Forked((), program=program, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_stopped_distill_exits_with_its_own_status_and_resumes(tmp_path):
    quick = [*SETTINGS, "train.steps=1", "train.average=1"]
    regard.train("reverse", out=tmp_path / "run", overrides=quick)
    text = "".join(f"{'abcdefgh'[n % 8]} b c\n" for n in range(4000))
    for name in ("source", "reference"):
        (tmp_path / name).write_text(text)
    sides = ("--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference"))
    command = ("distill", str(tmp_path / "run"), str(tmp_path / "out"), *sides, "--beam", "1")
    process = start(*command)
    wait_for(process, "0 of 4,000 sentences")
    process.send_signal(signal.SIGTERM)
    found, output = end(process)
    assert found == 143
    assert "stopped by SIGTERM" in output
    again = start(*command)
    assert end(again)[0] == 0
    assert len((tmp_path / "out" / "target.txt").read_text().splitlines()) == 4000
