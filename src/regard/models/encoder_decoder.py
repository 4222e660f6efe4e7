"""The stacks of layers that the Transformer shares with other families, and their options.

`TransformerEncoder` is the encoder of the paper (Vaswani et al. 2017, section 3) for models without a decoder, or with
another one. `EncoderDecoder` has both stacks; the Transformer and the non-autoregressive models derive from it.

Shapes: N target tokens, M source tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from regard import kernels
from regard.config import LARGEST, MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, Struct, below_one, between
from regard.data.ragged import Layout, Ragged
from regard.models.base import Model, make_config
from regard.models.tied_embeddings import Tie, TiedEmbeddings
from regard.nn.attend import AttentionMask, Backend
from regard.nn.attention import HeadShape
from regard.nn.device import stream_dtype
from regard.nn.dropout import Dropout
from regard.nn.feedforward import FeedForwardKind
from regard.nn.layers import Stack, TransformerDecoderLayer, TransformerEncoderLayer
from regard.nn.norms import EPS, Norm, NormKind, NormOrder
from regard.nn.positions import PositionKind, Positions, Rotation
from regard.text.tokenizer import BOS


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
    # How the model knows the order of tokens: the paper's sinusoids, two other formulas (`nn.positions`), learned, rotary.
    positions: PositionKind = "sinusoid"
    first_position: int = 0  # number of the first token in the formula of sinusoids; 2 in fairseq
    max_positions: int = 1024  # of "learned" positions
    norm: NormKind = "layer"  # layer norm, or division by the root mean square
    norm_order: NormOrder = "post"  # after each sub-layer, as published, or before it
    norm_eps: float = EPS  # added to the variance by norms of layers
    final_norm: bool | None = None  # one more norm at the end of a stack; unset: if norm_order is "pre"
    feed_forward: FeedForwardKind = "relu"  # activation of the feed-forward layer; conv: convolutions instead
    attention_bias: bool = False  # the projections of attention have biases, which the paper's do not
    qk_norm: bool = False  # queries and keys are normed before their product
    window: int | None = None  # self-attention sees this many positions on each side; None: all
    attention: Backend = "auto"  # which backend of attend() computes it

    @property
    def heads(self) -> HeadShape:
        return HeadShape(
            self.num_heads,
            self.key_width or self.width // self.num_heads,
            self.value_width or self.width // self.num_heads,
            normed=self.qk_norm,
            rotary=self.positions == "rotary",
            bias=self.attention_bias,
        )

    @property
    def static_shapes(self) -> bool:
        """Whether our attention kernel supports these heads: it is the only backend that needs no lengths on the host."""
        widest = max(self.heads.key_width, self.heads.value_width)
        return self.attention in ("auto", "tiled") and widest <= kernels.WIDEST_HEAD

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width", "num_heads", "key_width", "value_width")
        between(self, 1, 8 * MAX_WIDTH, "hidden")
        between(self, 0, MAX_LAYERS, "num_layers")
        between(self, 1, MAX_POSITIONS, "max_positions")
        between(self, 0, MAX_POSITIONS, "window", "first_position")
        if not 0 < self.norm_eps <= 1:
            raise ValueError(f"norm_eps is {self.norm_eps}; it must be above 0 and at most 1")
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
    tie: Tie = "all"  # which embeddings share weights: all and the output layer, target and output layer, or none
    scale_embeddings: bool = True  # multiply embeddings by the root of the width (section 3.4)
    output_bias: bool = False  # the output layer has a bias per token
    start_id: int = BOS  # the id whose embedding the decoder reads first; 2 (EOS) in fairseq
    source_eos: bool = True  # the encoder reads the EOS at the end of a source, which OpenNMT-py's does not
    copy: bool = False  # whether tokens of the source can be copied to the output (`models.copying`)

    def check(self) -> None:
        super().check()
        between(self, 0, MAX_LAYERS, "decoder_layers")
        between(self, 0, LARGEST, "start_id")
        if self.copy and not self.source_eos:
            raise ValueError("copy needs all tokens of the source; leave out source_eos=false")

    @property
    def static_shapes(self) -> bool:
        # Where a source ends is known on the host only.
        return super().static_shapes and self.source_eos


class TransformerEncoder(nn.Module):
    """The encoder of the paper over vectors: positions, dropout, layers. If `causal`, no token sees later ones."""

    def __init__(self, config: EncoderConfig, model: Model, *, causal: bool = False) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.positions = make_positions(config)
        self.dropout = Dropout(config.dropout, model.noise)
        options = {**layer_options(config), "noise": model.noise}
        self.layers: Stack[TransformerEncoderLayer] = Stack(
            TransformerEncoderLayer(**options) for _ in range(config.num_layers)
        )
        self.norm = make_final_norm(config)

    def forward(self, x_MD: Tensor, layout: Layout) -> Ragged:
        x_MD = self.positions.add(x_MD, layout.positions, layout.longest)
        x_MD = self.dropout(x_MD.to(stream_dtype(x_MD)))
        mask = AttentionMask(layout, causal=self.causal, window=self.config.window)
        for layer in self.layers:
            x_MD = layer(x_MD, mask)
        return Ragged(self.norm(x_MD), layout)


class EncoderDecoder(TiedEmbeddings):
    """An encoder stack, a decoder stack, and embeddings that may share one matrix."""

    config: TransformerConfig

    def __init__(
        self, config: TransformerConfig | None = None, *, source_size: int, target_size: int, **options: Any
    ) -> None:
        config = make_config(TransformerConfig, config, options)
        sizes = {"source_size": source_size, "target_size": target_size}
        super().__init__(config.width, config.tie, **sizes, output_bias=config.output_bias)
        self.config = config
        self.max_length = config.max_positions if config.positions == "learned" else None
        self.source_positions, self.target_positions = make_positions(config), make_positions(config)
        self.dropout = Dropout(config.dropout, self.noise)
        depth = config.num_layers if config.decoder_layers is None else config.decoder_layers
        options = {**layer_options(config), "noise": self.noise}
        self.encoder: Stack[TransformerEncoderLayer] = Stack(
            TransformerEncoderLayer(**options) for _ in range(config.num_layers)
        )
        self.decoder: Stack[TransformerDecoderLayer] = Stack(TransformerDecoderLayer(**options) for _ in range(depth))
        self.encoder_norm, self.decoder_norm = make_final_norm(config), make_final_norm(config)

    def encode(self, source: Ragged) -> Ragged:
        layout = source.layout
        x_MD = self._embed(
            source.values, self.source_embedding, self.source_positions, layout.positions, layout.longest
        )
        return self._through_encoder(x_MD, layout)

    def _through_encoder(self, x_MD: Tensor, layout: Layout) -> Ragged:
        """Return the encoder's output for these vectors."""
        mask = AttentionMask(layout, window=self.config.window)
        for layer in self.encoder:
            x_MD = layer(x_MD, mask)
        return Ragged(self.encoder_norm(x_MD), layout)

    @property
    def static_shapes(self) -> bool:
        return self.config.static_shapes

    def _through_decoder(
        self, x_ND: Tensor, layout: Layout, memory: Ragged, *, causal: bool, also: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return the decoder's output for these vectors: [N, D]. Every layer receives `also` as further arguments."""
        own = AttentionMask(layout, causal=causal, window=self.config.window)
        across = AttentionMask(layout, memory.layout)
        for layer in self.decoder:
            x_ND = layer(x_ND, memory.values, own, across, *also)
        hidden_ND: Tensor = self.decoder_norm(x_ND)
        return hidden_ND

    def _embed(self, ids: Tensor, table: Tensor, positions: Positions, places: Tensor, longest: int) -> Tensor:
        scale = math.sqrt(self.config.width) if self.config.scale_embeddings else 1.0  # section 3.4
        if kernels.usable(table) and positions.kind != "learned":
            from regard.kernels.embedding import embed

            drop = self.dropout.draw(table.device) if self.dropout.active else None
            constants = positions.constants(longest)
            places = places.expand(ids.shape).contiguous()
            return embed(ids, table, places, constants, scale=scale, drop=drop, dtype=stream_dtype(table))
        x_ND = positions.add(F.embedding(ids, table) * scale, places, longest)
        return self.dropout(x_ND.to(stream_dtype(table)))

    def _rotation(self, positions: Tensor) -> Rotation | None:
        return Rotation(positions, self.config.heads.key_width) if self.config.positions == "rotary" else None


def make_positions(config: EncoderConfig) -> Positions:
    """Return the positions of a stack of layers."""
    return Positions(config.positions, config.width, max_positions=config.max_positions, first=config.first_position)


def make_final_norm(config: EncoderConfig) -> nn.Module:
    """Return the norm at the end of a stack. Post-norm layers end in norms of their own."""
    wanted = config.norm_order == "pre" if config.final_norm is None else config.final_norm
    return Norm(config.norm, config.width, eps=config.norm_eps) if wanted else nn.Identity()


def layer_options(config: EncoderConfig) -> dict[str, Any]:
    """Return the arguments of a layer of this model, noise excepted."""
    return {
        "width": config.width,
        "heads": config.heads,
        "hidden": config.hidden,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "norm": config.norm,
        "norm_order": config.norm_order,
        "norm_eps": config.norm_eps,
        "feed_forward": config.feed_forward,
        "backend": config.attention,
    }
