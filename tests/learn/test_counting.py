"""A language model learns to count, to the perplexity that can be computed by hand."""

import math

import pytest

import regard
from regard.decoding.sampling import SampleOptions
from regard.text.toys import COUNTING_LENGTHS, counting_text

VALID = {counting_text(first, length) for first in range(10) for length in COUNTING_LENGTHS}


@pytest.mark.slow
def test_a_trained_language_model_has_the_best_perplexity_and_samples_valid_texts(tmp_path):
    quick = ["train.threads=1", "train.validate_every=1000", "train.checkpoint_every=1000"]
    regard.train("counting", out=tmp_path / "run", overrides=["model.num_layers=1", "model.hidden=64", *quick])
    [result] = regard.evaluate(tmp_path / "run")
    scores = {score.name: score.value for score in result.scores}
    best = math.exp((math.log(10) + math.log(6)) / 6.5)
    assert best <= scores["perplexity"] < 1.03 * best
    model = regard.load(tmp_path / "run", device="cpu")
    found = model.sample([""] * 100, options=SampleOptions(temperature=0.7, top_k=10))
    assert sum(text in VALID for text in found) >= 95
    drawn = model.sample(["8 9"] * 20, options=SampleOptions(temperature=0.7))
    assert all(text.startswith("8 9 0") for text in drawn) and len(set(drawn)) > 1
