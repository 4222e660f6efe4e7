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


def vectors(split, shortest, longest, count):
    """Sequences of vectors of three bits."""
    options = f"{{width=3, min_length={shortest}, max_length={longest}, count={count}}}"
    return f'generate="ntm-copy/{split}", options={options}'


SHORTER = [
    f"data.train={{{vectors('train', 1, 3, 2000)}, fresh=true}}",
    f"data.valid={{{vectors('valid', 1, 3, 100)}}}",
    f"data.test={{length-3={{{vectors('test', 3, 3, 100)}}}, length-5={{{vectors('test', 5, 5, 100)}}}}}",
    "train.tokens=384",
]
BASELINES = {
    "binary-lstm": [
        'model={kind="binary-lstm", width=64, num_layers=1}',
        *("train.lr=2e-2", "train.decay=0.5", "train.steps=450"),
    ],
    "binary-transformer": [
        'model={kind="binary-transformer", width=32, num_layers=2, num_heads=4, hidden=64, dropout=0.0, norm_order="pre"}',
        *("train.lr=6e-3", "train.decay=0.6", "train.steps=350"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASELINES)
@pytest.mark.filterwarnings("ignore::regard.RegardWarning")
def test_the_baselines_copy_what_is_as_long_as_in_training_and_nothing_longer(kind, tmp_path):
    scores = scores_after(tmp_path / "run", *SHORTER, *BASELINES[kind])
    assert scores["length-3"] > 90 and scores["length-5"] < 20
