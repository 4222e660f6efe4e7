"""A finished run continues to more steps, with the same result as one that was longer from the start."""

import pytest
import torch

import regard
from regard.errors import ConfigError
from regard.training.events import Noted, Progress, Started

SMALL = [
    *("model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.tokens=128"),
    *("train.schedule=inverse-sqrt", "train.lr=1e-3", "train.warmup_steps=2", "train.validate_pairs=2"),
    *("train.checkpoint_every=3", "train.threads=1", "train.device=cpu"),
]


def train(out, steps, **options):
    events = []
    result = regard.train("copy", out=out, overrides=[*SMALL, f"train.steps={steps}"], listen=events.append, **options)
    return result, events


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("continuing") / "run"
    return out, train(out, 3)[1]


def test_the_first_step_is_reported(finished):
    assert [event.step for event in finished[1] if isinstance(event, Progress)] == [1, 3]


@pytest.mark.slow
def test_more_steps_are_refused_once_with_advice_that_works(finished, tmp_path):
    out, _ = finished
    with pytest.raises(ConfigError, match=r"train.steps: 3 -> 6.*pass --accept train.steps$"):
        train(out, 6)
    result, events = train(out, 6, accept=["train.steps"])
    assert result.trained and result.finished and result.run.recipe().train.steps == 6
    assert next(event.step for event in events if isinstance(event, Started)) == 3
    longer, _ = train(tmp_path / "longer", 6)
    expected = longer.run.weights()[0].weights
    for name, weight in result.run.weights()[0].weights.items():
        assert torch.equal(weight, expected[name]), name
    again, events = train(out, 6, accept=["train.steps"])
    assert not again.trained and isinstance(events[-1], Noted) and "already finished" in events[-1].text


def test_settings_that_cannot_change_are_refused_without_advice_to_accept_them(finished):
    out, _ = finished
    with pytest.raises(ConfigError, match="holds a run with other settings") as caught:
        regard.train("copy", out=out, overrides=[*SMALL, "train.steps=6", "tokenizer.kind=char"])
    assert "tokenizer.kind: word -> char" in str(caught.value) and "--accept" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"another recipe, copy \(.*name another folder"):
        regard.train("reverse", out=out, overrides=[*SMALL, "train.steps=3"])


def test_an_export_cannot_be_continued(finished, tmp_path):
    copy = regard.export(finished[0], tmp_path / "copy")
    steps = copy.recipe().train.steps
    with pytest.raises(ConfigError, match="is an export, which cannot be trained further"):
        train(copy.path, steps + 3, accept=["train.steps"])
