"""Every model of binary sequences learns to copy; the Neural Turing Machine also what is longer than in training."""

import pytest

import regard


def scores_after(run, *overrides):
    """Train, and return the percentage of sequences without a wrong bit, by test set."""
    regard.train("ntm-copy-small", out=run, overrides=["train.threads=1", *overrides], listen=lambda event: None)
    found = regard.evaluate(run)
    return {result.name: next(one.value for one in result.scores if one.name == "exact") for result in found}


@pytest.mark.slow
def test_a_neural_turing_machine_copies_longer_sequences_than_those_of_training(tmp_path):
    scores = scores_after(tmp_path / "run")
    assert scores["length-4"] == 100 and scores["length-6"] > 90


BASELINES = {
    "binary-lstm": ['model={kind="binary-lstm", width=64, num_layers=1}', "train.lr=1e-2", "train.tokens=384"],
    "binary-transformer": [
        'model={kind="binary-transformer", width=64, num_layers=2, num_heads=4, hidden=128, dropout=0.0, norm_order="pre"}',
        *("train.lr=3e-3", "train.tokens=512", "train.steps=500"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASELINES)
@pytest.mark.filterwarnings("ignore::regard.RegardWarning")
def test_the_baselines_copy_what_is_as_long_as_in_training_and_nothing_longer(kind, tmp_path):
    scores = scores_after(tmp_path / "run", *BASELINES[kind])
    assert scores["length-4"] > 90 and scores["length-6"] < 20
