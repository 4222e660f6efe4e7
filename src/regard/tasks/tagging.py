"""Tagging: one label per word.

An example is a line of text and a line of labels. Words are split at spaces; a word of several subwords has its label at the
first one. A tagger may read the characters of words (`model.characters`), which keep their case; words are then lower-cased
for the vocabulary. It reads a tag per word if `data.train.tags` names some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from regard.data.batch import NO_LABEL, Batch, gather_rows, num_labels
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError, DataError
from regard.explain.pictures import Picture, transition_picture
from regard.messages import counted
from regard.metrics import TAGS
from regard.models import model_config
from regard.models.base import Model
from regard.models.tagger import Tagger, TaggerConfig
from regard.models.word_encoder import CHARACTERS
from regard.models.word_encoder import TAGS as WORD_TAGS
from regard.tasks.corpus import TextPairs, TrainingData
from regard.tasks.labels import EncodedText, LabelCodec, LabelPredictor, LabelTask
from regard.tasks.predictor import Warn, ignore
from regard.tasks.word_codec import spaced_words
from regard.text.corpus import Pair
from regard.text.words import fit_words


class TaggingTask(LabelTask):
    """A label per word."""

    name = "tagging"
    compares = TAGS

    @property
    def characters(self) -> int:
        """Characters of a word that are read."""
        config = model_config(self.recipe.model)[1]
        assert isinstance(config, TaggerConfig)
        return config.characters

    # Data

    def names(self, pair: Pair) -> list[str]:
        return pair.target.split()

    def fit(self, train: TrainingData) -> LabelCodec:
        tagged = any(one.tags is not None for one in self.recipe.data.corpora)
        if not self.characters and not tagged:
            return super().fit(train)
        if self.recipe.tokenizer.side("source").kind != "word":
            raise ConfigError("characters and tags are those of words; set tokenizer.kind=word")
        pairs = train.examples()
        words = fit_words((pair.source for pair in pairs), spelled=bool(self.characters), tagged=tagged)
        texts = (" ".join(words.read(pair.source)[0]) for pair in pairs)
        plain = [
            Pair(text.lower() if self.characters else text, pair.target)
            for text, pair in zip(texts, pairs, strict=True)
        ]
        return replace(super().fit(TextPairs(plain)), words=words)

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
            ids, starts = codec.encode_words(words)
            sources.append(ids)
            row = np.full(len(ids), NO_LABEL, dtype=np.int32)
            row[starts] = codec.label_ids(names)
            labels.append(row)
            spelled += words
            tags.append(own_tags)
        source = Column.from_lists(sources)
        columns = {"source": source, "labels": Column.from_arrays(labels)}
        if codec.words.characters:
            columns[CHARACTERS] = Column(codec.words.spell(spelled, self.characters), source.offsets)
        if codec.words.tags:
            columns[WORD_TAGS] = Column.from_lists(tags)
        return Columns(columns, ("source",))

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Characters and tags are columns already."""
        return lambda columns: columns

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        source = gather_rows(columns["source"], rows)
        # All have one layout, which is moved to a device once, and which a packed batch has too.
        names = [name for name in ("labels", CHARACTERS, WORD_TAGS) if name in columns]
        others = {name: Ragged(gather_rows(columns[name], rows).values, source.layout) for name in names}
        labels = others.pop("labels")
        return Batch(source, None, labels, num_labels(labels), others)

    def probe(self, codec: LabelCodec, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        zeros = torch.zeros(layout.total, dtype=torch.int64)
        extras = {}
        if codec.words.characters:
            extras[CHARACTERS] = Ragged(zeros.new_ones(layout.total, self.characters), layout)
        if codec.words.tags:
            extras[WORD_TAGS] = Ragged(zeros, layout)
        return Batch(Ragged(zeros, layout), None, Ragged(zeros, layout), layout.total, extras)

    # Models

    def predictor(self, model: Model, codec: LabelCodec, *, greedy: bool = False, warn: Warn = ignore) -> TagPredictor:
        return TagPredictor(model, codec, self.recipe.decode, warn)

    def pictures(self, predictor: LabelPredictor) -> tuple[Picture, ...]:
        model = predictor.model
        if not isinstance(model, Tagger) or model.crf is None:
            return ()
        return (transition_picture(model.crf.transitions.float().cpu().numpy(), predictor.codec.labels),)


class TagPredictor(LabelPredictor):
    """A tagger in use."""

    def encode(self, text: str) -> EncodedText:
        words, tags = self.codec.words.read(text)
        return EncodedText(*self.codec.encode_words(words), words, tags)

    def tokenize(self, text: str) -> list[str]:
        words = spaced_words(self.codec.tokenizer, self.codec.words.read(text)[0])
        return [token for word in words for token in self.codec.tokenizer.tokenize(word) or [word]]

    def extras(self, batch: Sequence[EncodedText], layout: Layout) -> Mapping[str, Ragged]:
        features, extras = self.codec.words, {}
        if features.characters:
            assert isinstance(self.model.config, TaggerConfig)
            spelled = features.spell([word for one in batch for word in one.words], self.model.config.characters)
            extras[CHARACTERS] = Ragged(torch.from_numpy(spelled.astype(np.int64)).to(layout.device), layout)
        if features.tags:
            tags = torch.tensor([tag for one in batch for tag in one.tags], dtype=torch.int64, device=layout.device)
            extras[WORD_TAGS] = Ragged(tags, layout)
        return extras
