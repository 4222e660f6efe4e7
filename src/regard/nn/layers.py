"""The layers of the Transformer's encoder and decoder (section 3.1, Figure 1), and common variants.

Our models are stacks of these. Both also work on their own, over batches in any form (see `nn.sequences`).

Shapes: N target tokens, M source tokens, D width, B sentences, H heads, S keys, K head width, R rows in search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from regard.config.transformer import NORM_EPS, AttentionBackend, FeedForwardKind, HeadShape, NormKind, NormOrder
from regard.nn.attend import AttentionMask
from regard.nn.attention import CrossAttention, SelfAttention, flatten_memory, flatten_own, head_shape
from regard.nn.cache import KeyValueCache, StaticCache
from regard.nn.decoder_pool import DecoderPool
from regard.nn.dropout import Noise
from regard.nn.feedforward import ConvFeedForward, FeedForward
from regard.nn.linear import Linear
from regard.nn.norms import Residual
from regard.nn.positions import Rotation
from regard.nn.sequences import Sequences


class TransformerEncoderLayer(nn.Module):
    """Self-attention, then feed-forward.

    >>> layer = TransformerEncoderLayer(512, heads=8, hidden=2048)
    >>> y = layer(x, mask)          # x [B, T, D], mask [B, T], True for real tokens
    >>> y = layer(ragged)           # a Ragged of [N, D]
    """

    def __init__(
        self,
        width: int,
        heads: int | HeadShape,
        hidden: int,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        norm: NormKind = "layer",
        norm_order: NormOrder = "post",
        norm_eps: float = NORM_EPS,
        sublayer_gain: float = 1.0,
        feed_forward: FeedForwardKind = "relu",
        backend: AttentionBackend = "auto",
        noise: Noise | None = None,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(
            width, head_shape(width, heads), dropout=attention_dropout, noise=noise, backend=backend
        )
        self.feed_forward = _feed_forward(feed_forward, width, hidden, activation_dropout, noise, causal=False)
        around: dict[str, Any] = {
            "kind": norm, "order": norm_order, "dropout": dropout, "noise": noise, "eps": norm_eps
        }  # fmt: skip
        self.around_attention = Residual(width, **around)
        self.around_feed_forward = Residual(width, **around)
        scale_outputs(sublayer_gain, self.attention.output, self.feed_forward.outer)

    def forward(
        self,
        x: Sequences,
        mask: Tensor | AttentionMask | None = None,
        *,
        causal: bool = False,
        window: int | None = None,
    ) -> Sequences:
        """Return the output in the form of x. The options are those of `MultiHeadAttention.forward`."""
        tokens, own = flatten_own(x, mask, causal=causal, window=window)
        x_ND = self.around_attention(tokens.values, lambda x: self.attention(x, own))
        return tokens.restore(
            self.around_feed_forward(x_ND, lambda x: self.feed_forward(x, tokens.layout, with_input=True))
        )


class TransformerDecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output (the memory), then feed-forward.

    >>> layer = TransformerDecoderLayer(512, heads=8, hidden=2048)
    >>> y = layer(x, memory, mask, memory_mask)     # x [B, T, D], memory [B, S, D], masks [B, T] and [B, S]
    >>> y = layer(ragged, ragged_memory)            # each a Ragged
    """

    def __init__(
        self,
        width: int,
        heads: int | HeadShape,
        hidden: int,
        *,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        norm: NormKind = "layer",
        norm_order: NormOrder = "post",
        norm_eps: float = NORM_EPS,
        sublayer_gain: float = 1.0,
        feed_forward: FeedForwardKind = "relu",
        backend: AttentionBackend = "auto",
        noise: Noise | None = None,
    ) -> None:
        super().__init__()
        shape = head_shape(width, heads)
        self.attention = SelfAttention(width, shape, dropout=attention_dropout, noise=noise, backend=backend)
        self.cross_attention = CrossAttention(width, shape, dropout=attention_dropout, noise=noise, backend=backend)
        self.feed_forward = _feed_forward(feed_forward, width, hidden, activation_dropout, noise, causal=True)
        around: dict[str, Any] = {
            "kind": norm, "order": norm_order, "dropout": dropout, "noise": noise, "eps": norm_eps
        }  # fmt: skip
        self.around_attention = Residual(width, **around)
        self.around_cross_attention = Residual(width, **around)
        self.around_feed_forward = Residual(width, **around)
        scale_outputs(sublayer_gain, self.attention.output, self.cross_attention.output, self.feed_forward.outer)

    def forward(
        self,
        x: Sequences,
        memory: Sequences,
        mask: Tensor | AttentionMask | None = None,
        memory_mask: Tensor | AttentionMask | None = None,
        *,
        causal: bool = True,
        window: int | None = None,
    ) -> Sequences:
        """Return the output in the form of x.

        `memory_mask` is the mask of the memory, and the other options are those of `MultiHeadAttention.forward`. If `mask`
        is an AttentionMask, it says whether self-attention is causal, and `causal` has no effect.
        """
        given = isinstance(mask, AttentionMask)
        tokens, own = flatten_own(x, mask, causal=causal and not given, window=window)
        memory_MD, across = flatten_memory(tokens, memory, memory_mask)
        x_ND = self.around_attention(tokens.values, lambda x: self.attention(x, own))
        x_ND = self.around_cross_attention(x_ND, lambda x: self.cross_attention(x, memory_MD, across))
        return tokens.restore(
            self.around_feed_forward(x_ND, lambda x: self.feed_forward(x, tokens.layout, with_input=True))
        )

    def step(
        self, x_RD: Tensor, state: LayerState, own_bias: Tensor, memory_bias: Tensor, rotation: Rotation | None
    ) -> Tensor:
        """Return what `forward` returns, for one token per row."""
        x_RD = self.around_attention(x_RD, lambda x: (self.attention.step(x, state.own, own_bias, rotation), x))
        x_RD = self.around_cross_attention(
            x_RD, lambda x: (self.cross_attention.step(x, state.keys, state.values, memory_bias), x)
        )
        return self.around_feed_forward(x_RD, lambda x: (self.feed_forward.step(x, state.recent), x))

    def step_in_pool(self, x_RD: Tensor, pool: DecoderPool, number: int, rotation: Rotation | None) -> Tensor:
        """Return what `step` returns. The layer has a number among those of the pool."""
        x_RD = self.around_attention(x_RD, lambda x: (self.attention.step_in_pool(x, pool, number, rotation), x))
        x_RD = self.around_cross_attention(x_RD, lambda x: (self.cross_attention.step_in_pool(x, pool, number), x))
        return self.around_feed_forward(x_RD, lambda x: (self.feed_forward.step(x, []), x))


@dataclass
class LayerState:
    """What one decoder layer remembers during search."""

    own: KeyValueCache | StaticCache
    keys: Tensor  # of the source: [B * H, S, K]
    values: Tensor
    recent: list[Tensor]  # inputs of a convolutional feed-forward layer


def _feed_forward(
    kind: FeedForwardKind, width: int, hidden: int, dropout: float, noise: Noise | None, *, causal: bool
) -> FeedForward | ConvFeedForward:
    if kind == "conv":
        return ConvFeedForward(width, hidden, causal=causal, dropout=dropout, noise=noise)
    return FeedForward(width, hidden, kind, dropout=dropout, noise=noise)


@torch.no_grad()
def scale_outputs(gain: float, *outputs: Linear) -> None:
    """Multiply the initial weights of the last projections of sub-layers, which add to the residual stream."""
    for output in outputs:
        output.weight.mul_(gain)


Layer = TypeVar("Layer", bound=nn.Module)


class Stack(nn.ModuleList, Generic[Layer]):
    """A ModuleList of layers of one type. FSDP shards each of its layers on its own."""

    def __iter__(self) -> Iterator[Layer]:
        return super().__iter__()  # type: ignore[return-value]
