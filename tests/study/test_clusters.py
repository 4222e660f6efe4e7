"""Studies on clusters: the script for Slurm, and cells as actors of Ray.

Ray is replaced by threads where that is enough. Two slow tests have a real local Ray; they need `pip install 'regard[ray]'`
(400 MB, therefore not in CI).
"""

import re
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import msgspec
import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.cluster import pool
from regard.errors import ConfigError
from regard.run.folder import RunFolder
from regard.study.cells import Cell
from regard.study.choices import read_records
from regard.study.running import ray_cells
from regard.study.running.job import ENDED, STOPPED, Job
from regard.study.running.ray_cells import CellActor, ray_start
from regard.study.running.runner import run_study
from regard.study.running.slurm import slurm_script
from tests.study.test_running import without_times, write_pretended


def call(*words):
    return CliRunner().invoke(app, ["study", "run", *map(str, words)])


def test_the_script_for_slurm_runs_the_same_command_in_every_job(write_study, tmp_path):
    file, script = write_study(), tmp_path / "my job.sh"
    result = call(file, "--out", tmp_path / "it's here", "--data", tmp_path, "--at-once", 2, "--slurm", script)
    assert result.exit_code == 0, result.output
    text = script.read_text()
    [line] = re.findall(r"^srun (.*)$", text, flags=re.M)
    words = shlex.split(line)
    assert words[1:] == [
        *("-m", "regard", "study", "run", str(file), "--out", str(tmp_path / "it's here")),
        *("--data", str(tmp_path), "--at-once", "2", "--no-retry"),
    ]
    assert "#SBATCH --array=1-4\n" in text and "#SBATCH --open-mode=append\n" in text, "restarts keep the log"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert not (tmp_path / "it's here").exists(), "nothing is trained"
    # It may be written again, but replaces nothing else.
    assert call(file, "--slurm", script).exit_code == 0
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    assert isinstance(call(file, "--slurm", other).exception, ConfigError) and other.read_text() == "mine"


def test_a_job_name_has_no_characters_of_a_shell(make_study, tmp_path):
    text = slurm_script(make_study(), tmp_path / "a b;$(c).toml", out=tmp_path)
    assert "#SBATCH --job-name=study-a-b---c-\n" in text


class FakeRay:
    """The few functions of Ray that are used, with threads in place of machines."""

    exceptions = SimpleNamespace(RayError=ConnectionError)

    def __init__(self, **resources):
        self.resources, self.options, self.killed, self.pool = resources, [], 0, ThreadPoolExecutor(8)

    def cluster_resources(self):
        return self.resources

    def remote(self, cls):
        def make(job):
            actor = cls(job)
            calls = {
                name: SimpleNamespace(remote=lambda name=name: self.pool.submit(getattr(actor, name)))
                for name in ("train", "ask_to_stop")
            }
            return SimpleNamespace(**calls)

        def options(**given):
            self.options.append(given)
            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    def wait(self, calls, timeout):
        done = wait(calls, timeout=timeout).done
        return list(done), []

    def get(self, call):
        return call.result()

    def kill(self, actor):
        self.killed += 1


class FakeWorker:
    """A process that writes the record of its cell, or crashes, or waits until it is asked to stop."""

    made: list = []  # noqa: RUF012

    def __init__(self, job):
        self.job, self.asked = job, False
        FakeWorker.made.append(job)

    def wait(self):
        if self.job.row == "one layer" and self.job.seed == 2:
            raise ConnectionError("the machine is gone")
        write_pretended(self.job)
        return ENDED

    def ask_to_stop(self):
        self.asked = True

    def errors(self):
        return ""


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.setattr(ray_cells, "LocalWorker", FakeWorker)
    monkeypatch.setattr("regard.study.running.runner.POLL_SECONDS", 0.01)
    FakeWorker.made = []
    return FakeWorker.made


def test_cells_take_their_share_of_a_gpu_and_a_lost_machine_is_a_failure(make_study, tmp_path, processes):
    ray = FakeRay(GPU=2.0, CPU=16.0)
    start, room = ray_start(ray, per_gpu=4)
    assert room == 8
    state = run_study(make_study(), out=tmp_path / "out", at_once=room, start=start)
    assert (state.count("finished"), state.count("failed")) == (3, 1)
    assert [one.problem for one in state.records if one.state == "failed"] == ["ConnectionError: the machine is gone"]
    assert ray.options[0] == {"num_cpus": 1, "num_gpus": 0.25, "max_restarts": 0, "max_concurrency": 2}
    assert {(job.sharing_cores, job.sharing_device) for job in processes} == {(4, 4)}
    assert ray.killed == len(ray.options) == 6, "a cell whose machine is gone is started three times"


def test_without_gpus_a_cell_takes_a_core():
    _, room = ray_start(FakeRay(CPU=3.0), per_gpu=2)
    assert room == 3


def test_cells_on_a_cluster_are_asked_to_stop(make_study, tmp_path, processes, monkeypatch):
    def wait_for_request(worker):
        while not worker.asked:
            time.sleep(0.01)
        return STOPPED

    monkeypatch.setattr(FakeWorker, "wait", wait_for_request)
    start, room = ray_start(FakeRay(CPU=2.0), per_gpu=1)
    state = run_study(
        make_study(), out=tmp_path / "out", at_once=room, start=start, stop=lambda: len(processes) == room
    )
    assert len(state.open_cells()) == 4 and not state.records


def test_a_request_to_stop_that_arrives_before_the_process_of_a_cell_is_kept(make_study, processes):
    actor = CellActor(Job(make_study(), "out", None, "one layer", {}, 1))
    actor.ask_to_stop()
    assert actor.train() == (STOPPED, "") and not processes


@pytest.mark.parametrize("given", [True, False])
def test_the_script_for_slurm_names_the_data_folder_of_the_environment(make_study, tmp_path, monkeypatch, given):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    text = slurm_script(make_study(), tmp_path / "a.toml", out=tmp_path, data=tmp_path / "." if given else None)
    assert f" --data {tmp_path}" in text


@pytest.fixture(scope="module")
def real_ray():
    """One Ray instance for the tests of this file, because starting it takes seconds."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'regard[ray]'")
    with pool.connected() as ray:
        yield ray


@pytest.mark.slow
def test_a_study_on_ray_has_the_records_of_one_without(real_ray, make_study, tmp_path):
    study = make_study()
    start, room = ray_start(real_ray, per_gpu=1)
    state = run_study(study, out=tmp_path / "ray", at_once=min(room, 2), start=start)
    assert state.count("finished") == 4, [one.problem for one in state.records]
    run_study(study, out=tmp_path / "plain", at_once=2)
    records = [read_records(study, tmp_path / name) for name in ("ray", "plain")]
    # How many share a machine differs.
    assert without_times(records[0], sharing_device=1) == without_times(records[1], sharing_device=1)


@pytest.mark.slow
def test_a_cell_on_ray_saves_when_it_is_asked_to_stop_and_resumes(real_ray, make_study, tmp_path):
    more = [
        ('"train.steps" = 12', '"train.steps" = 400'),
        ('"train.checkpoint_every" = 3', '"train.checkpoint_every" = 20'),
    ]
    study = make_study(*more, ("seeds = [1, 2]", "seeds = [1]"))
    out = tmp_path / "out"
    run = RunFolder(Cell("two layers", {}, 1).folder(out).path / "run")
    start, _ = ray_start(real_ray, per_gpu=1)
    state = run_study(study, out=out, at_once=1, start=start, stop=lambda: run.exists and bool(run.steps()))
    assert len(state.open_cells()) == 2
    saved = max(run.steps())
    assert 0 < saved < 400
    assert run_study(study, out=out, at_once=1, start=start).count("finished") == 2
    assert [event["step"] for event in run.read_log() if event["event"] == "started"] == [0, saved]


def test_jobs_can_be_sent_to_another_machine(make_study):
    job = Job(make_study(), "out", None, "one layer", {"train.lr": 1e-3}, 2)
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job
