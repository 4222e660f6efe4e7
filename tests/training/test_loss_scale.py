"""The loss scale of float16 training. Its logic is that of any precision, so a CPU tests it in float32."""

import math

import pytest
import torch

import regard
from regard.config import TrainConfig
from regard.errors import CheckpointError, ConfigError
from regard.run.folder import RunFolder
from regard.training import trainer
from regard.training.data_parallel import DistributedModel
from regard.training.events import Noted
from regard.training.loss_scale import FIRST, LARGEST, SMALLEST, LossScale
from regard.training.step import StepResult, make_optimizer, read, training_step
from tests.training.test_step import SOURCES, TARGETS, fresh, make_batch

CPU = torch.device("cpu")
GOOD, BAD = torch.tensor(True), torch.tensor(False)


def numbers(scale):
    return scale.scale.item(), scale.good_steps.item()


def test_an_overflow_halves_the_scale_and_good_steps_double_it():
    scale = LossScale(CPU, first=8.0, good_steps=3)
    found = []
    for finite in (GOOD, GOOD, BAD, GOOD, GOOD, GOOD, GOOD):
        scale.update(finite)
        found.append(numbers(scale))
    assert found == [(8, 1), (8, 2), (4, 0), (4, 1), (4, 2), (8, 0), (8, 1)]


def test_the_scale_stays_within_its_bounds():
    scale = LossScale(CPU, first=2.0, good_steps=1)
    for _ in range(3):
        scale.update(BAD)
    assert scale.scale.item() == SMALLEST == 1
    for _ in range(40):
        scale.update(GOOD)
    assert scale.scale.item() == LARGEST == 2**24


def trained(scale, *, steps=3, optimizer="adam", torch_optimizer=None, **settings):
    """Return the weights and the results of a few steps."""
    model, config = fresh(), TrainConfig(optimizer=optimizer, **settings)
    distributed = DistributedModel(model, smoothing=0.1, loss_scale=scale)
    made = make_optimizer(model, config) if torch_optimizer is None else torch_optimizer(model.parameters())
    rate = 0.01 if torch_optimizer is None else None
    batches = [make_batch(SOURCES[:2], TARGETS[:2]), make_batch(SOURCES[2:], TARGETS[2:])]
    results = [training_step(distributed, made, batches, config, rate=rate) for _ in range(steps)]
    return {name: one.detach().clone() for name, one in model.named_parameters()}, read(results)


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["adam", "adamw", "muon", "sgd"])
def test_a_scaled_step_is_the_step_without_a_scale(kind, clip):
    """A power of two changes no digit of a float32 number, so clipping aside the weights have the same bits."""
    options = {"clip_norm": clip, "weight_decay": 0.1 if kind == "adamw" else 0.0}
    if kind == "sgd":
        options["torch_optimizer"] = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    else:
        options["optimizer"] = kind
    plain, before = trained(None, **options)
    scaled, after = trained(LossScale(CPU), **options)
    for name, weight in plain.items():
        torch.testing.assert_close(scaled[name], weight, rtol=1e-6 if clip else 0, atol=1e-7 if clip else 0)
    assert [one.loss for one in after] == [one.loss for one in before]
    assert [one.gradient_norm for one in after] == pytest.approx([one.gradient_norm for one in before], rel=1e-6)
    assert [one.loss_scale for one in after] == [FIRST] * 3 and [one.loss_scale for one in before] == [1.0] * 3


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_a_step_that_overflows_is_skipped_and_the_next_one_is_not(kind):
    """A scale near the largest float32 overflows; after halving it is small enough: the weights take one step less."""
    scale = LossScale(CPU, first=2.0**127)
    weights, results = trained(scale, steps=3, optimizer=kind)
    skipped = [not one.finite for one in results]
    # The bound of the scale applies after the first step.
    assert skipped == [True, False, False] and scale.scale.item() == LARGEST
    expected, _ = trained(None, steps=2, optimizer=kind)
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name


def test_an_overflow_is_no_bad_step_unless_the_loss_or_the_smallest_scale_has_it():
    assert StepResult(1.0, math.inf, 5, 1024.0).overflowed
    assert not StepResult(1.0, math.inf, 5, SMALLEST).overflowed
    assert not StepResult(math.nan, math.nan, 5, 1024.0).overflowed
    assert not StepResult(1.0, 2.0, 5, 1024.0).overflowed


SETTINGS = [
    *("model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.tokens=128"),
    *("train.steps=8", "train.checkpoint_every=2", "train.validate_pairs=4", "train.threads=1", "train.device=cpu"),
]


class BeginsTooHigh(LossScale):
    """Overflows in the first step, and is doubled after three good ones."""

    def __init__(self, device):
        super().__init__(device, first=2.0**127, good_steps=3)


@pytest.fixture
def scaled(monkeypatch):
    """Training on this CPU has a loss scale, as if its precision were float16."""
    monkeypatch.setattr(trainer, "LossScale", BeginsTooHigh)
    real = trainer.DistributedModel
    made = lambda *given, **more: real(*given, **{**more, "loss_scale": BeginsTooHigh(CPU)})  # noqa: E731
    monkeypatch.setattr(trainer, "DistributedModel", made)


def test_a_resumed_run_has_the_scale_it_had(scaled, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b c\tc b a\nb a\ta b\nc a\ta c\n" * 5)
    data = ['data.train={pairs="pairs.tsv"}', "data.valid={hold_out=2}", "data.test={}"]
    calls, whole = iter(range(100)), []

    def train(name, **options):
        regard.train("copy", out=tmp_path / name, overrides=[*SETTINGS, *data], data=tmp_path, **options)

    train("whole", listen=whole.append)
    train("run", listen=lambda event: None, stop=lambda: next(calls) > 3)
    stopped = RunFolder(tmp_path / "run").read_checkpoint("step-00000003", training=True)
    # One overflow, and two good steps.
    assert stopped.training["loss_scale/scale"].item() == LARGEST
    assert stopped.training["loss_scale/good_steps"].item() == 2
    assert stopped.counters["skipped"] == 0
    train("run", listen=lambda event: None)
    expected, found = (RunFolder(tmp_path / name).weights()[0].weights for name in ("whole", "run"))
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    notes = [event.text for event in whole if isinstance(event, Noted)]
    assert [note for note in notes if "overflowed in float16; this step was skipped" in note]


def test_a_damaged_scale_is_refused():
    scale = LossScale(CPU)
    with pytest.raises(CheckpointError, match=r"'loss_scale/scale' is not one number of at least 0"):
        scale.restore({"loss_scale/scale": torch.tensor(-1.0)}, origin="here")
    # A checkpoint of another precision has none.
    scale.restore({}, origin="here")
    assert numbers(scale) == (FIRST, 0)


def test_float16_is_refused_on_a_cpu(tmp_path):
    with pytest.raises(ConfigError, match=r"^train\.precision is float16, which only GPUs compute fast; use float32"):
        regard.train("copy", out=tmp_path / "run", overrides=[*SETTINGS, "train.precision=float16"])
    assert not (tmp_path / "run").exists()
