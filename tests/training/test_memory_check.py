"""A token budget that does not fit into memory is refused before the first step, and one that fits is named."""

import gc
import re

import pytest
import torch

import regard
from regard.data.batch import make_batch
from regard.errors import TrainingError
from regard.models import build_model
from regard.run.folder import RunFolder
from regard.training import memory_check

SMALL = ["model.width=32", "model.num_layers=1", "model.hidden=64", "model.num_heads=2", "train.steps=1"]
MIB = 2**20
LONGEST = memory_check.longest_sentences(
    100, lambda length, count: make_batch([[3] * length] * count, [[3] * length] * count), added=1
)


@pytest.fixture
def model():
    return build_model(
        {"kind": "transformer", "width": 64, "num_layers": 2, "num_heads": 2, "hidden": 128},
        source_size=50,
        target_size=50,
    )


def budget_within(model, monkeypatch, mebibytes):
    monkeypatch.setattr(memory_check, "memory_left", lambda: mebibytes * MIB)
    return memory_check.largest_budget(model, LONGEST, precision=torch.float32)


def test_twice_the_memory_fits_about_twice_the_tokens(model, monkeypatch):
    few, many = (budget_within(model, monkeypatch, size) for size in (60, 120))
    assert 1.6 < many / few < 2.5, (few, many)


def test_a_budget_that_does_not_fit_is_refused_and_one_that_fits_is_named(model, monkeypatch):
    monkeypatch.setattr(memory_check, "memory_left", lambda: 60 * MIB)
    with pytest.raises(TrainingError, match="1000000 does not fit into memory; train") as error:
        memory_check.check_memory(model, 1_000_000, LONGEST, precision=torch.float32)
    best = int(re.search(r"; train.tokens=(\d+) does", str(error.value)).group(1))
    memory_check.check_memory(model, best, LONGEST, precision=torch.float32)
    with pytest.raises(TrainingError):
        memory_check.check_memory(model, 2 * best, LONGEST, precision=torch.float32)


def test_a_model_that_is_too_large_for_any_batch_is_refused(model, monkeypatch):
    with pytest.raises(TrainingError, match="use a smaller model"):
        budget_within(model, monkeypatch, 1)


def test_nothing_is_written_when_memory_is_too_small(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_check, "memory_left", lambda: 2 * MIB)
    with pytest.raises(TrainingError, match="does not fit into memory"):
        regard.train("copy", out=tmp_path / "run", overrides=[*SMALL, "train.tokens=100000"])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_auto_chooses_a_budget_that_fits_and_keeps_it_when_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_check, "memory_left", lambda: 30 * MIB)
    regard.train("copy", out=tmp_path / "run", overrides=[*SMALL, "train.tokens=auto"])
    chosen = RunFolder(tmp_path / "run").recipe().train.tokens
    assert 256 <= chosen < 65_536
    (tmp_path / "run" / "final").rename(tmp_path / "away")
    monkeypatch.setattr(memory_check, "memory_left", lambda: 300 * MIB)
    more = [*SMALL[:-1], "train.steps=2", "train.tokens=auto"]
    regard.train("copy", out=tmp_path / "run", overrides=more, accept=["train.steps"])
    assert RunFolder(tmp_path / "run").recipe().train.tokens == chosen


def test_the_memory_check_holds_no_memory_when_it_is_over(model):
    def tensors():
        gc.collect()
        return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())

    memory_check.check_memory(model, 512, LONGEST, precision=torch.float32)
    before = tensors()
    memory_check.check_memory(model, 512, LONGEST, precision=torch.float32)
    assert tensors() == before


@pytest.mark.slow
def test_the_memory_check_does_not_change_the_run(tmp_path, monkeypatch):
    losses = []
    for out in ("tried", "not tried"):
        regard.train("copy", out=tmp_path / out, overrides=[*SMALL, "model.dropout=0.3"])
        losses.append([one["loss"] for one in RunFolder(tmp_path / out).read_log() if one["event"] == "progress"])
        monkeypatch.setattr("regard.tasks.setup.check_memory", lambda *arguments, **options: None)
    assert losses[0] == losses[1]


def test_running_out_of_memory_in_training_is_reported_in_one_sentence(tmp_path, monkeypatch):
    def no_memory(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("regard.training.data_parallel.DistributedModel.loss", no_memory)
    with pytest.raises(TrainingError, match="memory ran out at step 1"):
        regard.train("copy", out=tmp_path / "run", overrides=SMALL)
