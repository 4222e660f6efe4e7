"""Train on toy tasks that a sequence model must be able to learn, to a stated score."""

import random
from functools import partial

import pytest

import regard
from regard.models import MODELS
from regard.text.generators import generate


def score_after(recipe, run, *overrides, metric="exact", data=None):
    """Train, and return the score on the test set, in percent. Scores on the dev set during training are left out."""
    quick = ["train.threads=1", "train.validate_every=1000"]
    regard.train(recipe, out=run, overrides=[*quick, *overrides], data=data)
    [result] = regard.evaluate(run, data=data)
    return next(score.value for score in result.scores if score.name == metric)


def rows_of_letters(change):
    """Return rows of 3 to 5 of 8 letters, and what becomes of them."""
    drawn, rows = random.Random(1), {}
    while len(rows) < 6300:
        letters = [drawn.choice("abcdefgh") for _ in range(drawn.randint(3, 5))]
        rows[" ".join(letters)] = " ".join(change(letters))
    return rows


def rows_of_numbers():
    """Return rows of 2 to 4 of 12 numbers from 0.00 to 0.55, and their positions in ascending order."""
    drawn, rows = random.Random(1), {}
    while len(rows) < 6300:
        numbers = drawn.sample(range(12), drawn.randint(2, 4))
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        rows[" ".join(f"{number / 20:.2f}" for number in numbers)] = " ".join(map(str, order))
    return rows


def short_stories():
    """Return stories of two or four sentences, of which the name and the room are left: `Sandra kitchen.`"""
    rows = {}
    for pair in generate("rooms/train", {"size": 16_000}):
        *story, question = [sentence.split() for sentence in pair.source.split(" | ")]
        if len(story) <= 4:
            told = [f"{sentence[0]} {sentence[-1]}" for sentence in story]
            rows[" | ".join([*told, question[-1]])] = pair.target
    return rows


def shortest_of(corpus, longest):
    """Return the pairs of a corpus whose sources have few words."""
    pairs = generate(f"{corpus}/train", {})
    return {pair.source: pair.target for pair in pairs if len(pair.source.split()) <= longest}


SHORT = {
    "copy": partial(rows_of_letters, list),
    "reverse": partial(rows_of_letters, lambda letters: letters[::-1]),
    "sort-numbers": rows_of_numbers,
    "rooms": short_stories,
    "expressions": partial(shortest_of, "expressions", 5),
}


def short_rows(recipe, folder):
    """Write short rows, and return the overrides of a recipe that reads them. No row occurs twice."""
    lines = [f"{source}\t{target}\n" for source, target in SHORT[recipe]().items()][:6300]
    for name, part in {"train": lines[:-300], "valid": lines[-300:-200], "test": lines[-200:]}.items():
        (folder / f"{name}.tsv").write_text("".join(part))
    files = ["data.train={pairs='train.tsv'}", "data.valid={pairs='valid.tsv'}", "data.test={test={pairs='test.tsv'}}"]
    return [*files, "train.tokens=512"]


TOYS = {  # other families learn to copy, below
    "reverse": "exact",
    "runs": "accuracy",
    "majority": "accuracy",
    "sort-numbers": "exact",
    "rooms": "accuracy",
    "repeats": "masked_accuracy",
}


@pytest.mark.slow(unless=["majority"])
@pytest.mark.parametrize("recipe", TOYS)
def test_toy_task_is_learned_to_99_percent(recipe, tmp_path):
    rows = short_rows(recipe, tmp_path) if recipe in ("reverse", "sort-numbers") else []
    fewer = {
        "reverse": ["model.width=32", "model.hidden=64", "train.lr=8e-3", "train.steps=250"],
        "runs": [
            *("model.num_layers=1", "model.hidden=64", "model.positions=rotary"),
            *("train.tokens=512", "train.lr=1e-2", "train.decay=0.6", "train.steps=340"),
        ],
        "majority": ["train.tokens=512", "train.steps=200"],
        "rooms": ["train.steps=280"],
        "repeats": [
            *("model.width=32", "model.num_heads=2", "model.hidden=64", "model.positions=rotary"),
            *("train.tokens=512", "train.lr=1e-2", "train.decay=0.6", "train.steps=220"),
        ],
        "sort-numbers": [
            *("model.width=32", "model.num_layers=1", "model.num_heads=2", "model.hidden=64"),
            *("train.lr=1e-2", "train.decay=0.6", "train.steps=220"),
        ],
    }
    data = tmp_path if rows else None
    assert score_after(recipe, tmp_path / "run", *rows, *fewer.get(recipe, []), metric=TOYS[recipe], data=data) > 99


FAST = " train.lr=1e-2 train.warmup_steps=20 train.decay=0.6"
NARROW = "model.width=32 model.num_layers=1 model.num_heads=4 model.hidden=64 model.norm_order=pre"
STACKS = "model.width=64 model.num_layers=1 model.num_heads=4 model.hidden=64 model.norm_order=pre"
READER = "model.width=64 model.num_layers=2 model.num_heads=4 model.hidden=64 model.norm_order=pre"
READER += " model.positions=rotary train.lr=4e-3 train.clip_norm=1.0 train.tokens=768 train.steps=300"
RIVALS = {
    "rnn": ("reverse", "model.width=32 model.hidden=64 train.lr=1e-2 train.steps=150", 98),
    "convs2s": (
        "copy",
        "model.width=32 model.encoder=[[32,3],[32,3]] model.decoder=[[32,3],[32,3]] train.steps=110" + FAST,
        98,
    ),
    "bytenet": ("copy", "model.width=64 model.sets=1 train.steps=100", 98),
    "nat": ("copy", NARROW + " train.steps=100" + FAST, 98),
    "cmlm": ("copy", STACKS + " train.lr=8e-3 train.steps=170", 98),
    "ctc": ("copy", NARROW + " train.steps=80" + FAST, 98),
    "pointer-lstm": (
        "sort-numbers",
        "model.width=32 model.hidden=64 model.outputs=permutation train.steps=110" + FAST,
        95,
    ),
    # The room that was told last is the answer to 52 % of the questions.
    "reader": ("rooms", READER, 90),
}
# Each is the family of a recipe that another test trains.
OF_TOYS = {"transformer", "tagger", "classifier", "pointer", "entnet", "captioner", "han", "masked-lm"}
OF_TOYS |= {"ntm", "binary-lstm", "binary-transformer", "decoder"}
assert RIVALS.keys() == {*MODELS.names()} - OF_TOYS, "a new family must learn something too"


@pytest.mark.slow
@pytest.mark.parametrize("kind", RIVALS)
def test_every_family_learns_a_toy_task(kind, tmp_path):
    recipe, overrides, percent = RIVALS[kind]
    rows = short_rows(recipe, tmp_path) if recipe in SHORT else []
    options = [f"model.kind={kind}", "model.dropout=0.0", *rows, *overrides.split()]
    assert score_after(recipe, tmp_path / "run", *options, data=tmp_path if rows else None) > percent


@pytest.mark.slow
def test_a_transformer_learns_to_parse(tmp_path):
    options = ["model.width=32", "model.num_layers=1", "model.hidden=64"]
    options += [*short_rows("expressions", tmp_path), "train.lr=1e-2", "train.decay=0.6", "train.steps=180"]
    assert score_after("expressions", tmp_path / "run", *options, metric="bracket_f1", data=tmp_path) > 90


TINY_CAPTIONER = [
    *("model.width=64", "model.num_layers=1", "model.decoder_layers=1", "model.num_heads=4", "model.hidden=128"),
    *("model.dropout=0.0", "train.tokens=512", "train.warmup_steps=30", "train.checkpoint_every=400"),
    *("train.optimizer=muon", "train.lr=6e-3", "train.steps=360"),
]


def tiny_pictures(split, count):
    """Squares and crosses in two colours, on 16 x 16 pixels."""
    return f'{{generate="shapes/{split}",options={{count={count},size=16,colours=2,kinds=2}}}}'


@pytest.mark.slow
def test_a_captioner_learns_to_describe_tiny_pictures(tmp_path):
    """A caption that is the same for all pictures has 50 % wrong words."""
    train, valid, seen = tiny_pictures("train", 6000), tiny_pictures("valid", 200), tiny_pictures("seen", 200)
    data = [f"data.train={train}", f"data.valid={valid}", f"data.test={{seen={seen}}}"]
    assert score_after("shapes", tmp_path / "run", *data, *TINY_CAPTIONER, metric="token_errors") < 10
