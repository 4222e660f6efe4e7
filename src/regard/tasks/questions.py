"""Question answering: a story, a question about it, and an answer of one word.

An example is a line of sentences, "sentence | sentence | question", of which the last is the question, and the answer
("garden"). An answer of several things is one word, too ("apple,football"). Capital letters, and marks at the end of a
sentence, make no difference. A question without a story is read as its own story.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch

from regard.config import SearchOptions
from regard.data.batch import SENTENCES, Batch, gather_rows, num_labels
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.explain.attention import Axis
from regard.explain.recorded import alternatives_of, recorded_attentions
from regard.explain.stories import story_pictures
from regard.explain.trace import Trace, TraceOptions
from regard.metrics import LABELS
from regard.models import model_config
from regard.models.base import Model
from regard.models.story_model import PLACE, SENTENCE, StoryModel
from regard.nn.attention_log import GATES, capture_attention
from regard.tasks.labels import LabelCodec, LabelTask, one_label
from regard.tasks.predictor import BatchPredictor, Warn, ignore
from regard.text.corpus import Pair
from regard.text.segmenter import SEPARATOR, split_sentences
from regard.text.tokenizer import UNK, Tokenizer

MARKS = " .?!"
MOST_CACHED = 2**16  # encoded sentences


@dataclass(frozen=True)
class EncodedStory:
    """The sentences of a story that a model reads, the question last: as text, and as ids."""

    sentences: list[str]
    ids: list[list[int]]

    def __len__(self) -> int:
        """The number of words."""
        return sum(map(len, self.ids))


def plain_sentence(sentence: str) -> str:
    """Return a sentence in lower case, without marks at its end."""
    return sentence.lower().strip(MARKS)


class QuestionAnsweringTask(LabelTask):
    """An answer per story. Batches are as `models.story_model` describes them."""

    name = "question-answering"
    compares = LABELS

    @property
    def max_sentences(self) -> int:
        """How many sentences of a story the recipe's model reads, without the question."""
        limit = getattr(model_config(self.recipe.model)[1], "max_sentences", None)
        if not isinstance(limit, int):
            raise ConfigError(
                "question answering needs a model family with the option max_sentences; choose another model.kind"
            )
        return limit

    # Data

    def names(self, pair: Pair) -> list[str]:
        return one_label(pair)

    def texts(self, pair: Pair) -> list[str]:
        return [" ".join(map(plain_sentence, split_sentences(pair.source)))]

    def encode(self, examples: Sequence[Pair], codec: LabelCodec) -> Columns:
        encode_story = story_encoder(codec.tokenizer, self.max_sentences)
        stories = [encode_story(pair.source) for pair in examples]
        return story_columns(stories, [codec.label_ids(self.names(pair)) for pair in examples])

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Sentences and places are columns already."""
        return lambda columns: columns

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        return story_batch(columns, rows)

    def probe(self, codec: LabelCodec, length: int, count: int) -> Batch:
        # As many sentences as possible: each takes a step.
        sentences = min(length, 1 + self.max_sentences)
        ids = [list(part) for part in np.array_split(np.full(length, UNK), sentences)]
        columns = story_columns([EncodedStory([], ids)] * count, [[0]] * count)
        return self.collate(columns, np.arange(count))

    # Models

    def predictor(
        self, model: Model, codec: LabelCodec, *, greedy: bool = False, warn: Warn = ignore
    ) -> StoryPredictor:
        return StoryPredictor(model, codec, self.recipe.decode, warn)

    @torch.inference_mode()
    def trace(self, predictor: StoryPredictor, text: str, options: TraceOptions) -> Trace:
        model, codec, story = predictor.model, predictor.codec, predictor.encode_one(text)
        with capture_attention() as log:
            logits_BL = model.answers(predictor.batch([story]))
        best = logits_BL.argmax(dim=-1).tolist()
        words = [
            word for one, ids in zip(story.sentences, story.ids, strict=True) for word in self._words(codec, one, ids)
        ]
        axes = {
            "source": Axis.from_tokens("story and question", words),
            "target": Axis.from_tokens("answer", [codec.labels[best[0]]]),
            "sentences": Axis.from_tokens("sentence", story.sentences[:-1]),
        }
        if (gates := log.first(GATES)) is not None:
            axes["slots"] = Axis.from_tokens("slot", [str(number + 1) for number in range(gates.size(-1))])
        others = alternatives_of(logits_BL.softmax(dim=-1), best, options.alternatives, codec.labels.__getitem__)
        trace = Trace(options.name, axes, recorded_attentions(model, log, axes), *others)
        return replace(trace, pictures=story_pictures(trace, story.sentences[-1], [len(ids) for ids in story.ids]))

    def _words(self, codec: LabelCodec, sentence: str, ids: list[int]) -> list[str]:
        """Return what is written for each id of a sentence."""
        tokens = codec.tokenizer.tokenize(plain_sentence(sentence))
        return tokens if len(tokens) == len(ids) else codec.tokenizer.tokens(ids)


class StoryPredictor(BatchPredictor[StoryModel, LabelCodec, EncodedStory]):
    """A model of this task in use: the answer to each story and question."""

    needs = StoryModel
    if_empty = f"the text is empty; give a story and a question, separated by {SEPARATOR!r}"

    def __init__(self, model: Model, codec: LabelCodec, options: SearchOptions, warn: Warn = ignore) -> None:
        super().__init__(model, codec, options, warn)
        self.encode_story = story_encoder(codec.tokenizer, self.model.max_sentences)

    def encode(self, text: str) -> EncodedStory:
        return self.encode_story(text) if split_sentences(text) else EncodedStory([], [])

    def outputs(self, batch: Sequence[EncodedStory], options: SearchOptions) -> list[str]:
        best = self.model.answers(self.batch(batch)).argmax(dim=-1)
        return [self.codec.labels[number] for number in best.tolist()]

    def batch(self, stories: Sequence[EncodedStory]) -> Batch:
        """Return stories as a batch with made-up labels, on the device of the model."""
        columns = story_columns(stories, [[0]] * len(stories))
        return story_batch(columns, np.arange(len(stories))).to(self.device)

    def kept(self, one: EncodedStory) -> str:
        kept = self._sentences_that_fit(one)
        return (
            f"the last {kept} of its {len(one.ids) - 1} sentences"
            if kept
            else f"the first {self.limit} of its question"
        )

    def cut(self, one: EncodedStory) -> EncodedStory:
        """Return a story without its first sentences, or the start of its question alone."""
        kept = self._sentences_that_fit(one)
        if kept:
            return EncodedStory(one.sentences[-kept - 1 :], one.ids[-kept - 1 :])
        question = one.ids[-1][: max(1, self.limit - 1)]
        return EncodedStory([one.sentences[-1]] * 2, [question[:1], question])

    def _sentences_that_fit(self, one: EncodedStory) -> int:
        """Return how many of the last sentences fit into `limit` with the question."""
        ends = accumulate((len(ids) for ids in one.ids[-2::-1]), initial=len(one.ids[-1]))
        return max(0, sum(end <= self.limit for end in ends) - 1)


def story_encoder(tokenizer: Tokenizer, max_sentences: int) -> Callable[[str], EncodedStory]:
    """Return a function that encodes a line: its last sentences, and the question. Sentences repeat, so some are cached."""

    @lru_cache(maxsize=MOST_CACHED)
    def encode(sentence: str) -> list[int]:
        # A sentence of marks alone has no ids.
        return tokenizer.encode(plain_sentence(sentence)) or [UNK]

    def encode_story(text: str) -> EncodedStory:
        *story, question = split_sentences(text) or [""]
        sentences = [*(story or [question])[-max_sentences:], question]
        return EncodedStory(sentences, [encode(sentence) for sentence in sentences])

    return encode_story


def story_columns(stories: Sequence[EncodedStory], labels: Sequence[Sequence[int]]) -> Columns:
    """Return stories and answers as columns; the words limit the size of a batch."""
    return Columns(
        {
            "source": Column.from_lists([[id for ids in story.ids for id in ids] for story in stories]),
            SENTENCE: Column.from_lists([[t for t, ids in enumerate(story.ids) for _ in ids] for story in stories]),
            PLACE: Column.from_lists([[i for ids in story.ids for i in range(len(ids))] for story in stories]),
            SENTENCES: Column.from_lists([[len(ids) for ids in story.ids] for story in stories]),
            "labels": Column.from_lists(labels),
        },
        ("source",),
    )


def story_batch(columns: Columns, rows: Indices) -> Batch:
    """Return the batch of these rows of `story_columns`."""
    source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows)
    extras = {
        name: Ragged(torch.from_numpy(columns[name].gather(rows).astype(np.int64)), source.layout)
        for name in (SENTENCE, PLACE)
    }
    extras[SENTENCES] = gather_rows(columns[SENTENCES], rows)
    return Batch(source, None, labels, num_labels(labels), extras)
