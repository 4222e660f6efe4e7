"""One training step: micro-batches, clipping, and gradients that are not finite."""

import math

import pytest
import torch

from regard.config import TrainConfig
from regard.data.batch import make_batch
from regard.models import build_model
from regard.training.data_parallel import DistributedModel
from regard.training.step import make_optimizer, read, training_step

TABLE = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 32, "dropout": 0.0}
SOURCES = [[5, 6, 7], [8, 9], [4], [3, 4, 5, 6, 7, 8]]
TARGETS = [[6, 5], [9, 8, 7, 7], [4, 4], [3]]


def fresh():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model(TABLE, source_size=12, target_size=12)
    return model


def weights_after(batches, **settings):
    model, config = fresh(), TrainConfig(**settings)
    (result,) = read(
        [
            training_step(
                DistributedModel(model, smoothing=config.label_smoothing),
                make_optimizer(model, config),
                batches,
                config,
                rate=0.01,
            )
        ]
    )
    return {name: parameter.detach() for name, parameter in model.named_parameters()}, result


def gradients(batches, smoothing):
    model = fresh()
    tokens = sum(batch.num_tokens for batch in batches)
    for batch in batches:
        (model(batch, smoothing=smoothing) / tokens).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_of_micro_batches_equals_that_of_one_batch(smoothing):
    single = gradients([make_batch(SOURCES, TARGETS)], smoothing)
    parts = gradients([make_batch(SOURCES[:1], TARGETS[:1]), make_batch(SOURCES[1:], TARGETS[1:])], smoothing)
    for name, gradient in single.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_step_with_micro_batches_equals_a_step_with_one_batch():
    single, first = weights_after([make_batch(SOURCES, TARGETS)], eps=1e-3)
    parts, second = weights_after(
        [make_batch(SOURCES[:3], TARGETS[:3]), make_batch(SOURCES[3:], TARGETS[3:])], eps=1e-3
    )
    assert first.tokens == second.tokens == 3 + 5 + 3 + 2
    assert first.loss == pytest.approx(second.loss, rel=1e-5)
    for name, weight in single.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-4, atol=1e-6)


def test_a_gradient_that_is_not_finite_changes_nothing():
    model, config = fresh(), TrainConfig()
    with torch.no_grad():
        model.target_embedding[0, 0] = math.nan
    before = [parameter.clone() for parameter in model.parameters()]
    result = training_step(
        DistributedModel(model, smoothing=config.label_smoothing),
        make_optimizer(model, config),
        [make_batch(SOURCES, TARGETS)],
        config,
        rate=0.01,
    )
    assert not read([result])[0].finite
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old.nan_to_num(9.0), new.nan_to_num(9.0))


def test_clipping_scales_the_gradient_to_the_norm():
    # Adam's first step is lr * g / (|g| + eps): with an eps far above the gradient it moves weights in proportion to g.
    large, result = weights_after([make_batch(SOURCES, TARGETS)], eps=1e3)
    small, _ = weights_after([make_batch(SOURCES, TARGETS)], eps=1e3, clip_norm=result.gradient_norm / 4)
    start = {name: parameter.detach() for name, parameter in fresh().named_parameters()}
    moved = torch.cat([(large[name] - start[name]).flatten() for name in start]).double()
    clipped = torch.cat([(small[name] - start[name]).flatten() for name in start]).double()
    assert (clipped.norm() / moved.norm()).item() == pytest.approx(0.25, rel=0.05)
