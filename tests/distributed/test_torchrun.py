"""Processes started by torchrun, connected over gloo, train the same model as one process."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data.batch import Batch
from regard.models import MODELS
from regard.run.folder import RunFolder
from tests.commands import Forked, folder_of_command, forking_python

ROOT = Path(__file__).parents[2]
SETTINGS = [
    *("model.width=32", "model.num_layers=1", "model.hidden=64", "model.num_heads=2", "model.dropout=0.1"),
    *("train.tokens=256", "train.steps=12", "train.checkpoint_every=4", "train.validate_pairs=20", "train.log_every=1"),
    *("train.device=cpu", "train.threads=1", "train.keep=9", "decode.max_extra=2"),
    "data.train.generate=reverse/valid",  # 500 rows
]
# Which both kinds of parallel training import, and torchrun.
IMPORTED = ("torch._dynamo", "regard.training.fsdp", "torch.distributed.run")
TORCHRUN = "import sys; from torch.distributed.run import main; main(sys.argv[1:])"
CLOSE = 1e-4  # tolerance of losses: sums over processes are added in another order


def torchrun(out):
    """Start worker.py with torchrun, and wait for its end."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *(str(Path(__file__).with_name("worker.py")), "reverse", str(out), "none", *SETTINGS),
    ]
    with alone():
        return subprocess.run(command, capture_output=True, text=True, timeout=240)


def start_torchrun(*words, **streams):
    """Start two processes of a command with torchrun. All of them are forked."""
    return Forked(
        ["--standalone", "--nproc-per-node=2", *words], program=TORCHRUN, imported=IMPORTED, cwd=ROOT, **streams
    )


def torchrun_with(accident, out, *, restarts=0):
    """Start worker.py with torchrun and an accident, wait for its end, and return the exit status and stderr."""
    command = [f"--max-restarts={restarts}", "--no-python", forking_python(*IMPORTED), "-m", "tests.distributed.worker"]
    with alone(), tempfile.TemporaryFile("w+") as stderr:
        status = start_torchrun(*command, "reverse", out, accident, *SETTINGS, stderr=stderr).wait(240)
        stderr.seek(0)
        return status, stderr.read()


def fork(out, *overrides, recipe="reverse", processes=2, settings=SETTINGS):
    """Start worker.py in forked processes, and wait for their end."""
    return start("worker.py", recipe, out, "none", *settings, *overrides, processes=processes)


def start(script, *words, processes=2):
    """Start a script of this folder as torchrun does, but in processes that have imported PyTorch already."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"},
        **{"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "TORCHELASTIC_RESTART_COUNT": "0"},
    }
    program = Path(__file__).with_name(script).read_text(encoding="utf-8")
    with tempfile.TemporaryFile("w+") as stderr:
        started = [
            Forked(
                words,
                program=program,
                environment={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                imported=IMPORTED,
                stderr=stderr,
            )
            for rank in range(processes)
        ]
        statuses = [process.wait(240) for process in started]
        stderr.seek(0)
        return subprocess.CompletedProcess([script, *words], max(map(abs, statuses)), "", stderr.read())


@contextmanager
def alone():
    """Allow one group of processes at a time: torchrun looks for a free port, and two groups could find the same one."""
    with (Path(tempfile.gettempdir()) / "regard-torchrun.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def losses(run):
    return [event["loss"] for event in RunFolder(run).read_log() if event["event"] == "progress"]


def final(run):
    return load_file(Path(run) / "final" / "weights.safetensors")


def assert_close(left, right, tolerance):
    for name, weight in final(left).items():
        torch.testing.assert_close(weight, final(right)[name], atol=tolerance, rtol=0)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The reference run: one process, two micro-batches per step, with dropout."""
    out = tmp_path_factory.mktemp("one") / "run"
    regard.train("reverse", out=out, overrides=[*SETTINGS, "train.accumulate=2"])
    return out


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    out = tmp_path_factory.mktemp("two") / "run"
    done = torchrun(out)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_two_processes_train_the_same_model_as_one_with_two_micro_batches_per_step(one_process, two_processes):
    assert losses(two_processes) == pytest.approx(losses(one_process), abs=CLOSE)
    assert_close(two_processes, one_process, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["copies", "shards"])
def test_two_processes_match_one_that_splits_large_batches_into_halves(parallel, tmp_path, threads, monkeypatch):
    threads(2)
    halves, seen = Batch.halves, []
    monkeypatch.setattr(Batch, "halves", lambda batch: seen.append(halves(batch)) or seen[-1])
    # Some batches have less than 512 tokens and are not split.
    large = [*SETTINGS, "train.tokens=514", "train.steps=8", "train.threads=2"]
    regard.train("reverse", out=tmp_path / "one", overrides=[*large, "train.accumulate=2"])
    done = fork(tmp_path / "two", f"train.parallel={parallel}", settings=large)
    assert done.returncode == 0, done.stderr[-3000:]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=CLOSE)
    assert {len(parts) for parts in seen} == {1, 2}


def test_scores_of_a_split_dev_set_equal_those_of_one_process(one_process, two_processes):
    validated = [
        next(event for event in reversed(RunFolder(run).read_log()) if event["event"] == "validated")
        for run in (one_process, two_processes)
    ]
    assert validated[1]["loss"] == pytest.approx(validated[0]["loss"], abs=CLOSE)
    assert [one["source"] for one in validated[1]["examples"]] == [one["source"] for one in validated[0]["examples"]]


@pytest.mark.slow
def test_shards_train_the_same_model_as_copies_and_save_an_ordinary_run(one_process, tmp_path):
    done = fork(tmp_path / "run", "train.parallel=shards", "train.ema=0.9")
    assert done.returncode == 0, done.stderr[-3000:]
    assert losses(tmp_path / "run") == pytest.approx(losses(one_process), abs=CLOSE)
    assert final(tmp_path / "run").keys() == final(one_process).keys()
    assert RunFolder(tmp_path / "run").problems() == []
    assert len(regard.load(tmp_path / "run").translate(["a b c"])) == 1


@pytest.mark.slow
def test_stages_and_mixtures_are_the_same_for_one_process_and_for_two(tmp_path):
    corpora = [
        "{generate='reverse/valid', weight=0.3, until=7}",
        "{generate='copy/valid', weight=1.7, tag='<copy>', from=3}",
    ]
    mixture = [f"data.train=[{', '.join(corpora)}]"]
    regard.train("reverse", out=tmp_path / "one", overrides=[*SETTINGS, *mixture, "train.accumulate=2"])
    done = fork(tmp_path / "two", *mixture)
    assert done.returncode == 0, done.stderr[-3000:]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=CLOSE)
    assert_close(tmp_path / "two", tmp_path / "one", 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["train.parallel=copies", "train.parallel=shards"])
def test_a_run_of_two_processes_resumes_in_one_process_and_vice_versa(one_process, tmp_path, first):
    out, steady = tmp_path / "run", "train.warmup_steps=4000"
    alone = [*SETTINGS, steady, "train.accumulate=2"]
    done = fork(out, first, steady, "train.steps=4")
    assert done.returncode == 0, done.stderr[-3000:]
    (out / "final").rename(tmp_path / "after 4")
    regard.train("reverse", out=out, overrides=[*alone, "train.steps=8"], accept=["train.steps", "train.accumulate"])
    (out / "final").rename(tmp_path / "after 8")
    done = fork(out, first, steady)
    assert done.returncode == 0, done.stderr[-3000:]
    regard.train("reverse", out=tmp_path / "uninterrupted", overrides=alone)
    assert losses(out) == pytest.approx(losses(tmp_path / "uninterrupted"), abs=CLOSE)
    assert_close(out, tmp_path / "uninterrupted", 1e-3)


@pytest.mark.slow
def test_three_processes_with_two_batches_per_epoch_take_the_same_number_of_steps(tmp_path):
    (tmp_path / "few.tsv").write_text("".join(f"{'abcde'[: 1 + n % 5]}\t{'edcba'[: 1 + n % 5]}\n" for n in range(7)))
    recipe = tmp_path / "few.toml"
    recipe.write_text(
        '[data]\ntrain.pairs = "few.tsv"\n[tokenizer]\nkind = "char"\n[model]\nkind = "transformer"\n[train]\ntokens = 20\n'
    )
    own = [one for one in SETTINGS if not one.startswith("data.")]
    done = fork(tmp_path / "run", "train.tokens=20", recipe=recipe, processes=3, settings=own)
    assert done.returncode == 0, done.stderr[-3000:]
    assert RunFolder(tmp_path / "run").weights()[0].counters["step"] == 12


@pytest.mark.slow
def test_a_killed_worker_is_restarted_and_the_run_ends_as_if_uninterrupted(tmp_path):
    status, stderr = torchrun_with("die 1 6", tmp_path / "run", restarts=2)
    assert status == 0, stderr[-3000:]
    assert (tmp_path / "run.died").exists()
    done = fork(tmp_path / "uninterrupted")
    assert done.returncode == 0, done.stderr[-3000:]
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "uninterrupted"), abs=1e-6)
    assert_close(tmp_path / "run", tmp_path / "uninterrupted", 1e-6)


@pytest.mark.slow
def test_a_process_that_fails_ends_all_others_and_prints_its_error(tmp_path):
    # Processes that waited for the failed one would run into the timeout of `torchrun`.
    status, stderr = torchrun_with("fail 1 3", tmp_path / "run")
    assert status != 0
    assert "rank 1: the disk of this process has gone" in stderr


@pytest.mark.slow
def test_all_processes_stop_at_the_same_step_and_leave_a_run_that_can_be_resumed(tmp_path):
    command = ["--no-python", folder_of_command(*IMPORTED) / "regard", "train", "reverse", "--out", tmp_path / "run"]
    settings = [*SETTINGS, "train.steps=100000", "train.checkpoint_every=100000", "train.log_every=1"]
    with alone():
        process = start_torchrun(*command, *settings, stderr=subprocess.PIPE)
        for line in process.stderr:
            if line.startswith("step 5/"):
                break
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        status = process.wait()
        process.stderr.close()
    assert status != 0, "a scheduler would take the run for finished"
    (step,) = RunFolder(tmp_path / "run").steps()
    assert step >= 5
    assert not RunFolder(tmp_path / "run").finished
    assert os.listdir(tmp_path / "run" / "checkpoints") == [f"step-{step:08}"]


@pytest.mark.slow
def test_two_processes_train_a_part_of_a_model_as_one_does(one_process, tmp_path):
    init = [*SETTINGS, f"train.init={one_process}", "train.steps=6", "train.lr=0.1", "train.warmup_steps=2"]
    runs = {
        "lora": [*init, "train.adapt=lora"],
        "freeze": [*init, 'train.freeze=["encoder"]'],
        "freeze shards": [*init, 'train.freeze=["encoder"]', "train.parallel=shards"],
        "bias shards": [*init, "train.adapt=bias", "train.parallel=shards"],
    }
    words = [word for name, overrides in runs.items() for word in (tmp_path / name, *overrides, "--")]
    done = start("runs_worker.py", "reverse", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, overrides in runs.items():
        regard.train("reverse", out=tmp_path / f"{name} alone", overrides=[*overrides, "train.accumulate=2"])
        assert_close(tmp_path / name, tmp_path / f"{name} alone", 1e-4)
        before, after = final(one_process), final(tmp_path / name)
        changed = {key for key, weight in after.items() if not torch.equal(weight, before[key])}
        assert changed and ("freeze" not in name or not any(key.startswith("encoder.") for key in changed))
    done = fork(tmp_path / "refused", f"train.init={one_process}", "train.adapt=lora", "train.parallel=shards")
    assert "train.adapt=lora needs complete matrices; use train.parallel=copies" in done.stderr


STACKS = ["model.width=16", "model.num_layers=1", "model.hidden=16", "model.num_heads=2"]
SMALL = {
    "transformer": STACKS,
    "rnn": ["model.width=16", "model.hidden=16"],
    "convs2s": ["model.width=16", "model.encoder=[[16,3]]", "model.decoder=[[16,3]]"],
    "bytenet": ["model.width=16", "model.sets=1"],
    "nat": STACKS,
    "cmlm": STACKS,
    "ctc": STACKS,
}
TRANSLATORS = {name for name in MODELS.names() if MODELS.get(name, where="model.kind").task == "translation"}
assert SMALL.keys() == TRANSLATORS, "every translation family must be listed here"


@pytest.mark.slow
def test_every_family_can_be_sharded(tmp_path):
    short = ["train.tokens=256", "train.steps=2", "train.validate_pairs=2", "train.threads=1", "train.device=cpu"]
    short += ["decode.max_extra=2", "data.train.generate=reverse/valid"]
    families = {kind: [f"model.kind={kind}", "model.dropout=0.1", *SMALL[kind], *short] for kind in SMALL}
    words = [word for kind in SMALL for word in (tmp_path / kind, "train.parallel=shards", *families[kind], "--")]
    done = start("runs_worker.py", "reverse", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    for kind, overrides in families.items():
        regard.train("reverse", out=tmp_path / f"{kind} alone", overrides=[*overrides, "train.accumulate=2"])
        assert_close(tmp_path / kind, tmp_path / f"{kind} alone", 1e-4)
