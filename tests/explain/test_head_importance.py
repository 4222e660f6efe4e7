"""Importance of heads: by removal, by gradients, and curves of pruning, on models small enough to redo."""

import pytest
import torch

from regard.explain.head_gates import Head, all_heads
from regard.explain.head_importance import (
    Examples,
    by_layer,
    gradient_importance,
    loss_per_token,
    points_of,
    pruning_curve,
    random_order,
    removal_importance,
    removal_order,
)
from regard.models.transformer import Transformer

EXAMPLES = Examples([[5, 6, 7, 2], [8, 9, 2], [4, 2]], [[9, 8, 2], [7, 2], [5, 6, 3, 2]])


def quiet(*_):
    pass


@pytest.fixture
def model():
    """One layer of two heads of width 8; the second head of the encoder gives nothing."""
    torch.manual_seed(1)
    made = Transformer(source_size=20, target_size=20, width=16, num_heads=2, num_layers=1, hidden=32, dropout=0.0)
    with torch.no_grad():
        made.encoder[0].attention.output.weight[:, 8:] = 0
    return made.eval()


def test_the_loss_is_that_of_each_sentence_alone(model):
    alone = [Examples([source], [output]) for source, output in zip(*EXAMPLES, strict=True)]
    total = sum(loss_per_token(model, one) * one.num_tokens for one in alone)
    assert loss_per_token(model, EXAMPLES) == pytest.approx(total / 9, rel=1e-5)


def test_removal_is_the_difference_of_two_losses(model):
    found = removal_importance(model, EXAMPLES, quiet)
    head = Head("decoder", 1, 2)
    difference = loss_per_token(model, EXAMPLES, [head]) - loss_per_token(model, EXAMPLES)
    assert found[head] == pytest.approx(difference)
    assert list(found) == all_heads(model)


def test_a_head_that_gives_nothing_has_no_importance(model):
    nothing = Head("encoder", 1, 2)
    assert removal_importance(model, EXAMPLES, quiet)[nothing] == 0
    gradients = gradient_importance(model, EXAMPLES, quiet)
    assert gradients[nothing] == 0
    assert all(value > 0 for head, value in gradients.items() if head != nothing)


def test_the_gradient_is_the_slope_of_each_sentence(model):
    """|loss with a gate of 1 + h - loss with 1 - h| / 2h, where a gate scales columns of W^O; the mean over sentences."""
    weight, h, slopes = model.encoder[0].attention.output.weight, 1e-2, []
    for source, output in zip(*EXAMPLES, strict=True):
        one, losses = Examples([source], [output]), []
        before = weight.detach().clone()
        for gate in (1 + h, 1 - h):
            weight.data[:, :8] = before[:, :8] * gate
            losses.append(loss_per_token(model, one) * one.num_tokens)
        weight.data.copy_(before)
        slopes.append(abs(losses[0] - losses[1]) / (2 * h))
    found = gradient_importance(model, EXAMPLES, quiet)[Head("encoder", 1, 1)]
    assert found == pytest.approx(sum(slopes) / 3, rel=0.02)


def test_gradients_reach_no_parameter(model):
    gradient_importance(model, EXAMPLES, quiet)
    assert all(one.grad is None for one in model.parameters())


def test_importances_are_compared_by_layer():
    found = by_layer({Head("encoder", 1, 1): 3.0, Head("encoder", 1, 2): 4.0, Head("decoder", 1, 1): 0.0})
    assert found == {Head("encoder", 1, 1): 0.6, Head("encoder", 1, 2): 0.8, Head("decoder", 1, 1): 0.0}


def test_the_least_important_head_is_removed_first():
    a, b, c = (Head("encoder", 1, number) for number in (1, 2, 3))
    assert removal_order({a: 0.5, b: -0.1, c: 0.2}) == [b, c, a]


def test_a_random_order_has_all_heads_and_depends_on_the_seed(model):
    heads = all_heads(model)
    orders = [random_order(heads, seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == sorted(heads)


def test_points_go_from_no_head_to_all():
    assert points_of(48, 13) == list(range(0, 49, 4))
    assert points_of(3, 9) == [0, 1, 2, 3]


def test_a_curve_removes_the_first_heads_of_the_order(model):
    order = removal_order(removal_importance(model, EXAMPLES, quiet))
    points = list(pruning_curve(model, EXAMPLES, order, [0, 2, 6], bleu=lambda: 7.0))
    assert [one.removed for one in points] == [0, 2, 6]
    assert points[0].loss == pytest.approx(loss_per_token(model, EXAMPLES))
    assert points[1].loss == pytest.approx(loss_per_token(model, EXAMPLES, order[:2]))
    assert {one.bleu for one in points} == {7.0}
