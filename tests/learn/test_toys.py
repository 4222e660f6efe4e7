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
    "repeats": "masked_accuracy",
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
    "pointer-lstm": (
        "sort-numbers",
        "model.width=32 model.hidden=128 model.outputs=permutation train.steps=300 train.lr=4e-3",
        95,
    ),
    # A reader stays near 45 % for a few hundred steps, before it finds the sentences about the person.
    "reader": ("rooms", READER, 60),
}
# Each is the family of a recipe that another test trains.
OF_TOYS = {"transformer", "tagger", "classifier", "pointer", "entnet", "captioner", "han", "masked-lm"}
OF_TOYS |= {"ntm", "binary-lstm", "binary-transformer", "decoder"}
assert RIVALS.keys() == {*MODELS.names()} - OF_TOYS, "a new family must learn something too"


@pytest.mark.slow
@pytest.mark.parametrize("kind", RIVALS)
def test_every_family_learns_a_toy_task(kind, tmp_path):
    recipe, overrides, percent = RIVALS[kind]
    options = [f"model.kind={kind}", "model.dropout=0.0", *overrides.split()]
    assert score_after(recipe, tmp_path / "run", *options) > percent


@pytest.mark.slow
def test_a_transformer_learns_to_parse(tmp_path):
    assert score_after("expressions", tmp_path / "run", metric="bracket_f1") > 90


TINY_CAPTIONER = [
    *("model.width=64", "model.num_layers=2", "model.decoder_layers=1", "model.num_heads=4", "model.hidden=128"),
    *("model.dropout=0.0", "train.tokens=1024", "train.warmup_steps=40", "train.lr=1e-2", "train.steps=600"),
    *("train.validate_every=600", "train.checkpoint_every=600"),
]


def tiny_pictures(split, count):
    """Squares and crosses in three colours, on 16 x 16 pixels."""
    return f'{{generate="shapes/{split}",options={{count={count},size=16,colours=3,kinds=2}}}}'


@pytest.mark.slow
def test_a_captioner_learns_to_describe_tiny_pictures(tmp_path):
    """A caption that ignores the picture has about 40 % wrong words."""
    train, valid, seen = tiny_pictures("train", 6000), tiny_pictures("valid", 200), tiny_pictures("seen", 200)
    data = [f"data.train={train}", f"data.valid={valid}", f"data.test={{seen={seen}}}"]
    assert score_after("shapes", tmp_path / "run", *data, *TINY_CAPTIONER, metric="token_errors") < 10
