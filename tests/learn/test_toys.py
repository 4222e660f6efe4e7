"""What a sequence model must be able to learn, trained here and now to a stated score."""

import pytest

import regard


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_is_learned_to_99_percent(task, tmp_path):
    regard.train(task, out=tmp_path / task, overrides=["train.threads=1"])
    [result] = regard.evaluate(tmp_path / task)
    exact = next(score.value for score in result.scores if score.name == "exact")
    assert exact > 99
