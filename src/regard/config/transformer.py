"""The options of a Transformer: the `[model]` table of a recipe whose `model.kind` is "transformer".

Without torch, so that the engine reads runs where torch is not installed. Other families derive their options from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from regard.config.struct import LARGEST, MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, Struct, below_one, between

SinusoidKind = Literal["sinusoid", "sinusoid-halves", "sinusoid-log"]
PositionKind = Literal[SinusoidKind, "learned", "rotary", "none"]
NormKind = Literal["layer", "rms"]
NormOrder = Literal["post", "pre"]
FeedForwardKind = Literal["relu", "gelu", "silu", "swiglu", "conv"]
AttentionBackend = Literal["auto", "explicit", "sdpa", "varlen", "tiled"]
# What shares one matrix: source embedding, target embedding and output layer; the last two of these; nothing.
Tie = Literal["all", "target", "none"]

NORM_EPS = 1e-6  # added to the variance: tensor2tensor's value, since the paper names none
START_ID = 1  # BOS of all tokenizers (`text.symbols`)
WIDEST_HEAD = 256  # that the attention kernel supports

PRESETS: Mapping[str, Mapping[str, object]] = {
    "base": {},
    "big": {"width": 1024, "hidden": 4096, "num_heads": 16, "dropout": 0.3},
    "small": {"width": 512, "hidden": 1024, "num_heads": 4, "dropout": 0.3},
    "tiny": {"width": 128, "hidden": 256, "num_heads": 4, "num_layers": 4, "dropout": 0.3},
}


@dataclass(frozen=True)
class HeadShape:
    """The number of heads, and what each computes."""

    num_heads: int
    key_width: int  # of queries and keys
    value_width: int
    normed: bool = False  # queries and keys pass through an RMSNorm each (Henry et al. 2020)
    rotary: bool = False  # queries and keys of self-attention are rotated by their positions (Su et al. 2021)
    bias: bool = False  # of the projections; the paper has none


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
    norm_eps: float = NORM_EPS  # added to the variance by norms of layers
    final_norm: bool | None = None  # one more norm at the end of a stack; unset: if norm_order is "pre"
    sublayer_gain: float = (
        1.0  # of the initial weights of each sub-layer's last projection; 0.5 lets deep post-norm models learn
    )
    feed_forward: FeedForwardKind = "relu"  # activation of the feed-forward layer; conv: convolutions instead
    attention_bias: bool = False  # the projections of attention have biases, which the paper's do not
    qk_norm: bool = False  # queries and keys are normed before their product
    window: int | None = None  # self-attention sees this many positions on each side; None: all
    attention: AttentionBackend = "auto"  # which backend of attend() computes it

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
    def has_final_norm(self) -> bool:
        """Whether one more norm stands at the end of a stack. Post-norm layers end in norms of their own."""
        return self.norm_order == "pre" if self.final_norm is None else self.final_norm

    @property
    def static_shapes(self) -> bool:
        """Whether our attention kernel supports these heads: it is the only backend that needs no lengths on the host."""
        widest = max(self.heads.key_width, self.heads.value_width)
        return self.attention in ("auto", "tiled") and widest <= WIDEST_HEAD

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width", "num_heads", "key_width", "value_width")
        between(self, 1, 8 * MAX_WIDTH, "hidden")
        between(self, 0, MAX_LAYERS, "num_layers")
        between(self, 1, MAX_POSITIONS, "max_positions")
        between(self, 0, MAX_POSITIONS, "window", "first_position")
        if not 0 < self.norm_eps <= 1:
            raise ValueError(f"norm_eps is {self.norm_eps}; it must be above 0 and at most 1")
        if not 0 < self.sublayer_gain <= 10:
            raise ValueError(f"sublayer_gain is {self.sublayer_gain}; it must be above 0 and at most 10")
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
    start_id: int = START_ID  # the id whose embedding the decoder reads first; 2 (EOS) in fairseq
    source_eos: bool = True  # the encoder reads the EOS at the end of a source, which OpenNMT-py's does not
    copy: bool = False  # whether tokens of the source can be copied to the output (`models.copying`)

    @property
    def depth(self) -> int:
        """The number of layers of the decoder."""
        return self.num_layers if self.decoder_layers is None else self.decoder_layers

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
