"""A model that copies keeps names it has never seen; the same model without copying cannot output them."""

import pytest

import regard
from tests.learn.test_toys import score_after

SMALL = [
    *("model.num_layers=1", "model.hidden=64", "train.tokens=512"),
    *("train.lr=5e-3", "train.warmup_steps=20", "train.steps=100"),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "model.kind=rnn model.width=64 model.dropout=0.0 train.steps=130"])
def test_unseen_names_are_copied_letter_for_letter(kind, tmp_path):
    assert score_after("names", tmp_path / "run", "model.copy=true", *SMALL, *kind.split()) > 99
    model = regard.load(tmp_path / "run", device="cpu")
    assert model.predict(["my name is Qxyz-7 and i come from Ångström"]) == ["Qxyz-7 comes from Ångström"]


@pytest.mark.slow
def test_without_copying_no_unseen_name_is_right(tmp_path):
    assert score_after("names", tmp_path / "run", "model.copy=false", *SMALL) < 1
