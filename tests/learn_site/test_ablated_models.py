"""Transformers without one part: what is gone is gone, in training and in search, and nothing else has changed."""

import pytest
import torch

from regard.config.transformer import TransformerConfig
from regard.data.ragged import Ragged
from regard.learn.ablated_models import CHANGES, build_without
from regard.models.transformer import Transformer
from regard.nn.attention import MultiHead
from regard.nn.norms import Norm

PARTS = ("mask", *CHANGES)
SIZES = {"source_size": 12, "target_size": 12}
SOURCE = Ragged.from_lists([[5, 6, 7, 2], [8, 2]])
TARGET = [[1, 5, 6, 7], [1, 8]]


def config(**options):
    return TransformerConfig(**{"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24, "dropout": 0.0, **options})


def built(part, **options):
    torch.manual_seed(3)
    if part is None:
        return Transformer(config(**options), **SIZES).eval()
    return build_without(part, config(**options), **SIZES).eval()


@torch.no_grad()
def logits(model, target=TARGET):
    return model.decode(Ragged.from_lists(target), model.encode(SOURCE))


def test_only_without_the_mask_does_a_later_token_change_an_earlier_output():
    changed = [[1, 5, 6, 9], [1, 8]]  # the last token of the first sentence
    usual, unmasked = built(None), built("mask")
    assert torch.equal(logits(usual)[:3], logits(usual, changed)[:3])
    assert not torch.allclose(logits(unmasked)[:3], logits(unmasked, changed)[:3])
    assert torch.equal(logits(unmasked)[4:], logits(unmasked, changed)[4:])  # the other sentence


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("order", ["post", "pre"])
def test_what_both_models_have_begins_equal_and_their_outputs_differ(part, order):
    usual, changed = built(None, norm_order=order), built(part, norm_order=order)
    weights = dict(usual.named_parameters())
    assert all(torch.equal(weights[name], value) for name, value in changed.named_parameters())
    assert not torch.allclose(logits(usual), logits(changed))


@pytest.mark.parametrize("part", CHANGES)
@pytest.mark.parametrize("order", ["post", "pre"])
def test_search_computes_what_training_computes(part, order):
    """Without the mask it does not, which is the lesson of that ablation."""
    model = built(part, norm_order=order)
    at_once = Ragged(logits(model), Ragged.from_lists(TARGET).layout).split()[0]
    with torch.no_grad():
        state = model.start(model.encode(Ragged.from_lists([[5, 6, 7, 2]])), beams=1)
        stepped = torch.stack([model.step(torch.tensor([token]), state)[0] for token in TARGET[0]])
    torch.testing.assert_close(stepped, at_once)


def test_without_the_mask_search_computes_something_else():
    model = built("mask")
    at_once = logits(model)[0]
    with torch.no_grad():
        state = model.start(model.encode(Ragged.from_lists([[5, 6, 7, 2]])), beams=1)
        assert not torch.allclose(model.step(torch.tensor([1]), state)[0], at_once)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_without_the_scale_queries_are_multiplied_by_the_root_of_the_head_width(qk_norm):
    """The head width is 16 / 4 = 4, and its root 2."""
    usual, changed = (built(part, num_heads=4, qk_norm=qk_norm) for part in (None, "scale"))
    q = torch.randn(3, 16)
    for one, other in zip(usual.modules(), changed.modules(), strict=False):
        if isinstance(one, MultiHead):
            assert isinstance(other, MultiHead)
            torch.testing.assert_close(other._queries(q), 2 * one._queries(q))
            break


def test_parts_that_have_weights_take_them_away():
    def count(model):
        return sum(value.numel() for value in model.parameters())

    usual = count(built(None))
    # 16 · 24 + 24 + 24 · 16 + 16 numbers in each of four feed-forward layers; 2 · 16 in each of ten norms.
    assert usual - count(built("ffn")) == 4 * (16 * 24 + 24 + 24 * 16 + 16)
    assert usual - count(built("norm")) == 10 * 2 * 16
    assert not [module for module in built("norm", norm_order="pre").modules() if isinstance(module, Norm)]
    assert all(count(built(part)) == usual for part in ("mask", "scale", "residual"))


def test_without_residuals_a_layer_whose_branches_are_zero_forgets_its_input():
    for part, remembers in ((None, True), ("residual", False)):
        model = built(part, norm_order="pre", tie="none")
        for name, value in model.named_parameters():
            if "output.weight" in name or "outer" in name:
                value.data.zero_()
        first, second = (model.encode(Ragged.from_lists([ids])).values for ids in ([5, 6, 2], [7, 8, 2]))
        assert torch.allclose(first, second) != remembers
