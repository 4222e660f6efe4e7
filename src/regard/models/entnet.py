"""Recurrent Entity Networks (Henaff et al. 2017): a memory of slots that is updated sentence by sentence, then asked.

A sentence is the sum of its words' embeddings, each multiplied by a mask for its place (equation 1); the question has masks
of its own. Everything is computed in float32, whatever the precision of the run: a story may have a hundred updates, and
their products are small.

Shapes: N words, B stories, T sentences of the longest story, the question included, J slots, D width, L answers.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import MAX_POSITIONS, MAX_WIDTH, Struct, below_one, between
from regard.data.batch import Batch
from regard.models.base import make_config
from regard.models.story_model import Story, StoryModel, sum_of_words
from regard.nn.entities import EntityAnswer, EntityMemory


class EntNetConfig(Struct, frozen=True):
    """Defaults are those of the paper for bAbI."""

    width: int = 100
    slots: int = 20
    init_std: float = 0.1  # standard deviation of the first weights, masks and PReLU slopes excepted, which are 1
    max_sentences: int = 70  # of a story; the last ones are read
    max_words: int = 12  # places with masks of their own; further words share the last mask

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width")
        between(self, 1, 4096, "slots")
        between(self, 1, 10_000, "max_sentences")
        below_one(self, "init_std")
        between(self, 1, MAX_POSITIONS, "max_words")


class EntNet(StoryModel):
    """Sentences, slots, and an answer from the slots."""

    similar_lengths = True

    def __init__(
        self, config: EntNetConfig | None = None, *, source_size: int, num_labels: int, **options: Any
    ) -> None:
        config = make_config(EntNetConfig, config, options)
        super().__init__()
        self.config, self.width, self.max_sentences = config, config.width, config.max_sentences
        D = config.width
        self.embedding = nn.Parameter(torch.empty(source_size, D).normal_(std=config.init_std))
        # Of the places of a sentence, then of those of the question.
        self.masks = nn.Parameter(torch.ones(2 * config.max_words, D))
        self.memory = EntityMemory(config.slots, D, init_std=config.init_std)
        self.answer = EntityAnswer(D, num_labels, init_std=config.init_std)

    @property
    def static_shapes(self) -> bool:
        return True

    def answers(self, batch: Batch) -> Tensor:
        story = Story.of(batch)
        with torch.autocast(batch.source.values.device.type, enabled=False):
            s_TBD = self._sentences(story)
            B = s_TBD.size(1)
            q_BD = s_TBD.flatten(0, 1).index_select(0, story.last * B + torch.arange(B, device=s_TBD.device))
            # A place is that of a sentence of the story if another one follows it.
            h_BJD = self.memory(s_TBD[:-1], story.sentences.mask[:, 1:].t())
            return self.answer(q_BD, h_BJD)

    def _sentences(self, story: Story) -> Tensor:
        """Return the vector of every sentence and of the question; zeros where a story has none: [T, B, D]."""
        B, T = story.sentences.num_sentences, story.sentences.longest
        place_N = story.place.clamp(max=self.config.max_words - 1)
        place_N = torch.where(story.from_end == 0, place_N + self.config.max_words, place_N)
        x_ND = F.embedding(story.words, self.embedding) * F.embedding(place_N, self.masks)
        return sum_of_words(x_ND, story.sentence * B + story.story, T * B).unflatten(0, (T, B))
