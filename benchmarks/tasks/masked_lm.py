"""The masked language model of `mlm-english` as a plain PyTorch program: padded batches, nn.Linear, nn.Conv1d, SDPA.

Shapes: B sentences, T words, W characters, D width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Recipe
from regard.data.batch import NO_LABEL, Batch
from regard.models.word_encoder import CHARACTERS
from regard.nn.positions import sinusoids


class Layer(nn.Module):
    """A pre-norm encoder layer with convolutions as its feed-forward part, or with the paper's."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float, *, convolve: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        kernel = 3 if convolve else 1
        self.inner = nn.Conv1d(width, hidden, kernel, padding=kernel // 2)
        self.outer = nn.Conv1d(hidden, width, kernel, padding=kernel // 2)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.dropout(self.attention(y, y, y, key_padding_mask=pad, need_weights=False)[0])
        y = self.norms[1](x).masked_fill(pad[..., None], 0).transpose(1, 2)
        y = torch.relu(self.inner(y)).masked_fill(pad[:, None], 0)
        return x + self.dropout(self.outer(y).transpose(1, 2))


class PlainMaskedLm(nn.Module):
    """Embedding, character convolution, encoder, and the embedding as output layer."""

    def __init__(self, options: dict[str, Any], sizes: dict[str, int]) -> None:
        super().__init__()
        width = options["width"]
        self.embedding = nn.Embedding(sizes["source_size"], width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.characters: nn.Embedding | None = None
        if options["characters"]:
            own = options["character_width"]
            self.characters = nn.Embedding(sizes["num_characters"], own, padding_idx=0)
            self.filters = nn.Conv1d(own, 4 * own, 5, padding=2)
            self.spelling = nn.Linear(4 * own, width)
        self.register_buffer("positions", sinusoids(1024, width), persistent=False)
        self.dropout = nn.Dropout(options["dropout"])
        convolve = options["feed_forward"] == "conv"
        self.layers = nn.ModuleList(
            Layer(width, options["num_heads"], options["hidden"], options["dropout"], convolve=convolve)
            for _ in range(options["num_layers"])
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, source: Tensor, labels: Tensor, pad: Tensor, *characters: Tensor) -> Tensor:
        """Return the summed loss of the hidden words."""
        x = self.embedding(source) * math.sqrt(self.embedding.embedding_dim)
        if self.characters is not None:
            (spelled,) = characters
            found = torch.relu(self.filters(self.characters(spelled.flatten(0, 1)).transpose(1, 2)))
            x = x + self.spelling(found.amax(dim=2)).view_as(x)
        assert isinstance(self.positions, Tensor)
        x = self.dropout(x + self.positions[: source.size(1)])
        for layer in self.layers:
            x = layer(x, pad)
        hidden = labels != NO_LABEL
        logits = F.linear(self.norm(x[hidden]), self.embedding.weight)
        return F.cross_entropy(logits.float(), labels[hidden], reduction="sum")


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the model that a recipe describes. `sizes` are those of the codec."""
    return PlainMaskedLm({"characters": 0, "character_width": 32, **recipe.model}, sizes)


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return one of our CPU batches as padded tensors: ids, labels, True where there is no word, and characters."""
    layout = batch.source.layout
    with torch.no_grad():
        pad = ~layout.mask
        source = layout.pad(batch.source.values).masked_fill(pad, 0)
        labels = layout.pad(batch.labels.values).masked_fill(pad, NO_LABEL)
        if CHARACTERS not in batch.extras:
            return source, labels, pad
        return source, labels, pad, layout.pad(batch.extras[CHARACTERS].values).masked_fill(pad[..., None], 0)
