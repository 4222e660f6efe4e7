"""The layers of "Attention Is All You Need" (Vaswani et al. 2017, section 3) and its common variations, and stacks of them.

The Transformer is made of them, and so are the models that write all tokens at once.

Shapes: N target tokens, M source tokens, D width, B sentences, R rows in search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.config import MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, Struct, below_one, between
from regard.data.ragged import Layout, Ragged
from regard.models.tied_embeddings import Tie, TiedEmbeddings
from regard.nn.attend import AttentionMask, Backend
from regard.nn.attention import CrossAttention, HeadShape, SelfAttention
from regard.nn.cache import KeyValueCache, StaticCache
from regard.nn.device import stream_dtype
from regard.nn.dropout import Dropout, Noise
from regard.nn.feedforward import ConvFeedForward, FeedForward, FeedForwardKind
from regard.nn.norms import Norm, NormKind, NormOrder, Residual
from regard.nn.positions import PositionKind, Positions, Rotation
from regard.nn.stack import Stack


class EncoderConfig(Struct, frozen=True):
    """The layers of a Transformer. Defaults are the paper's base model."""

    width: int = 512  # d_model
    num_layers: int = 6  # N, of the encoder, and of the decoder unless decoder_layers says otherwise
    num_heads: int = 8  # h
    key_width: int | None = None  # d_k; width / num_heads if unset
    value_width: int | None = None  # d_v; width / num_heads if unset
    hidden: int = 2048  # d_ff
    dropout: float = 0.1  # on each sub-layer's output and on the sums of embeddings and positions (section 5.4)
    attention_dropout: float = 0.0  # on attention weights, where tensor2tensor adds it
    activation_dropout: float = 0.0  # inside the feed-forward layer, where tensor2tensor adds it
    positions: PositionKind = "sinusoid"
    max_positions: int = 1024  # of "learned" positions
    norm: NormKind = "layer"
    norm_order: NormOrder = "post"
    feed_forward: FeedForwardKind = "relu"
    qk_norm: bool = False  # queries and keys are normed before their product
    window: int | None = None  # self-attention sees this many positions on each side; None: all
    attention: Backend = "auto"  # which backend of attend() computes it

    @property
    def heads(self) -> HeadShape:
        return HeadShape(
            self.num_heads,
            self.key_width or self.width // self.num_heads,
            self.value_width or self.width // self.num_heads,
            self.qk_norm,
        )

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width", "num_heads", "key_width", "value_width")
        between(self, 1, 8 * MAX_WIDTH, "hidden")
        between(self, 0, MAX_LAYERS, "num_layers")
        between(self, 1, MAX_POSITIONS, "max_positions")
        between(self, 0, MAX_POSITIONS, "window")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            below_one(self, name)
        if self.width % self.num_heads and (self.key_width is None or self.value_width is None):
            fits = max(self.width // self.num_heads, 1) * self.num_heads
            raise ValueError(f"width is {self.width}, not a multiple of num_heads ({self.num_heads}); try {fits}")
        if self.width % 2 or (self.positions == "rotary" and self.heads.key_width % 2):
            raise ValueError(f"width is {self.width}; positions need an even width (and rotary ones, even heads)")
        if self.attention == "varlen" and self.attention_dropout:
            raise ValueError("attention is 'varlen', which has no attention_dropout; set one of them otherwise")


class TransformerConfig(EncoderConfig, frozen=True):
    """An encoder and a decoder. Defaults are the paper's base model."""

    decoder_layers: int | None = None  # num_layers if unset
    tie: Tie = "all"

    def check(self) -> None:
        super().check()
        between(self, 0, MAX_LAYERS, "decoder_layers")


PRESETS: dict[str, dict[str, object]] = {
    "base": {},
    "big": {"width": 1024, "hidden": 4096, "num_heads": 16, "dropout": 0.3},
    "small": {"width": 512, "hidden": 1024, "num_heads": 4, "dropout": 0.3},
    "tiny": {"width": 128, "hidden": 256, "num_heads": 4, "num_layers": 4, "dropout": 0.3},
}


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: EncoderConfig, noise: Noise) -> None:
        super().__init__()
        self.attention = SelfAttention(
            config.width, config.heads, dropout=config.attention_dropout, noise=noise, backend=config.attention
        )
        self.feed_forward = _feed_forward(config, noise, causal=False)
        self.around_attention = residual(config, noise)
        self.around_feed_forward = residual(config, noise)

    def forward(self, x_MD: Tensor, mask: AttentionMask, rotation: Rotation | None) -> Tensor:
        x_MD = self.around_attention(x_MD, lambda x: self.attention(x, mask, rotation))
        return self.around_feed_forward(x_MD, lambda x: self.feed_forward(x, mask.queries))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then feed-forward."""

    def __init__(self, config: EncoderConfig, noise: Noise) -> None:
        super().__init__()
        options = {"dropout": config.attention_dropout, "noise": noise, "backend": config.attention}
        self.attention = SelfAttention(config.width, config.heads, **options)  # type: ignore[arg-type]
        self.cross_attention = CrossAttention(config.width, config.heads, **options)  # type: ignore[arg-type]
        self.feed_forward = _feed_forward(config, noise, causal=True)
        self.around_attention = residual(config, noise)
        self.around_cross_attention = residual(config, noise)
        self.around_feed_forward = residual(config, noise)

    def forward(
        self, x_ND: Tensor, memory_MD: Tensor, own: AttentionMask, across: AttentionMask, rotation: Rotation | None
    ) -> Tensor:
        x_ND = self.around_attention(x_ND, lambda x: self.attention(x, own, rotation))
        x_ND = self.around_cross_attention(x_ND, lambda x: self.cross_attention(x, memory_MD, across))
        return self.around_feed_forward(x_ND, lambda x: self.feed_forward(x, own.queries))

    def step(
        self, x_RD: Tensor, state: LayerState, own_bias: Tensor, memory_bias: Tensor, rotation: Rotation | None
    ) -> Tensor:
        """`forward` for one token a row."""
        x_RD = self.around_attention(x_RD, lambda x: (self.attention.step(x, state.own, own_bias, rotation), x))
        x_RD = self.around_cross_attention(
            x_RD, lambda x: (self.cross_attention.step(x, state.keys, state.values, memory_bias), x)
        )
        return self.around_feed_forward(x_RD, lambda x: (self.feed_forward.step(x, state.recent), x))


@dataclass
class LayerState:
    """What one decoder layer remembers."""

    own: KeyValueCache | StaticCache
    keys: Tensor  # of the source: [B * H, S, K]
    values: Tensor
    recent: list[Tensor]  # of a convolutional feed-forward layer


class EncoderDecoder(TiedEmbeddings):
    """An encoder stack, a decoder stack, and embeddings that may be one matrix."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, *, source_size: int, target_size: int) -> None:
        super().__init__(config.width, config.tie, source_size=source_size, target_size=target_size)
        self.config = config
        D = config.width
        self.max_length = config.max_positions if config.positions == "learned" else None
        self.source_positions = Positions(config.positions, D, max_positions=config.max_positions)
        self.target_positions = Positions(config.positions, D, max_positions=config.max_positions)
        self.dropout = Dropout(config.dropout, self.noise)
        depth = config.num_layers if config.decoder_layers is None else config.decoder_layers
        self.encoder: Stack[EncoderLayer] = Stack(EncoderLayer(config, self.noise) for _ in range(config.num_layers))
        self.decoder: Stack[DecoderLayer] = Stack(DecoderLayer(config, self.noise) for _ in range(depth))
        last = config.norm_order == "pre"  # post-norm layers end in a norm of their own
        self.encoder_norm = Norm(config.norm, D) if last else nn.Identity()
        self.decoder_norm = Norm(config.norm, D) if last else nn.Identity()

    def encode(self, source: Ragged) -> Ragged:
        layout = source.layout
        x_MD = self._embed(
            source.values, self.source_embedding, self.source_positions, layout.positions, layout.longest
        )
        mask, rotation = AttentionMask(layout, window=self.config.window), self._rotation(layout.positions)
        for layer in self.encoder:
            x_MD = layer(x_MD, mask, rotation)
        return Ragged(self.encoder_norm(x_MD), layout)

    @property
    def static_shapes(self) -> bool:
        """As of every model: whether our attention kernel can take these heads, which alone needs no lengths on the host."""
        heads = self.config.heads
        return (
            self.config.attention in ("auto", "tiled")
            and max(heads.key_width, heads.value_width) <= kernels.WIDEST_HEAD
        )

    def _through_decoder(
        self, x_ND: Tensor, layout: Layout, memory: Ragged, *, causal: bool, also: Sequence[Tensor] = ()
    ) -> Tensor:
        """What the decoder makes of these vectors, looking back only or both ways: [N, D]. `also` goes to every layer."""
        own = AttentionMask(layout, causal=causal, window=self.config.window)
        across, rotation = AttentionMask(layout, memory.layout), self._rotation(layout.positions)
        for layer in self.decoder:
            x_ND = layer(x_ND, memory.values, own, across, rotation, *also)
        hidden_ND: Tensor = self.decoder_norm(x_ND)
        return hidden_ND

    def _embed(self, ids: Tensor, table: Tensor, positions: Positions, places: Tensor, longest: int) -> Tensor:
        scale = math.sqrt(self.config.width)  # section 3.4
        if kernels.usable(table) and positions.kind != "learned":
            from regard.kernels.embedding import embed

            drop = self.dropout.draw(table.device) if self.dropout.active else None
            constants = positions.constants(longest)
            places = places.expand(ids.shape).contiguous()
            return embed(ids, table, places, constants, scale=scale, drop=drop, dtype=stream_dtype(table))
        x_ND = positions(F.embedding(ids, table) * scale, places, longest)
        return self.dropout(x_ND.to(stream_dtype(table)))

    def _rotation(self, positions: Tensor) -> Rotation | None:
        return Rotation(positions, self.config.heads.key_width) if self.config.positions == "rotary" else None


def residual(config: EncoderConfig, noise: Noise) -> Residual:
    """The wrapping of one sub-layer."""
    return Residual(config.width, kind=config.norm, order=config.norm_order, dropout=config.dropout, noise=noise)


def _feed_forward(config: EncoderConfig, noise: Noise, *, causal: bool) -> FeedForward | ConvFeedForward:
    dropout = config.activation_dropout
    if config.feed_forward == "conv":
        return ConvFeedForward(config.width, config.hidden, causal=causal, dropout=dropout, noise=noise)
    return FeedForward(config.width, config.hidden, config.feed_forward, dropout=dropout, noise=noise)
