"""Train on toy tasks that a sequence model must be able to learn, to a stated score."""

import pytest

import regard
from regard.models import MODELS


def exact_after(task, run, *overrides):
    """Train, and return the percentage of exact matches on the test set."""
    regard.train(task, out=run, overrides=["train.threads=1", *overrides])
    [result] = regard.evaluate(run)
    return next(score.value for score in result.scores if score.name == "exact")


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_toy_task_is_learned_to_99_percent(task, tmp_path):
    assert exact_after(task, tmp_path / task) > 99


STACKS = "model.width=64 model.num_layers=2 model.num_heads=4 model.hidden=256 model.norm_order=pre"
RIVALS = {
    "rnn": ("reverse", "model.width=64 model.hidden=128", 98),
    "convs2s": (
        "copy",
        "model.width=64 model.encoder=[[64,3],[64,3]] model.decoder=[[64,3],[64,3]] train.steps=900",
        95,
    ),
    "bytenet": ("copy", "model.width=64 model.sets=1 train.steps=500", 98),
    "nat": ("copy", STACKS + " train.steps=500", 98),
    "cmlm": ("copy", STACKS + " train.steps=500", 98),
    "ctc": ("reverse", STACKS + " train.steps=900", 90),
}
TRANSLATORS = {name for name in MODELS.names() if MODELS.get(name, where="model.kind").task == "translation"}
assert RIVALS.keys() == TRANSLATORS - {"transformer"}, "every translation family must be listed here"


@pytest.mark.parametrize("kind", RIVALS)
def test_every_family_learns_a_toy_task(kind, tmp_path):
    task, overrides, percent = RIVALS[kind]
    assert exact_after(task, tmp_path / "run", f"model.kind={kind}", "model.dropout=0.0", *overrides.split()) > percent
