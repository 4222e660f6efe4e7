"""Muon: orthogonal updates for hidden matrices, AdamW for all other weights, and skipped steps that change nothing."""

import math

import pytest
import torch

from regard.config import TrainConfig
from regard.data.batch import make_batch
from regard.training.data_parallel import DistributedModel
from regard.training.optimizers import orthogonalize
from regard.training.step import make_optimizer, read, training_step
from tests.training.test_step import SOURCES, TARGETS, fresh


@pytest.mark.parametrize("shape", [(3, 16, 64), (1, 64, 16), (2, 32, 32)])
def test_orthogonalizing_moves_singular_values_near_one_and_keeps_directions(shape):
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    result = orthogonalize(matrices)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.3 and values.max() < 1.25
    # The best orthogonal matrix is UVᵀ; ours has the same U and V, so the two are close.
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    cosine = torch.nn.functional.cosine_similarity((left @ right).flatten(1), result.flatten(1))
    assert cosine.min() > 0.95


def test_the_scale_of_a_matrix_does_not_matter():
    torch.manual_seed(0)
    matrix = torch.randn(1, 16, 16)
    torch.testing.assert_close(orthogonalize(1000 * matrix), orthogonalize(matrix), rtol=1e-3, atol=1e-4)


def stepped(**settings):
    model, config = fresh(), TrainConfig(optimizer="muon", **settings)
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    optimizer = make_optimizer(model, config)
    (cost,) = read(
        [
            training_step(
                DistributedModel(model, smoothing=config.label_smoothing),
                optimizer,
                [make_batch(SOURCES, TARGETS)],
                config,
                rate=0.01,
            )
        ]
    )
    return before, dict(model.named_parameters()), optimizer, cost


def test_queries_keys_and_values_are_orthogonalized_separately():
    before, after, _, _ = stepped()
    name = "encoder.0.attention.project.weight"
    change = (before[name] - after[name].detach()) / (0.01 * 0.2 * 16**0.5)
    # The largest singular value of each of the three matrices is near 1; that of the undivided weight is larger.
    for block in change.split(16):
        assert 0.6 < torch.linalg.svdvals(block).max().item() < 1.25
    assert torch.linalg.svdvals(change).max() > 1.25


def test_an_update_has_the_size_of_an_adamw_update():
    before, after, _, _ = stepped()
    for name in ("encoder.0.feed_forward.inner.weight", "decoder.0.cross_attention.query.weight"):
        size = (before[name] - after[name].detach()).square().mean().sqrt().item()
        assert size == pytest.approx(0.01 * 0.2, rel=0.35)


def test_embeddings_norms_and_biases_are_updated_by_adam():
    _, after, optimizer, _ = stepped()
    of_muon = {name for name, one in after.items() if "momentum" in optimizer.state[one]}
    assert of_muon == {name for name, one in after.items() if one.dim() == 2 and "embedding" not in name}
    assert all("exp_avg" in optimizer.state[one] for name, one in after.items() if name not in of_muon)


def test_a_gradient_that_is_not_finite_changes_nothing():
    model, config = fresh(), TrainConfig(optimizer="muon", weight_decay=0.1)
    optimizer = make_optimizer(model, config)
    batch = [make_batch(SOURCES, TARGETS)]
    training_step(DistributedModel(model, smoothing=config.label_smoothing), optimizer, batch, config, rate=0.01)
    weight = model.encoder[0].attention.project.weight
    momentum = optimizer.state[weight]["momentum"].clone()
    kept = {name: one.detach().clone() for name, one in model.named_parameters()}
    with torch.no_grad():
        model.target_embedding[0, 0] = kept["target_embedding"][0, 0] = math.nan
    training_step(DistributedModel(model, smoothing=config.label_smoothing), optimizer, batch, config, rate=0.01)
    assert torch.equal(optimizer.state[weight]["momentum"], momentum)
    for name, one in model.named_parameters():
        assert torch.equal(one.detach().nan_to_num(9.0), kept[name].nan_to_num(9.0)), name
