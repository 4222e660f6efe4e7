"""Validation, early stopping, the best checkpoint, and steps whose gradients are not finite."""

import json

import pytest
import torch

import regard
from regard.errors import ConfigError, TrainingError
from regard.run.folder import RunFolder
from regard.text.tokenizer import BOS, EOS
from regard.training.events import Noted, Progress, Started, Validated, Validation
from regard.training.trainer import Trainer

SMALL = [
    *(
        "train.checkpoint_every=5",
        "train.validate_every=5",
        "train.validate_pairs=10",
        "train.log_every=1",
        "train.tokens=128",
    ),
    *("model.width=16", "model.num_layers=1", "model.hidden=16", "train.threads=1"),
    *("data.train.generate=copy/valid", "decode.max_extra=3"),  # 500 rows, and short outputs
]


def train(tmp_path, *settings, name="run"):
    events = []
    outcome = regard.train("copy", out=tmp_path / name, overrides=[*SMALL, *settings], listen=events.append)
    return outcome, events


@pytest.mark.slow
def test_patience_ends_a_run_that_does_not_improve(tmp_path):
    outcome, events = train(tmp_path, "train.steps=1000", "train.lr=0.0", "train.metric=loss", "train.patience=3")
    assert outcome.finished
    steps = [event.step for event in events if isinstance(event, Validated)]
    assert steps == [5, 10, 15, 20]  # the first one is the best, three more are not better
    assert any("no better loss for 3 validations" in event.text for event in events if isinstance(event, Noted))


def test_the_best_checkpoint_is_kept_and_becomes_final(tmp_path, monkeypatch):
    scores = iter([5.0, 1.0, 3.0, 4.0, 2.0, 6.0])
    original = Trainer._validate

    def validate(self):
        loss = next(scores)
        self.validate = lambda model: Validation({"loss": loss}, ())
        original(self)

    monkeypatch.setattr(Trainer, "_validate", validate)
    outcome, _ = train(tmp_path, "train.steps=30", "train.metric=loss", "train.final=best", "train.keep=2")
    final, _ = outcome.run.weights()
    assert final.counters["from_steps"] == [10]
    assert [int(path.name[5:]) for path in outcome.run.checkpoints()] == [10, 25, 30]


def test_final_weights_are_the_mean_of_the_last_checkpoints(tmp_path):
    outcome, _ = train(tmp_path, "train.steps=15", "train.average=3", "train.keep=1")
    final, name = outcome.run.weights()
    assert name == "final" and final.counters["from_steps"] == [5, 10, 15]
    each = [outcome.run.checkpoint_at(step).weights for step in (5, 10, 15)]
    for name, weight in final.weights.items():
        torch.testing.assert_close(weight, sum(one[name] for one in each) / 3)


def test_steps_that_are_not_finite_are_skipped_and_too_many_stop_training(tmp_path):
    with pytest.raises(TrainingError, match="4 steps in a row"):
        train(
            tmp_path,
            "train.steps=50",
            "train.lr=1e30",
            "train.schedule=inverse-sqrt",
            "train.warmup_steps=1",
            "train.max_bad_steps=4",
        )
    assert RunFolder(tmp_path / "run").exists
    assert not RunFolder(tmp_path / "run").finished
    (saved,) = (tmp_path / "run").glob("bad-batch-*.json")
    (batch,) = json.loads(saved.read_text())["batches"]
    assert len(batch["source"]) == len(batch["target"]) > 0
    assert all(ids[-1] == EOS for ids in batch["source"]) and all(ids[0] == BOS for ids in batch["target"])


@pytest.mark.slow
def test_runs_are_equal_exactly_if_their_seeds_are(tmp_path):
    def losses(name, seed):
        _, events = train(tmp_path, "train.steps=6", f"train.seed={seed}", "model.dropout=0.3", name=name)
        return [event.loss for event in events if isinstance(event, Progress)]

    assert losses("a", 1) == losses("b", 1) != losses("c", 2)


def test_training_does_not_use_the_global_generator(tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(tmp_path, "train.steps=3", "model.dropout=0.3")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_first_event_describes_device_and_precision(tmp_path):
    _, events = train(tmp_path, "train.steps=1", "train.device=cpu")
    [started] = [event for event in events if isinstance(event, Started)]
    assert started.how == "cpu, 1 thread, float32"


def test_final_best_without_a_dev_set_is_refused(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    (tmp_path / "my.toml").write_text('[data]\ntrain = { pairs = "pairs.tsv" }\n[model]\nkind = "transformer"\n')
    with pytest.raises(ConfigError, match=r"name them in data.valid"):
        regard.train(str(tmp_path / "my.toml"), out=tmp_path / "run", overrides=["train.final=best"])


def test_examples_that_a_later_epoch_leaves_out_are_noted(tmp_path):
    few = "{size=20, shortest=1, longest=4}"
    options = [f"data.{part}.options={few}" for part in ("train", "valid")]
    options += ["data.train.fresh=true", "data.max_length=20"]
    events = []
    small = [one for one in SMALL if one.startswith("train.")]
    regard.train(
        "documents", out=tmp_path / "run", overrides=[*small, *options, "train.steps=20"], listen=events.append
    )
    noted = [event for event in events if isinstance(event, Noted) and "leaves out" in event.text]
    assert noted[0].step == 0 and noted[0].text.startswith("training leaves out")
    assert any("of 20 examples, epoch" in event.text and event.step > 0 for event in noted)
