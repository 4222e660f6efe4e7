"""Laws of `train.freeze` and `train.adapt` that hold for every model family."""

from dataclasses import replace

import pytest
import torch

from regard.config import TrainConfig
from regard.data.batch import FERTILITIES
from regard.data.ragged import Ragged
from regard.data.word_alignment import spread_evenly
from regard.errors import ConfigError
from regard.models.base import Model
from regard.run.checkpoint import model_weights
from regard.training.adapters import BIAS, choose_parameters
from regard.training.data_parallel import DistributedModel
from regard.training.step import make_optimizer, training_step
from tests.laws.conftest import batch_for, build

SOURCES, TARGETS = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]], [[4, 9, 3], [7, 7, 8, 3, 6], [5]]
INIT = "runs/base"  # never read here


@pytest.fixture
def table(any_table):
    return any_table


@pytest.fixture(scope="module")
def every(any_table):
    """The names of the weights that plain training changes."""
    _, *weights, _ = train(any_table)
    return changed(*weights)


def batch_of(model: Model):
    batch = batch_for(model, SOURCES, TARGETS)
    if FERTILITIES in model.extras:
        fertilities = Ragged(spread_evenly(batch.source.layout, batch.target.layout), batch.source.layout)
        batch = replace(batch, extras={FERTILITIES: fertilities})
    return batch


def train(table, **options):
    """Return a model, its weights before and after two steps, and the adapters."""
    model, config = build(table), TrainConfig(label_smoothing=0.0, **options)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            # As in a trained model, no parameter is zero, which would keep gradients from others.
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    before = {name: weight.clone() for name, weight in model_weights(model).items()}
    adapters = choose_parameters(model, config)
    distributed = DistributedModel(model, smoothing=0.0, adapters=adapters)
    optimizer = make_optimizer(model, config, adapters=adapters)
    # In the first one, only one matrix of an adapter has a gradient.
    for step in range(2):
        model.noise.seed(1, step)
        training_step(distributed, optimizer, [batch_of(model)], config, rate=0.01)
    return model, before, model_weights(model), adapters


def changed(before, after):
    return {name for name, weight in after.items() if not torch.equal(weight, before[name])}


def test_frozen_parameters_keep_their_bits_and_all_others_change(table, every):
    prefix = min(every).split(".")[0]
    _, *weights, _ = train(table, freeze=(prefix,))
    frozen = {name for name in weights[0] if name.split(".")[0] == prefix}
    assert changed(*weights) == every - frozen


def test_only_biases_change_where_only_biases_are_trained(table, every):
    if table["kind"] == "entnet":
        with pytest.raises(ConfigError, match=r"^train\.adapt is bias, but no biases of this model are left to train;"):
            train(table, init=INIT, adapt="bias")
        return
    _, *weights, _ = train(table, init=INIT, adapt="bias")
    assert changed(*weights) == {name for name in every if BIAS.search(name)}


def test_adapters_change_nothing_before_the_first_step(table):
    plain, adapted = build(table).eval(), build(table).eval()
    adapters = choose_parameters(adapted, TrainConfig(init=INIT, adapt="lora"))
    adapters.merge()
    assert torch.equal(adapted(batch_of(adapted)), plain(batch_of(plain)))


def test_adapters_change_the_matrices_of_layers_alone(table, every):
    _, *weights, adapters = train(table, init=INIT, adapt="lora", lora_rank=2)
    # A matrix without a gradient has none with an adapter either.
    assert changed(*weights) == every & adapters.adapters.keys() != set()


def test_merged_adapters_equal_separate_ones(table):
    """The loss and its gradients are those of a model whose weights are W₀ + scale · up · down, by autograd."""
    model, _, _, adapters = train(table, init=INIT, adapt="lora", lora_rank=2, lora_alpha=3.0)
    model.eval()
    loss = model(batch_of(model))
    model.zero_grad()
    loss.backward()
    adapters.pass_back()
    separate = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for name, one in adapters.adapters.items():
        deltas = [up @ down for _, up, down in one.parts(one.base)]
        separate[name] = one.base + 3.0 / 2 * torch.cat(deltas)
    expected = torch.func.functional_call(model, separate, (batch_of(model),))
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    parameters = adapters.parameters()
    gradients = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        wanted = torch.zeros_like(parameter) if gradient is None else gradient
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, msg=name)
