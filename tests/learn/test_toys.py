"""Train on toy tasks that a sequence model must be able to learn, to a stated score."""

import pytest

import regard
from regard.models import MODELS


def score_after(recipe, run, *overrides, metric="exact"):
    """Train, and return the score on the test set, in percent."""
    regard.train(recipe, out=run, overrides=["train.threads=1", *overrides])
    [result] = regard.evaluate(run)
    return next(score.value for score in result.scores if score.name == metric)


TOYS = {
    "copy": "exact",
    "reverse": "exact",
    "sort": "exact",
    "runs": "accuracy",
    "majority": "accuracy",
    "sort-numbers": "exact",
    "rooms": "accuracy",
}


@pytest.mark.slow(unless=["majority"])
@pytest.mark.parametrize("recipe", TOYS)
def test_toy_task_is_learned_to_99_percent(recipe, tmp_path):
    assert score_after(recipe, tmp_path / recipe, metric=TOYS[recipe]) > 99


STACKS = "model.width=64 model.num_layers=2 model.num_heads=4 model.hidden=256 model.norm_order=pre"
READER = (
    "model.width=64 model.num_layers=2 model.num_heads=4 model.hidden=128 model.norm_order=pre model.positions=rotary"
)
READER += " train.lr=3e-3 train.clip_norm=1.0 train.tokens=768 train.steps=800"
RIVALS = {
    "rnn": ("reverse", "model.width=64 model.hidden=128 train.steps=350", 98),
    "convs2s": (
        "copy",
        "model.width=64 model.encoder=[[64,3],[64,3]] model.decoder=[[64,3],[64,3]] train.steps=900",
        95,
    ),
    "bytenet": ("copy", "model.width=64 model.sets=1 train.steps=500", 98),
    "nat": ("copy", STACKS + " train.steps=500", 98),
    "cmlm": ("copy", STACKS + " train.steps=500", 98),
    "ctc": ("copy", STACKS + " train.steps=400", 95),
    # A reader stays near 45 % for a few hundred steps, before it finds the sentences about the person.
    "reader": ("rooms", READER, 60),
}
OF_TOYS = {"transformer", "tagger", "classifier", "pointer", "entnet"}  # each is the family of one of the recipes above
assert RIVALS.keys() == {*MODELS.names()} - OF_TOYS, "a new family must learn something too"


@pytest.mark.slow
@pytest.mark.parametrize("kind", RIVALS)
def test_every_family_learns_a_toy_task(kind, tmp_path):
    recipe, overrides, percent = RIVALS[kind]
    options = [f"model.kind={kind}", "model.dropout=0.0", *overrides.split()]
    assert score_after(recipe, tmp_path / "run", *options) > percent
