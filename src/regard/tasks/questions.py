"""Question answering: a story, a question about it, and an answer of one word.

An example is a line of sentences, "sentence | sentence | question", of which the last is the question, and the answer
("garden"). An answer of several things is one word, too ("apple,football"). Capital letters, and marks at the end of a
sentence, make no difference. A question without a story is read as its own story.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from regard.config import SearchOptions
from regard.data.batch import SENTENCES, Batch, gather_rows, num_labels
from regard.data.batch_sampler import cut_to_budget
from regard.data.columns import Column, Columns, Indices
from regard.data.ragged import Ragged
from regard.errors import ConfigError, DecodeError
from regard.explain.attention import Attention, Axis, recorded_attentions
from regard.explain.stories import story_pictures
from regard.explain.trace import Alternative, Trace
from regard.models import model_config
from regard.models.base import Model
from regard.models.story_model import PLACE, SENTENCE, StoryModel
from regard.nn.attention_log import AttentionLog, capture_attention
from regard.nn.entities import EntityAnswer, EntityMemory
from regard.tasks.classification import ClassificationTask
from regard.tasks.corpus import TextPairs, TrainingData
from regard.tasks.labels import LabelCodec
from regard.text.corpus import Pair
from regard.text.inputs import as_texts
from regard.text.segmenter import SEPARATOR, split_sentences
from regard.text.tokenizer import UNK, Tokenizer

MARKS = " .?!"
MOST_CACHED = 2**16  # encoded sentences


class EncodedStory(NamedTuple):
    """The sentences of a story that a model reads, the question last: as text, and as ids."""

    sentences: list[str]
    ids: list[list[int]]

    @property
    def num_words(self) -> int:
        return sum(map(len, self.ids))


def plain_sentence(sentence: str) -> str:
    """Return a sentence in lower case, without marks at its end."""
    return sentence.lower().strip(MARKS)


class QuestionAnsweringTask(ClassificationTask):
    """An answer per story. Batches are as `models.story_model` describes them."""

    name = "question-answering"

    @property
    def max_sentences(self) -> int:
        """How many sentences of a story the recipe's model reads, without the question."""
        limit = getattr(model_config(self.recipe.model)[1], "max_sentences", None)
        if not isinstance(limit, int):
            raise ConfigError("a model of this task has an option max_sentences")
        return limit

    def fit(self, train: TrainingData) -> LabelCodec:
        plain = [
            Pair(" ".join(map(plain_sentence, split_sentences(one.source))), one.target) for one in train.examples()
        ]
        return super().fit(TextPairs(plain))

    def encode(self, examples: Sequence[Pair], codec: LabelCodec) -> Columns:
        encode_story = story_encoder(codec.tokenizer, self.max_sentences)
        stories = [encode_story(pair.source) for pair in examples]
        return story_columns(stories, [codec.label_ids(self.names(pair)) for pair in examples])

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows)
        extras = {
            name: Ragged(torch.from_numpy(columns[name].gather(rows).astype(np.int64)), source.layout)
            for name in (SENTENCE, PLACE)
        }
        extras[SENTENCES] = gather_rows(columns[SENTENCES], rows)
        return Batch(source, None, labels, num_labels(labels), extras)

    def probe(self, codec: LabelCodec, length: int, count: int) -> Batch:
        # As many sentences as possible: each takes a step.
        sentences = min(length, 1 + self.max_sentences)
        ids = [list(part) for part in np.array_split(np.full(length, UNK), sentences)]
        columns = story_columns([EncodedStory([], ids)] * count, [[0]] * count)
        return self.collate(columns, np.arange(count))

    def predictor(  # type: ignore[override]
        self,
        model: Model,
        codec: LabelCodec,
        *,
        greedy: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> StoryPredictor:
        return StoryPredictor(self, model, codec, self.recipe.decode, warn)

    @torch.inference_mode()
    def trace(  # type: ignore[override]
        self, predictor: StoryPredictor, text: str, *, name: str = "", beam: int | None = None, alternatives: int = 0
    ) -> Trace:
        model, codec = predictor.model, predictor.codec
        if not split_sentences(text):
            raise DecodeError(f"the text is empty; give a story and a question, separated by {SEPARATOR!r}")
        story = predictor.encode_story(text)
        if story.num_words > predictor.limit:
            raise DecodeError(f"the text has {story.num_words} tokens; this model takes at most {predictor.limit}")
        with capture_attention() as log:
            logits_L = model.answers(predictor.batch([story]))[0]
        best = logits_L.softmax(dim=-1).topk(min(1 + alternatives, logits_L.size(-1)))
        found = [(number, round(p, 6)) for number, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
        words = [
            word for one, ids in zip(story.sentences, story.ids, strict=True) for word in self._words(codec, one, ids)
        ]
        axes = {
            "source": Axis.from_tokens("story and question", words),
            "target": Axis.from_tokens("answer", [codec.labels[found[0][0]]]),
            "sentences": Axis.from_tokens("sentence", story.sentences[:-1]),
        }
        attentions = [*_slot_attentions(model, log, axes), *recorded_attentions(model, log, axes)]
        others = [Alternative(number, codec.labels[number], p, "") for number, p in found[1:]]
        trace = Trace(name, axes, attentions, [found[0][1]], [others])
        return replace(trace, pictures=story_pictures(trace, story.sentences[-1], [len(ids) for ids in story.ids]))

    def _words(self, codec: LabelCodec, sentence: str, ids: list[int]) -> list[str]:
        """Return what is written for each id of a sentence."""
        tokens = codec.tokenizer.tokenize(plain_sentence(sentence))
        return tokens if len(tokens) == len(ids) else codec.tokenizer.tokens(ids)


class StoryPredictor:
    """A model of this task in use. `warn` receives a message for each text that is cut."""

    def __init__(
        self,
        task: QuestionAnsweringTask,
        model: Model,
        codec: LabelCodec,
        options: SearchOptions,
        warn: Callable[[str], None],
    ) -> None:
        if not isinstance(model, StoryModel):
            raise ConfigError(f"answers need a model of the class StoryModel, and {type(model).__name__} is not one")
        self.task, self.model, self.codec, self.budget, self.warn = task, model, codec, options.tokens, warn
        self.limit = min(options.max_source, model.max_length or options.max_source)  # words of a story
        self.encode_story = story_encoder(codec.tokenizer, model.max_sentences)

    @torch.inference_mode()
    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the answer to each text, which is a story and a question; an empty text has none.

        Search options do not apply.
        """
        inputs = as_texts(inputs, call="predict()")
        stories = [self._cut(number, self.encode_story(text)) for number, text in enumerate(inputs, start=1)]
        lengths = np.array([story.num_words for story in stories], dtype=np.int64)
        order = np.flatnonzero([bool(split_sentences(text)) for text in inputs])
        order = order[np.argsort(-lengths[order], kind="stable")]
        outputs = [""] * len(inputs)
        for rows in cut_to_budget(order, (lengths,), self.budget):
            best = self.model.answers(self.batch([stories[row] for row in rows])).argmax(dim=-1)
            for row, number in zip(rows.tolist(), best.tolist(), strict=True):
                outputs[row] = self.codec.labels[number]
        return outputs

    def batch(self, stories: Sequence[EncodedStory]) -> Batch:
        """Return stories as a batch with made-up labels, on the device of the model."""
        columns = story_columns(stories, [[0]] * len(stories))
        return self.task.collate(columns, np.arange(len(stories))).to(next(self.model.parameters()).device)

    def _cut(self, number: int, story: EncodedStory) -> EncodedStory:
        """Return the story without its first sentences, and if that is not enough, with the start of its question."""
        if story.num_words <= self.limit:
            return story
        kept, room = 0, self.limit - len(story.ids[-1])
        for ids in story.ids[-2::-1]:
            if (room := room - len(ids)) < 0:
                break
            kept += 1
        if kept:
            told = len(story.ids) - 1
            self.warn(
                f"line {number} has {story.num_words} tokens; only the last {kept} of its {told} sentences are used"
            )
            return EncodedStory(story.sentences[-kept - 1 :], story.ids[-kept - 1 :])
        self.warn(f"line {number} has {story.num_words} tokens; only the first {self.limit} of its question are used")
        question = story.ids[-1][: max(1, self.limit - 1)]
        return EncodedStory([story.sentences[-1]] * 2, [question[:1], question])


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


def _slot_attentions(model: StoryModel, log: AttentionLog, axes: dict[str, Axis]) -> list[Attention]:
    """Return the gates of an entity network, and the attention of its answer; adds the axis "slots"."""
    found = []
    for module in model.modules():
        if module in log.calls and isinstance(module, EntityMemory | EntityAnswer):
            weights = log.calls[module][0][0].float().cpu().numpy()
            axes["slots"] = Axis.from_tokens("slot", [str(number + 1) for number in range(weights.shape[-1])])
            gates = isinstance(module, EntityMemory)
            name, queries = ("gates", "sentences") if gates else ("answer", "target")
            found.append(Attention(name, 1, queries, "slots", weights, self_attention=False))
    return found
