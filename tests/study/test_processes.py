"""Studies in processes of their own: killed, stopped, and shared between runners."""

import json
import os
import random
import signal
import time

import msgspec
import pytest
from msgspec.structs import replace

from regard.errors import CheckpointError
from regard.metrics.significance import Sampling
from regard.run.folder import RunFolder
from regard.study.cells import Cell
from regard.study.choices import read_records
from regard.study.result.collected import collect
from regard.study.study_file import read_study
from tests.commands import Forked, forking_python, regard
from tests.study.forked_runner import start_runner
from tests.study.test_running import without_times

pytestmark = pytest.mark.slow
RARELY = {"checkpoint": 3, "validate": 6}  # what the tiny study does every so many steps
KILLS = int(os.environ.get("REGARD_KILLS", "6"))


def command(file, out, *options):
    return ["study", "run", str(file), "--out", str(out), *options]


def events(out, kind):
    """Return the events of one kind in the logs of all runs, by cell."""
    found = {}
    for log in sorted(out.glob("cells/*/*/*/run/log.jsonl")):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        found[str(log.relative_to(out).parents[1])] = [line for line in lines if line["event"] == kind]
    return found


def steps_saved(out):
    """Return the sum of the newest checkpoints of all cells."""
    runs = [RunFolder(path) for path in out.glob("cells/*/*/*/run")]
    return sum(run.recipe().train.steps if run.finished else max(run.steps(), default=0) for run in runs if run.exists)


def steps_to_lose(out, since):
    """Return how many steps of all cells are logged, but not in a checkpoint.

    A cell whose log has not changed since this time has not started again, and has nothing more to lose.
    """
    lost = 0
    for run in [RunFolder(path) for path in out.glob("cells/*/*/*/run")]:
        log = run.path / "log.jsonl"
        if run.exists and not run.finished and log.exists() and log.stat().st_mtime > since:
            progress = [event["step"] for event in run.read_log() if event["event"] == "progress"]
            lost += max(0, max(progress, default=0) - max(run.steps(), default=0))
    return lost


def table(study, out):
    """Return the result of a study as JSON, without times."""
    result = collect(study, out).result(Sampling(trials=200))
    rows = [replace(row, seconds=None, tokens_per_second=None) for row in result.rows]
    return msgspec.json.encode(replace(result, rows=rows, cost=replace(result.cost, hours=0, device_hours=0)))


def test_a_study_that_is_killed_repeatedly_has_the_same_records_in_the_end(write_study, tmp_path):
    # A checkpoint every 25 steps, so that a kill costs what was trained since.
    every = [(f'"train.{key}_every" = {old}', f'"train.{key}_every" = 25') for key, old in RARELY.items()]
    file = write_study(('"train.steps" = 12', '"train.steps" = 100'), *every)
    whole, killed, generator = tmp_path / "whole", tmp_path / "killed", random.Random(1)
    assert start_runner(file, whole).wait(280) == 0
    kills = lost = 0
    while kills < KILLS:
        since = time.time()
        process = start_runner(file, killed)
        if kills % 4 == 3:  # in the first second or two, whatever happens then
            time.sleep(generator.uniform(0.2, 2))
        else:  # between two checkpoints, every second time after another one
            enough, begun = steps_saved(killed) + 25 * (kills % 2), 3 * generator.randint(1, 6)
            while steps_saved(killed) < enough or steps_to_lose(killed, since) < begun:
                assert time.time() < since + 120, f"{steps_saved(killed)} steps are saved, not {enough}"
                time.sleep(0.02)
        # The runner and the processes of its cells, at once.
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"the study ended after {kills} kills"
        kills += 1
        lost += steps_to_lose(killed, since)
        print(f"kill {kills}: {steps_saved(killed)} steps saved, {lost} lost", flush=True)
    assert lost > 3 * KILLS, "hardly a step had to be repeated, so this shows nothing"
    assert start_runner(file, killed).wait(280) == 0
    study = read_study(file)
    assert without_times(read_records(study, killed)) == without_times(read_records(study, whole))
    assert len(read_records(study, killed)) == 4
    assert table(study, killed) == table(study, whole)


def test_two_runners_share_a_folder_and_train_each_cell_once(write_study, tmp_path):
    file, out = write_study(), tmp_path / "out"
    runners = [start_runner(file, out) for _ in range(2)]
    assert [runner.wait(280) for runner in runners] == [0, 0]
    assert [len(found) for found in events(out, "started").values()] == [1, 1, 1, 1]
    assert [one.state for one in read_records(read_study(file), out)] == ["finished"] * 4


def test_a_study_in_pieces_of_time_resumes_where_it_was(write_study, tmp_path):
    file, out = write_study(('"train.steps" = 12', '"train.steps" = 4000')), tmp_path / "out"
    begun = RunFolder(Cell("two layers", {}, 1).folder(out).path / "run")

    def piece_of_time(before):
        """Run the study for some seconds; again, if the machine is so busy that the cell has not taken a step in them."""
        for _ in range(20):
            done = regard(*command(file, out, "--seconds", "2"), executable=forking_python())
            assert done.returncode == 3 and "resume with:" in done.stderr
            if begun.exists and max(begun.steps(), default=0) > before:
                return max(begun.steps())
        raise AssertionError("the cell has taken no step")

    step = piece_of_time(0)
    assert not begun.finished
    piece_of_time(step)
    [started] = [found for cell, found in events(out, "started").items() if str(begun.path.parent).endswith(cell)]
    assert (started[0]["step"], started[-1]["step"]) == (0, step)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_cells_save_and_stop_when_their_runner_is_ended(write_study, tmp_path, number):
    file, out = write_study(('"train.steps" = 12', '"train.steps" = 4000')), tmp_path / "out"
    process = Forked(command(file, out))
    cell = RunFolder(Cell("two layers", {}, 1).folder(out).path / "run")
    for _ in range(1200):
        if cell.exists and cell.steps():
            break
        time.sleep(0.1)
    process.send_signal(number)
    assert process.wait(60) == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    # The process of the cell holds this lock until it has saved.
    held = Cell("two layers", {}, 1).folder(out)
    for _ in range(600):
        try:
            with held.locked(busy=""):
                break
        except CheckpointError:
            time.sleep(0.1)
    else:
        raise AssertionError("the process of the cell did not stop")
    saved = max(cell.steps())
    progress = [event["step"] for event in cell.read_log() if event["event"] == "progress"]
    assert saved >= progress[-1] and not cell.finished
