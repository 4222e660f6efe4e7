"""A tagger built from `nn.TransformerEncoder` on padded batches.

Shapes: B sequences, T positions, D width, L labels.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Recipe
from regard.data.batch import NO_LABEL, Batch
from regard.models import model_config
from regard.models.encoder_decoder import EncoderConfig


def sinusoids(length: int, width: int) -> Tensor:
    """Return the paper's positions: [T, D]."""
    angle = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class PlainTagger(nn.Module):
    """Embedding, sinusoids, encoder layers, and one linear layer for the labels."""

    def __init__(self, config: EncoderConfig, *, longest: int, source_size: int, num_labels: int) -> None:
        super().__init__()
        D, pre = config.width, config.norm_order == "pre"
        self.embedding = nn.Embedding(source_size, D)
        nn.init.normal_(self.embedding.weight, std=D**-0.5)
        self.register_buffer("positions", sinusoids(longest, D), persistent=False)
        layer = nn.TransformerEncoderLayer(
            D, config.num_heads, config.hidden, config.dropout, batch_first=True, norm_first=pre
        )
        # Dropout as in the paper: on sub-layers and embeddings alone, which is also faster.
        layer.self_attn.dropout, layer.dropout.p = 0.0, 0.0
        norm = nn.LayerNorm(D) if pre else None
        self.encoder = nn.TransformerEncoder(layer, config.num_layers, norm, enable_nested_tensor=False)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(D, num_labels)

    def forward(self, ids_BT: Tensor, padding_BT: Tensor, labels_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(ids_BT) * math.sqrt(self.embedding.embedding_dim)
        x_BTD = self.dropout(x_BTD + self.positions[: ids_BT.size(1)])
        logits_BTL = self.output(self.encoder(x_BTD, src_key_padding_mask=padding_BT)).float()
        return F.cross_entropy(logits_BTL.flatten(0, 1), labels_BT.flatten(), ignore_index=NO_LABEL, reduction="sum")


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the tagger that the recipe describes."""
    _, config = model_config(recipe.model)
    assert isinstance(config, EncoderConfig), "the recipe's model is not a tagger with a Transformer encoder"
    return PlainTagger(config, longest=recipe.data.max_length, **sizes)


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return ids, True at padding, and labels: each [B, T]."""
    mask = batch.source.layout.mask
    ids, labels = batch.source.layout.pad(batch.source.values), batch.labels.layout.pad(batch.labels.values)
    return ids.masked_fill(~mask, 0), ~mask, labels.masked_fill(~mask, NO_LABEL)
