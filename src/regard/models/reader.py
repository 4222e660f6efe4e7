"""A Transformer that reads a story and a question as one sequence, and answers from the words of the question.

Each word has an embedding for how many sentences follow its own, in addition to the position that the encoder adds: what
is true now depends on what was told last.

Shapes: N words, B stories, D width, L answers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import between
from regard.data.batch import Batch
from regard.models.base import make_config
from regard.models.encoder_decoder import EncoderConfig, TransformerEncoder
from regard.models.story_model import Story, StoryModel, sum_of_words
from regard.nn.linear import Linear


class ReaderConfig(EncoderConfig, frozen=True):
    """An encoder, and how many sentences of a story it reads."""

    max_sentences: int = 70  # of a story; the last ones are read

    def check(self) -> None:
        super().check()
        between(self, 1, 10_000, "max_sentences")


class Reader(StoryModel):
    """An encoder of words, and an answer from the mean of the question's encoded words."""

    def __init__(
        self, config: ReaderConfig | None = None, *, source_size: int, num_labels: int, **options: Any
    ) -> None:
        config = make_config(ReaderConfig, config, options)
        super().__init__()
        self.config, self.width, self.max_sentences = config, config.width, config.max_sentences
        self.max_length = config.max_positions if config.positions == "learned" else None
        D = config.width
        self.embedding = nn.Parameter(torch.empty(source_size, D).normal_(std=D**-0.5))
        self.sentence_embedding = nn.Parameter(torch.empty(1 + config.max_sentences, D).normal_(std=D**-0.5))
        self.encoder = TransformerEncoder(config, self)
        self.output = Linear(D, [num_labels], bias=True, hidden=False)

    @property
    def static_shapes(self) -> bool:
        return self.config.static_shapes

    def answers(self, batch: Batch) -> Tensor:
        story = Story.of(batch)
        after_N = story.from_end.clamp(max=self.config.max_sentences)
        x_ND = F.embedding(story.words, self.embedding) + F.embedding(after_N, self.sentence_embedding)
        encoded_ND = self.encoder(x_ND * math.sqrt(self.width), story.layout).values
        asked_N1 = (story.from_end == 0).to(torch.float32)[:, None]
        # The count of words is summed with them.
        sums_BD = sum_of_words(
            torch.cat([encoded_ND.float() * asked_N1, asked_N1], dim=1), story.story, story.sentences.num_sentences
        )
        means_BD = sums_BD[:, :-1] / sums_BD[:, -1:].clamp(min=1)
        logits_BL: Tensor = self.output(means_BD.to(encoded_ND.dtype)).float()
        return logits_BL
