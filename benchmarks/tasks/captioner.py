"""A captioner built from `nn.TransformerEncoder` and `nn.TransformerDecoder`, with padded captions.

Shapes: B pictures, M patches of a picture, P numbers of a patch, T positions of the longest caption, D width, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Recipe
from regard.data.batch import NO_LABEL, Batch
from regard.models import model_config
from regard.models.captioner import CaptionerConfig
from regard.nn.positions import sinusoids

LONGEST = 256  # tokens of a caption


class PlainCaptioner(nn.Module):
    """A linear layer for patches with learned rows and columns, an encoder, and a decoder with tied embeddings."""

    def __init__(self, config: CaptionerConfig, *, picture_height: int, picture_width: int, target_size: int) -> None:
        super().__init__()
        D, pre = config.width, config.norm_order == "pre"
        rows, self.columns = picture_height // config.patch, picture_width // config.patch
        self.patches = nn.Linear(3 * config.patch**2, D)
        self.rows = nn.Parameter(torch.randn(rows, 1, D) * 0.5**0.5)
        self.across = nn.Parameter(torch.randn(1, self.columns, D) * 0.5**0.5)
        self.embedding = nn.Embedding(target_size, D)
        nn.init.normal_(self.embedding.weight, std=D**-0.5)
        self.register_buffer("positions", sinusoids(LONGEST, D), persistent=False)
        options = {"dropout": config.dropout, "batch_first": True, "norm_first": pre}
        encoder = nn.TransformerEncoderLayer(D, config.num_heads, config.hidden, **options)
        decoder = nn.TransformerDecoderLayer(D, config.num_heads, config.hidden, **options)
        # Dropout as in the paper: on sub-layers and embeddings alone, which is also faster.
        for attention in (encoder.self_attn, decoder.self_attn, decoder.multihead_attn):
            attention.dropout = 0.0
        encoder.dropout.p = decoder.dropout.p = 0.0
        depth = config.num_layers if config.decoder_layers is None else config.decoder_layers
        norms = [nn.LayerNorm(D), nn.LayerNorm(D)] if pre else [None, None]
        self.encoder = nn.TransformerEncoder(encoder, config.num_layers, norms[0], enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, depth, norms[1])
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, patches_BMP: Tensor, read_BT: Tensor, labels_BT: Tensor) -> Tensor:
        places_MD = (self.rows + self.across).flatten(0, 1)
        memory_BMD = self.encoder(self.dropout(self.patches(patches_BMP) + places_MD))
        T, D = read_BT.size(1), self.embedding.embedding_dim
        x_BTD = self.dropout(self.embedding(read_BT) * math.sqrt(D) + self.positions[:T])
        causal_TT = torch.ones(T, T, dtype=torch.bool, device=x_BTD.device).triu(1)
        # Padding stands behind each caption, so no real token sees it, and its labels do not count.
        hidden_BTD = self.decoder(x_BTD, memory_BMD, tgt_mask=causal_TT, tgt_is_causal=True)
        logits_BTV = F.linear(hidden_BTD, self.embedding.weight).float()
        return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), ignore_index=NO_LABEL, reduction="sum")


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the captioner that the recipe describes."""
    _, config = model_config(recipe.model)
    assert isinstance(config, CaptionerConfig), "the recipe's model is not a captioner"
    return PlainCaptioner(config, **sizes)


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return patches, [B, M, P], what the decoder reads, and labels, both [B, T]. All pictures have M patches."""
    assert batch.target is not None, "captions are read by a decoder"
    layout = batch.labels.layout
    patches = batch.source.values.unflatten(0, (layout.num_sentences, -1))
    read, labels = layout.pad(batch.target.values), layout.pad(batch.labels.values)
    return patches, read.masked_fill(~layout.mask, 0), labels.masked_fill(~layout.mask, NO_LABEL)
