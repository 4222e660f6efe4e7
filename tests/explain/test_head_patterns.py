"""Entropy and distance of attention, on weights and models whose values can be redone by hand."""

import math

import pytest
import torch

from regard.explain.head_gates import Head, all_heads
from regard.explain.head_importance import Examples
from regard.explain.head_patterns import attention_distance, attention_entropy, attention_patterns
from regard.models.transformer import Transformer

# Sources of 4 and 2 tokens, outputs of 3 and 2.
EXAMPLES = Examples([[5, 6, 7, 2], [8, 2]], [[9, 8, 2], [7, 2]])


def quiet(*_):
    pass


def make_model():
    torch.manual_seed(1)
    return Transformer(
        source_size=20, target_size=20, width=16, num_heads=2, num_layers=2, hidden=32, dropout=0.0
    ).eval()


def test_uniform_attention_over_n_has_entropy_ln_n():
    assert attention_entropy(torch.full((1, 1, 5), 0.2)).item() == pytest.approx(math.log(5))
    assert attention_entropy(torch.tensor([[[0.5, 0.5, 0, 0]]])).item() == pytest.approx(math.log(2))
    assert attention_entropy(torch.tensor([[[0, 1.0, 0]]])).item() == 0


def test_a_head_that_attends_to_the_previous_token_has_distance_1():
    previous = torch.eye(5).roll(1, dims=0)[None]
    assert attention_distance(previous)[0, 1:].tolist() == [1, 1, 1, 1]
    assert attention_distance(torch.eye(5)[None]).sum() == 0


def test_distance_weighs_positions():
    # The query at position 0: 0.5 × 0 + 0.25 × 1 + 0.25 × 2.
    assert attention_distance(torch.tensor([[[0.5, 0.25, 0.25]]])).item() == pytest.approx(0.75)


def test_a_head_whose_queries_are_zero_attends_to_all_positions_equally():
    model = make_model()
    across = model.decoder[0].cross_attention.query
    with torch.no_grad():
        for module in (model.encoder[0].attention.project, model.decoder[0].attention.project, across):
            module.weight[:8] = 0  # the first rows are those of the queries of the first head
            if module.bias is not None:
                module.bias[:8] = 0
    entropy, distance = attention_patterns(model, EXAMPLES, quiet)
    # Four queries see 4 positions, two see 2.
    encoder, decoder, across = (Head(kind, 1, 1) for kind in ("encoder", "decoder", "encoder-decoder"))
    assert entropy[encoder] == pytest.approx((4 * math.log(4) + 2 * math.log(2)) / 6)
    # Mean distances of the queries 0 to 3 in 4 positions: 6/4, 4/4, 4/4, 6/4; in 2 positions: 1/2 each.
    assert distance[encoder] == pytest.approx((5 + 1) / 6)
    # The decoder sees no later position: 1, 2, 3 of the first output, 1, 2 of the second.
    assert entropy[decoder] == pytest.approx((math.log(2) + math.log(3) + math.log(2)) / 5)
    assert distance[decoder] == pytest.approx((0 + 1 / 2 + (2 + 1) / 3 + 0 + 1 / 2) / 5)
    # Three queries see a source of 4 tokens, two see one of 2.
    assert entropy[across] == pytest.approx((3 * math.log(4) + 2 * math.log(2)) / 5)


def test_every_head_has_an_entropy_and_those_of_self_attention_a_distance():
    model = make_model()
    entropy, distance = attention_patterns(model, EXAMPLES, quiet)
    assert list(entropy) == all_heads(model)
    assert list(distance) == [head for head in all_heads(model) if head.attention != "encoder-decoder"]
