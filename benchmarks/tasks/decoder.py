"""A language model in plain PyTorch: nn.TransformerEncoder with a causal mask, over padded texts."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Recipe
from regard.data.batch import NO_LABEL, Batch
from regard.models import model_config
from regard.models.decoder import DecoderConfig

LONGEST = 4096  # positions that the model has


class PlainDecoder(nn.Module):
    """Learned embeddings, which the output layer shares, and sinusoids."""

    positions: Tensor

    def __init__(self, config: DecoderConfig, vocabulary: int, smoothing: float) -> None:
        super().__init__()
        self.width, self.smoothing = config.width, smoothing
        self.embedding = nn.Embedding(vocabulary, config.width)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.num_heads,
            config.hidden,
            config.dropout,
            activation="relu" if config.feed_forward == "relu" else "gelu",
            batch_first=True,
            norm_first=config.norm_order == "pre",
        )
        norm = nn.LayerNorm(config.width) if config.norm_order == "pre" else None
        self.layers = nn.TransformerEncoder(layer, config.num_layers, norm, enable_nested_tensor=False)
        self.dropout = nn.Dropout(config.dropout)
        angles = torch.arange(LONGEST)[:, None] * torch.exp(
            torch.arange(0, config.width, 2) * (-math.log(10_000) / config.width)
        )
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1), persistent=False)

    def forward(self, read: Tensor, labels: Tensor) -> Tensor:
        """Return the summed loss of padded texts, [B, T] each. Labels of padding are NO_LABEL."""
        length = read.size(1)
        x = self.dropout(self.embedding(read) * math.sqrt(self.width) + self.positions[:length])
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=read.device)
        # Padding stands behind the text, where a causal mask hides it.
        hidden = self.layers(x, mask=mask, is_causal=True)
        logits = F.linear(hidden, self.embedding.weight).flatten(0, 1)
        return F.cross_entropy(
            logits, labels.flatten(), ignore_index=NO_LABEL, label_smoothing=self.smoothing, reduction="sum"
        )


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the model that the recipe describes; rotary positions become sinusoids, and SwiGLU becomes GELU."""
    _, config = model_config(recipe.model)
    assert isinstance(config, DecoderConfig), config
    return PlainDecoder(config, sizes["source_size"], recipe.train.label_smoothing)


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return what the decoder reads and its labels, [B, T] each."""
    read, labels = batch.source.split(), batch.labels.split()
    return (
        nn.utils.rnn.pad_sequence(list(read), batch_first=True),
        nn.utils.rnn.pad_sequence(list(labels), batch_first=True, padding_value=NO_LABEL),
    )
