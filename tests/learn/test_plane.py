"""Pointer networks learn convex hulls and tours of few points."""

import pytest

from tests.learn.test_toys import score_after

QUICK = [
    "train.validate_every=1000",
    "train.checkpoint_every=1000",
    *("model.hidden=64", "train.lr=6e-3", "train.warmup_steps=30"),
    "data.test={n5={generate='PROBLEM/test', options=OPTIONS}}",
]
OPTIONS = "{min_points=5, max_points=5, count=300, start='lowest'}"


def of(problem, count):
    """Overrides of a recipe: instances of five points."""
    texts = [
        f"data.train={{generate='{problem}/train', options={OPTIONS}}}".replace("count=300", f"count={count}"),
        *QUICK,
    ]
    return [text.replace("PROBLEM", problem).replace("OPTIONS", OPTIONS) for text in texts]


@pytest.mark.slow
def test_hulls_of_five_points_are_learned(tmp_path):
    overrides = ["model.num_layers=2", "train.tokens=384", "train.decay=0.6", "train.steps=250", *of("hull", 6000)]
    assert score_after("hull-10", tmp_path / "run", *overrides, metric="hull_accuracy") > 80


@pytest.mark.slow
def test_tours_of_five_cities_are_learned(tmp_path):
    overrides = ["model.num_layers=1", "train.tokens=512", "train.steps=150"]
    overrides += [
        *("model.outputs=permutation", "evaluate.positions=tour", "train.metric=tour_ratio"),
        "data.valid={generate='tour/valid', options=" + OPTIONS + "}",
        *of("tour", 6000),
    ]
    assert score_after("hull-10", tmp_path / "run", *overrides, metric="tour_ratio") < 1.05
