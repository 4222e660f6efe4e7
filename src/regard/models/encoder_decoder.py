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
from regard.config.transformer import EncoderConfig, TransformerConfig
from regard.data.ragged import Layout, Ragged
from regard.models.base import Model, make_config
from regard.models.tied_embeddings import TiedEmbeddings
from regard.nn.attend import AttentionMask
from regard.nn.device import stream_dtype
from regard.nn.dropout import Dropout
from regard.nn.layers import Stack, TransformerDecoderLayer, TransformerEncoderLayer
from regard.nn.norms import Norm
from regard.nn.positions import Positions, Rotation

__all__ = ["EncoderConfig", "EncoderDecoder", "TransformerConfig", "TransformerEncoder"]


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
        options = {**layer_options(config), "noise": self.noise}
        self.encoder: Stack[TransformerEncoderLayer] = Stack(
            TransformerEncoderLayer(**options) for _ in range(config.num_layers)
        )
        self.decoder: Stack[TransformerDecoderLayer] = Stack(
            TransformerDecoderLayer(**options) for _ in range(config.depth)
        )
        self.encoder_norm, self.decoder_norm = make_final_norm(config), make_final_norm(config)

    def encode(self, source: Ragged) -> Ragged:
        layout = source.layout
        x_MD = self._embed(
            source.values, self.source_embedding, self.source_positions, layout.positions, layout.longest
        )
        return self._through_encoder(x_MD, layout)

    def source_vectors(self, ids_M: Tensor) -> Tensor:
        """Return the vectors of source words, before positions are added: [M, D]."""
        return F.embedding(ids_M, self.source_embedding) * self._embedding_scale

    def encode_vectors(self, vectors: Ragged) -> Ragged:
        """Return the encoder's output for vectors in place of those of words, as `source_vectors` gives them."""
        layout = vectors.layout
        return self._through_encoder(
            self.source_positions.add(vectors.values, layout.positions, layout.longest), layout
        )

    @property
    def _embedding_scale(self) -> float:
        return math.sqrt(self.config.width) if self.config.scale_embeddings else 1.0  # section 3.4

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
        scale = self._embedding_scale
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
    """Return the norm at the end of a stack."""
    return Norm(config.norm, config.width, eps=config.norm_eps) if config.has_final_norm else nn.Identity()


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
        "sublayer_gain": config.sublayer_gain,
        "feed_forward": config.feed_forward,
        "backend": config.attention,
    }
