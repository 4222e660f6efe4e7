"""Tagging, one label per token, and what it shares with classification, one label per text.

An example is a line of text and a line of labels. A tagger needs one label per word, where words are split at spaces; a word
of several subwords has its label at the first one. A classifier needs one label per line.

A tagger may read the characters of words (`model.characters`), which keep their case; words are then lower-cased for the
vocabulary. It reads a tag per word if `data.train.tags` names some.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import torch

from regard.config import SearchOptions
from regard.data.batch import NO_LABEL, Batch, gather_rows, num_labels
from regard.data.batch_sampler import cut_to_budget
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError
from regard.explain.attention import Axis, recorded_attentions
from regard.explain.trace import Alternative, Picture, Trace
from regard.explain.transitions import transition_picture
from regard.messages import counted
from regard.metrics import TAGS
from regard.models import model_config
from regard.models.base import Model
from regard.models.tagger import Labeller, Tagger, TaggerConfig
from regard.models.word_encoder import CHARACTERS, WordConfig
from regard.models.word_encoder import TAGS as WORD_TAGS
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import TextPairs, TrainingData
from regard.text.corpus import Pair
from regard.text.inputs import as_texts
from regard.text.tokenizer import UNK, Tokenizer, Tokenizers, fit_input_tokenizer, load_tokenizers
from regard.text.words import NO_FEATURES, WordFeatures, fit_words, load_words

LABELS_FILE = "labels.json"
MOST_LABELS = 100_000


@dataclass(frozen=True)
class LabelCodec:
    """A tokenizer for the input, the names of the labels, and what else is read of a word."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    words: WordFeatures = NO_FEATURES

    def save(self, folder: Folder) -> None:
        Tokenizers(self.tokenizer, self.tokenizer).save(folder)
        folder.save_json(LABELS_FILE, list(self.labels))
        self.words.save(folder)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.labels)}

    def label_ids(self, names: Sequence[str]) -> list[int]:
        """Return the number of each label; NO_LABEL for one that training did not have."""
        return [self._numbers.get(name, NO_LABEL) for name in names]


class LabelTask(Task[LabelCodec]):
    """What tagging and classification share."""

    added = (0,)
    per_word: ClassVar[bool]  # whether each word has a label, or the whole text

    @abstractmethod
    def names(self, pair: Pair) -> list[str]:
        """Return the labels of an example."""

    def texts(self, pair: Pair) -> list[str]:
        """Return the texts of an example that are encoded one by one."""
        return [pair.source]

    def fit(self, train: TrainingData) -> LabelCodec:
        config, pairs = self.recipe.tokenizer, train.examples()
        labels = sorted({name for pair in pairs for name in self.names(pair)})
        if not 0 < len(labels) <= MOST_LABELS:
            raise DataError(f"the training examples have {len(labels):,} labels; 1 to {MOST_LABELS:,} can be learnt")
        texts = [text for pair in pairs for text in self.texts(pair)]
        return LabelCodec(fit_input_tokenizer(texts, config), tuple(labels))

    def load_codec(self, folder: Folder) -> LabelCodec:
        labels = folder.load_struct(LABELS_FILE, tuple[str, ...])
        words = all(label.split() == [label] for label in labels)
        if not words or not 0 < len(labels) == len(set(labels)) <= MOST_LABELS:
            raise CheckpointError(
                f"{folder.path / LABELS_FILE} is damaged: it must hold distinct labels of one word each"
            )
        return LabelCodec(load_tokenizers(folder).source, labels)

    def sizes(self, codec: LabelCodec) -> dict[str, int]:
        return {"source_size": codec.tokenizer.size, "num_labels": len(codec.labels)}

    def rows(self, codec: LabelCodec) -> dict[str, Sequence[str]]:
        return {
            "embedding": codec.tokenizer.tokens(range(codec.tokenizer.size)),
            **dict.fromkeys(("output.weight", "output.bias", "crf.first", "crf.last", "crf.transitions"), codec.labels),
        }

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows)
        if self.per_word:
            # One layout, so that a packed batch has one too.
            labels = Ragged(labels.values, source.layout)
        return Batch(source, None, labels, num_labels(labels))

    def predictor(
        self,
        model: Model,
        codec: LabelCodec,
        *,
        greedy: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> LabelPredictor:
        return LabelPredictor(model, codec, self.recipe.decode, warn, per_word=self.per_word)

    @torch.inference_mode()
    def trace(
        self, predictor: LabelPredictor, text: str, *, name: str = "", beam: int | None = None, alternatives: int = 0
    ) -> Trace:
        model, codec = predictor.model, predictor.codec
        ids, places = predictor.encode(text)
        if not ids:
            raise DecodeError("the text is empty; give one with words in it")
        if len(ids) > predictor.limit:
            raise DecodeError(f"the text has {len(ids)} tokens; this model takes at most {predictor.limit}")
        with capture_attention() as log:
            scores = predictor.scores([text], [(ids, places)])
        labels, every = model.best(scores).tolist(), model.probabilities(scores).tolist()
        # The label that is output comes first. With a conditional random field another one may be likelier at its place.
        found = [
            [
                (number, round(ps[number], 6))
                for number in sorted(range(len(ps)), key=lambda number: (number != label, -ps[number]))[
                    : 1 + alternatives
                ]
            ]
            for label, ps in zip(labels, every, strict=True)
        ]
        axes = {
            "source": Axis.from_text("input", codec.tokenizer.kind, text, ids, predictor.tokenize(text)),
            "target": Axis.from_tokens("labels", [codec.labels[row[0][0]] for row in found]),
        }
        others = [[Alternative(number, codec.labels[number], p, "") for number, p in row[1:]] for row in found]
        return Trace(
            name,
            axes,
            recorded_attentions(model, log, axes),
            [row[0][1] for row in found],
            others,
            self.pictures(predictor),
        )

    def pictures(self, predictor: LabelPredictor) -> tuple[Picture, ...]:
        """Return what `look` draws besides attention."""
        return ()


class TaggingTask(LabelTask):
    """A label per token."""

    name = "tagging"
    compares = TAGS
    per_word = True

    def names(self, pair: Pair) -> list[str]:
        return pair.target.split()

    def fit(self, train: TrainingData) -> LabelCodec:
        config = model_config(self.recipe.model)[1]
        assert isinstance(config, TaggerConfig)
        tagged = self.recipe.data.train.tags is not None
        if not config.characters and not tagged:
            return super().fit(train)
        if self.recipe.tokenizer.side("source").kind != "word":
            raise ConfigError("characters and tags are those of words; set tokenizer.kind=word")
        pairs = train.examples()
        words = fit_words((pair.source for pair in pairs), spelled=bool(config.characters), tagged=tagged)
        texts = (" ".join(words.read(pair.source)[0]) for pair in pairs)
        plain = [
            Pair(text.lower() if config.characters else text, pair.target)
            for text, pair in zip(texts, pairs, strict=True)
        ]
        codec = super().fit(TextPairs(plain))
        return replace(codec, words=words)

    def load_codec(self, folder: Folder) -> LabelCodec:
        return replace(super().load_codec(folder), words=load_words(folder))

    def sizes(self, codec: LabelCodec) -> dict[str, int]:
        words = codec.words
        more = {"num_characters": words.num_characters} if words.characters else {}
        return {**super().sizes(codec), **more, **({"num_tags": len(words.tags)} if words.tags else {})}

    def rows(self, codec: LabelCodec) -> dict[str, Sequence[str]]:
        words = codec.words
        return {**super().rows(codec), "spelling.embedding": words.character_names, "tag_embedding": words.tags}

    def take_over(self, codec: LabelCodec, other: Any) -> LabelCodec:
        """Read words as the other run does. Labels and tags are those of the training examples."""
        tokenizer, words = input_tokenizer(other), getattr(other, "words", NO_FEATURES)
        if tokenizer is None or bool(words.characters) != bool(codec.words.characters):
            return codec
        return replace(codec, tokenizer=tokenizer, words=replace(codec.words, characters=words.characters))

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Characters and tags are columns already."""
        return lambda columns: columns

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        batch = super().collate(columns, rows)
        # All have one layout, which is moved to a device once.
        layout = batch.source.layout
        extras = {
            name: Ragged(gather_rows(columns[name], rows).values, layout)
            for name in (CHARACTERS, WORD_TAGS)
            if name in columns
        }
        return Batch(batch.source, None, Ragged(batch.labels.values, layout), batch.num_tokens, extras)

    def pictures(self, predictor: LabelPredictor) -> tuple[Picture, ...]:
        model = predictor.model
        if not isinstance(model, Tagger) or model.crf is None:
            return ()
        return (transition_picture(model.crf.transitions.float().cpu().numpy(), predictor.codec.labels),)

    def encode(self, examples: Sequence[Pair], codec: LabelCodec) -> Columns:
        sources, labels, spelled, tags = [], [], [], []
        for number, pair in enumerate(examples, start=1):
            words, own_tags = codec.words.read(pair.source)
            names = pair.target.split()
            if len(words) != len(names):
                raise DataError(
                    f"example {number} has {counted(len(words), 'word')} but {counted(len(names), 'label')}; "
                    "each word needs one label"
                )
            ids, starts = encode_words(codec.tokenizer, cased(words, codec.words))
            sources.append(ids)
            row = np.full(len(ids), NO_LABEL, dtype=np.int32)
            row[starts] = codec.label_ids(names)
            labels.append(row)
            spelled += words
            tags.append(own_tags)
        source = Column.from_lists(sources)
        columns = {"source": source, "labels": Column.from_arrays(labels)}
        if codec.words.characters:
            columns[CHARACTERS] = Column(codec.words.spell(spelled, self._length), source.offsets)
        if codec.words.tags:
            columns[WORD_TAGS] = Column.from_lists(tags)
        return Columns(columns, ("source",))

    @property
    def _length(self) -> int:
        """Characters of a word that are read."""
        config = model_config(self.recipe.model)[1]
        assert isinstance(config, TaggerConfig)
        return config.characters

    def probe(self, codec: LabelCodec, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        zeros = torch.zeros(layout.total, dtype=torch.int64)
        extras = {}
        if codec.words.characters:
            extras[CHARACTERS] = Ragged(zeros.new_ones(layout.total, self._length), layout)
        if codec.words.tags:
            extras[WORD_TAGS] = Ragged(zeros, layout)
        return Batch(Ragged(zeros, layout), None, Ragged(zeros, layout), layout.total, extras)


class LabelPredictor:
    """A tagger or classifier in use. `warn` receives a message for each text that is cut."""

    def __init__(
        self, model: Model, codec: LabelCodec, options: SearchOptions, warn: Callable[[str], None], *, per_word: bool
    ) -> None:
        if not isinstance(model, Labeller):
            raise ConfigError(f"labels need a model of the class Labeller, and {type(model).__name__} is not one")
        self.model, self.codec, self.budget, self.warn, self.per_word = model, codec, options.tokens, warn, per_word
        # Characters of a word that the model reads.
        self.characters = model.config.characters if isinstance(model.config, WordConfig) else 0
        self.limit = min(options.max_source, model.max_length or options.max_source)  # tokens of a text

    def encode(self, text: str) -> tuple[list[int], list[int]]:
        """Return the ids of a text, and the rows of its scores that are output: one per word, or the only one."""
        if self.per_word:
            words = self.codec.words
            return encode_words(self.codec.tokenizer, cased(words.read(text)[0], words))
        return self.codec.tokenizer.encode(text) if text.strip() else [], [0]

    def tokenize(self, text: str) -> list[str]:
        """Return what is written for each id of `encode`."""
        if not self.per_word:
            return self.codec.tokenizer.tokenize(text)
        words = spaced_words(self.codec.tokenizer, self.codec.words.read(text)[0])
        return [token for word in words for token in self.codec.tokenizer.tokenize(word) or [word]]

    @torch.inference_mode()
    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the labels of each text, separated by spaces; an empty text has none. Search options do not apply.

        A text of more than `limit` tokens is cut, and what is cut off has no labels.
        """
        inputs = as_texts(inputs, call="predict()")
        encoded = [self._cut(number, *self.encode(text)) for number, text in enumerate(inputs, start=1)]
        lengths = np.array([len(ids) for ids, _ in encoded], dtype=np.int64)
        order = np.flatnonzero(lengths)
        order = order[np.argsort(-lengths[order], kind="stable")]
        outputs = [""] * len(inputs)
        for rows in cut_to_budget(order, (lengths,), self.budget):
            scores = self.scores([inputs[row] for row in rows], [encoded[row] for row in rows])
            labels = Ragged(self.model.best(scores), scores.layout).split()
            for row, found in zip(rows.tolist(), labels, strict=True):
                outputs[row] = " ".join(self.codec.labels[number] for number in found.tolist())
        return outputs

    def scores(self, texts: Sequence[str], encoded: Sequence[tuple[list[int], list[int]]]) -> Ragged:
        """Return the scores of the labels that are output for each text: one per word, or the only one."""
        source = Ragged.from_lists([ids for ids, _ in encoded], next(self.model.parameters()).device)
        found = self.model.scores(source, self._extras(texts, source))
        layout = Layout([len(places) for _, places in encoded], source.layout.device)
        if layout.total == found.layout.total:
            return Ragged(found.values, layout)
        starts = [0, *accumulate(len(ids) for ids, _ in encoded)]
        places = [start + place for start, (_, own) in zip(starts, encoded, strict=False) for place in own]
        return Ragged(found.values[torch.tensor(places, device=layout.device)], layout)

    def _extras(self, texts: Sequence[str], source: Ragged) -> dict[str, Ragged]:
        """Return the characters and tags of the words that are in the source: a text may have been cut."""
        words, layout = self.codec.words, source.layout
        read = [words.read(text) for text in texts] if words.characters or words.tags else []
        extras = {}
        if words.characters:
            kept = [word for (one, _), length in zip(read, layout.lengths, strict=True) for word in one[:length]]
            spelled = words.spell(kept, self.characters).astype(np.int64)
            extras[CHARACTERS] = Ragged(torch.from_numpy(spelled).to(layout.device), layout)
        if words.tags:
            tags = [tags[:length] for (_, tags), length in zip(read, layout.lengths, strict=True)]
            extras[WORD_TAGS] = Ragged(Ragged.from_lists(tags, layout.device).values, layout)
        return extras

    def _cut(self, number: int, ids: list[int], places: list[int]) -> tuple[list[int], list[int]]:
        if len(ids) <= self.limit:
            return ids, places
        self.warn(f"line {number} has {len(ids)} tokens; only the first {self.limit} are used")
        return ids[: self.limit], [place for place in places if place < self.limit]


def input_tokenizer(codec: Any) -> Tokenizer | None:
    """Return the tokenizer of the input of any task, if it has one."""
    found: Tokenizer | None = codec.source if isinstance(codec, Tokenizers) else getattr(codec, "tokenizer", None)
    return found


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the ids of words joined by spaces, and the place of each word's first id."""
    if tokenizer.kind == "word":
        return tokenizer.encode(" ".join(words)), list(range(len(words)))
    ids: list[int] = []
    starts: list[int] = []
    for word in spaced_words(tokenizer, words):
        starts.append(len(ids))
        # A word of invisible characters may have no ids, but needs a place for its label.
        ids += tokenizer.encode(word) or [UNK]
    return ids, starts


def cased(words: list[str], features: WordFeatures) -> list[str]:
    """Return words as the vocabulary has them: in small letters if the model sees the others as characters."""
    return [word.lower() for word in words] if features.characters else words


def spaced_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Return the words as they are encoded one by one: characters need the spaces between words."""
    return [word if number == 0 or tokenizer.kind != "char" else f" {word}" for number, word in enumerate(words)]
