"""A hierarchical attention network of `nn.GRU` on padded batches of three dimensions.

Shapes: B documents, S sentences of the longest document, T words of the longest sentence, L labels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.config import Recipe
from regard.data.batch import NO_LABEL, SENTENCES, Batch
from regard.models import model_config
from regard.models.han import HanConfig


class PlainLevel(nn.Module):
    """A bidirectional GRU and attention over padded sequences."""

    def __init__(self, width: int, config: HanConfig) -> None:
        super().__init__()
        self.gru = nn.GRU(width, config.hidden // 2, batch_first=True, bidirectional=True)
        self.compare = nn.Linear(config.hidden, config.attention)
        self.query = nn.Linear(config.attention, 1, bias=False)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.size(1))
        scores = self.query(torch.tanh(self.compare(states))).squeeze(-1)
        padding = torch.arange(x.size(1), device=x.device) >= lengths[:, None]
        weights = scores.masked_fill(padding, float("-inf")).softmax(dim=-1)
        return (weights[:, :, None] * states).sum(dim=1)


class PlainHan(nn.Module):
    """Words to sentences to a document to a label."""

    def __init__(self, config: HanConfig, *, source_size: int, num_labels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(source_size, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.words = PlainLevel(config.width, config)
        self.sentences = PlainLevel(config.hidden, config)
        self.output = nn.Linear(config.hidden, num_labels)

    def forward(self, ids_BST: Tensor, words_BS: Tensor, sentences_B: Tensor, labels_B: Tensor) -> Tensor:
        real = words_BS > 0
        vectors = self.words(self.dropout(self.embedding(ids_BST[real])), words_BS[real])
        padded = vectors.new_zeros(*real.shape, vectors.size(-1))
        padded[real] = self.dropout(vectors)
        logits_BL = self.output(self.dropout(self.sentences(padded, sentences_B))).float()
        return F.cross_entropy(logits_BL, labels_B, ignore_index=NO_LABEL, reduction="sum")


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the network that the recipe describes."""
    _, config = model_config(recipe.model)
    assert isinstance(config, HanConfig), "the recipe's model is not a hierarchical attention network"
    return PlainHan(config, **sizes)


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return ids [B, S, T], the words of each sentence [B, S], the sentences of each document [B], and labels [B]."""
    documents, words = batch.extras[SENTENCES].layout, batch.source.layout
    ids_NT = words.pad(batch.source.values).masked_fill(~words.mask, 0)
    ids_BST = documents.pad(ids_NT).masked_fill(~documents.mask[:, :, None], 0)
    words_BS = documents.pad(torch.tensor(words.lengths)).masked_fill(~documents.mask, 0)
    return ids_BST, words_BS, torch.tensor(documents.lengths), batch.labels.values
