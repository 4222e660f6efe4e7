"""Transformers with one part taken away, for `regard ablate`.

The parts that a recipe cannot switch off (mask, scale, residual, ffn, norm) are replaced in a model that was built as usual.
Such a model has a `model.kind` of its own, so that no other command takes its weights for those of a Transformer.

Shapes: N tokens, D width, R rows in search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.config.transformer import TransformerConfig
from regard.data.ragged import Layout, Ragged
from regard.learn.ablations import KIND
from regard.models import MODELS, Family, register_model
from regard.models.transformer import PRESETS, Transformer
from regard.nn.attention import MultiHead
from regard.nn.dropout import Dropout
from regard.nn.layers import TransformerDecoderLayer, TransformerEncoderLayer
from regard.nn.norms import Norm, Residual


class WithoutMask(Transformer):
    """A Transformer whose decoder sees later tokens in training. In search there are none yet."""

    def _through_decoder(
        self, x_ND: Tensor, layout: Layout, memory: Ragged, *, causal: bool, also: Sequence[Tensor] = ()
    ) -> Tensor:
        return super()._through_decoder(x_ND, layout, memory, causal=False, also=also)


class Times(nn.Module):
    """Multiplies by a number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class NoNorm(nn.Module):
    """Stands in the place of a norm, and changes nothing."""

    def forward(self, x_ND: Tensor) -> Tensor:
        return x_ND

    def of_sum(self, x_ND: Tensor, branch_ND: Tensor, dropout: Dropout) -> Tensor:
        """Return x + Dropout(branch)."""
        return dropout.add(x_ND, branch_ND)


class NoResidual(nn.Module):
    """The dropout and the norm around one sub-layer, without the sum with its input."""

    def __init__(self, replaced: Residual) -> None:
        super().__init__()
        self.norm, self.dropout, self.order = replaced.norm, replaced.dropout, replaced.order

    def forward(self, x_ND: Tensor, sublayer: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        if self.order == "pre":
            return self.dropout(sublayer(self.norm(x_ND))[0])
        normed: Tensor = self.norm(self.dropout(sublayer(x_ND)[0]))
        return normed


class NoFeedForward(nn.Module):
    """Stands in the place of a feed-forward layer, and adds nothing."""

    def forward(self, x_ND: Tensor, layout: Layout, *, with_input: bool) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x_ND), x_ND

    def start(self, num_rows: int) -> list[Tensor]:
        return []

    def step(self, x_RD: Tensor, recent: list[Tensor]) -> Tensor:
        return torch.zeros_like(x_RD)


def without_scale(model: Transformer) -> None:
    """Multiply the queries by √d, which cancels the division of their products with the keys."""
    for module in model.modules():
        if isinstance(module, MultiHead):
            times = Times(module.shape.key_width**0.5)
            normed = times if module.query_norm is None else nn.Sequential(module.query_norm, times)
            module.query_norm = normed  # type: ignore[assignment]


def without_residual(model: Transformer) -> None:
    """Take away the sums around all sub-layers."""
    _replace(model, Residual, NoResidual)


def without_norm(model: Transformer) -> None:
    """Take away the norms around all sub-layers, and those at the ends of the stacks."""
    _replace(model, Norm, lambda norm: NoNorm())


def without_feed_forward(model: Transformer) -> None:
    """Take away the feed-forward sub-layer of every layer."""
    for layer in model.modules():
        if isinstance(layer, TransformerEncoderLayer | TransformerDecoderLayer):
            layer.add_module("feed_forward", NoFeedForward())


def _replace(model: nn.Module, kind: type[nn.Module], make: Callable[[Any], nn.Module]) -> None:
    """Replace all modules of a kind inside a model."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind):
                parent.add_module(name, make(child))


CHANGES: dict[str, Callable[[Transformer], None]] = {
    "scale": without_scale,
    "residual": without_residual,
    "ffn": without_feed_forward,
    "norm": without_norm,
}


def build_without(part: str, config: TransformerConfig, **sizes: int) -> Transformer:
    """Return a Transformer without mask, scale, residual, ffn or norm. Weights that both have begin equal."""
    if part == "mask":
        return WithoutMask(config, **sizes)
    model = Transformer(config, **sizes)
    CHANGES[part](model)
    return model


def register(part: str) -> None:
    """Let recipes of this process choose the Transformer without a part as their `model.kind`."""
    name = f"{KIND}{part}"
    if name not in MODELS.names():
        register_model(name, Family(TransformerConfig, partial(build_without, part), PRESETS))
