"""The contract of models that read a story and a question, and answer with one label.

A batch has one sequence per story:

    source                 the words of all sentences, the question's last
    extras["sentence"]     for each word, the number of its sentence in the story
    extras["place"]        for each word, its place in the sentence
    extras["sentences"]    for each sentence, its number of words
    labels                 the answer

All of them have as many sequences as there are stories, so a batch can be cut, and its shapes can be static. `Story` gives
what models need of them.

Shapes: N words, B stories, T sentences of the longest story, the question included, L answers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batch import NO_LABEL, SENTENCES, Batch
from regard.data.ragged import Layout
from regard.models.base import Model

SENTENCE, PLACE = "sentence", "place"


@dataclass(frozen=True)
class Story:
    """The words of a batch of stories, and where they stand."""

    words: Tensor  # ids: [N]
    layout: Layout  # of the words
    sentences: Layout  # of the sentences
    story: Tensor  # the story of each word: [N]
    sentence: Tensor  # the number of its sentence: [N]
    place: Tensor  # its place in the sentence: [N]
    last: Tensor  # the number of the question, which is the last sentence of a story: [B]

    @classmethod
    def of(cls, batch: Batch) -> Story:
        # Dummy words of a packed batch have -1 in extras.
        sentence, place = (batch.extras[name].values.long().clamp(min=0) for name in (SENTENCE, PLACE))
        sentences = batch.extras[SENTENCES].layout
        last_B = (sentences.mask.sum(dim=1) - 1).clamp(min=0)
        layout = batch.source.layout
        return cls(batch.source.values, layout, sentences, layout.sentences.long(), sentence, place, last_B)

    @property
    def from_end(self) -> Tensor:
        """How many sentences follow that of each word; 0 for words of the question: [N]."""
        return (self.last.index_select(0, self.story) - self.sentence).clamp(min=0)


class StoryModel(Model):
    """A model that answers a question about a story."""

    max_sentences: int  # of a story; the last ones are read

    @abstractmethod
    def answers(self, batch: Batch) -> Tensor:
        """Return the logits of every answer, in float32: [B, L]. The labels of the batch are not used."""

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        logits_BL = self.answers(batch)
        # A packed batch may have room for another number of labels than of stories.
        logits_BL = logits_BL.index_select(0, batch.labels.layout.sentences.long().clamp(max=logits_BL.size(0) - 1))
        labels_B = batch.labels.values.long()
        return F.cross_entropy(logits_BL, labels_B, reduction="sum", ignore_index=NO_LABEL, label_smoothing=smoothing)


def sum_of_words(x_ND: Tensor, rows_N: Tensor, rows: int) -> Tensor:
    """Return the sum of the vectors of each row: [rows, D]."""
    return torch.zeros(rows, x_ND.size(1), dtype=x_ND.dtype, device=x_ND.device).index_add(0, rows_N, x_ND)
