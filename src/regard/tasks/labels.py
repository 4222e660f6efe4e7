"""What tasks share whose outputs are labels: one per word (tagging), per text (classification) or per question.

Shapes: N labels that are output, L labels that are known.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch

from regard.config import SearchOptions
from regard.data.batch import NO_LABEL
from regard.data.ragged import Layout, Ragged
from regard.errors import CheckpointError, DataError
from regard.explain.attention import Axis
from regard.explain.pictures import Picture
from regard.explain.recorded import alternatives_of, recorded_attentions
from regard.explain.trace import Trace, TraceOptions
from regard.messages import counted
from regard.models.tagger import Labeller
from regard.models.word_encoder import NO_EXTRAS
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.corpus import TrainingData
from regard.tasks.predictor import BatchPredictor
from regard.tasks.word_codec import WordCodec, WordTask, at_least, load_word_codec
from regard.text.corpus import Pair
from regard.text.tokenizer import fit_input_tokenizer

LABELS_FILE = "labels.json"
MOST_LABELS = 100_000


@dataclass(frozen=True)
class LabelCodec(WordCodec):
    """A tokenizer for the input, what else is read of a word, and the names of the labels."""

    labels: tuple[str, ...] = ()

    def save(self, folder: Folder) -> None:
        super().save(folder)
        folder.save_json(LABELS_FILE, list(self.labels))

    def vocabularies(self) -> dict[str, Sequence[str]]:
        return {**super().vocabularies(), "num_labels": self.labels}

    def reading_as(self, other: object) -> LabelCodec:
        """Return also the labels of the other codec, if these are among them."""
        labels = at_least(self.labels, other.labels) if isinstance(other, LabelCodec) else self.labels
        return replace(super().reading_as(other), labels=labels)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.labels)}

    def label_ids(self, names: Sequence[str]) -> list[int]:
        """Return the number of each label; NO_LABEL for one that training did not have."""
        return [self._numbers.get(name, NO_LABEL) for name in names]


class LabelTask(WordTask[LabelCodec]):
    """Text in, labels out."""

    added = (0,)

    @abstractmethod
    def names(self, pair: Pair) -> list[str]:
        """Return the labels of an example."""

    def texts(self, pair: Pair) -> list[str]:
        """Return the texts of an example that are encoded one by one."""
        return [pair.source]

    def fit(self, train: TrainingData) -> LabelCodec:
        pairs = train.examples()
        labels = sorted({name for pair in pairs for name in self.names(pair)})
        if not 0 < len(labels) <= MOST_LABELS:
            raise DataError(
                f"the training examples have {counted(len(labels), 'label')}; 1 to {MOST_LABELS:,} can be learnt"
            )
        texts = [text for pair in pairs for text in self.texts(pair)]
        return LabelCodec(fit_input_tokenizer(texts, self.recipe.tokenizer), labels=tuple(labels))

    def load_codec(self, folder: Folder) -> LabelCodec:
        labels = folder.load_struct(LABELS_FILE, tuple[str, ...])
        words = all(label.split() == [label] for label in labels)
        if not words or not 0 < len(labels) == len(set(labels)) <= MOST_LABELS:
            raise CheckpointError(
                f"{folder.path / LABELS_FILE} is damaged: it must hold distinct labels of one word each"
            )
        codec = load_word_codec(folder)
        return LabelCodec(codec.tokenizer, codec.words, labels)

    @torch.inference_mode()
    def trace(self, predictor: Any, text: str, options: TraceOptions) -> Trace:
        assert isinstance(predictor, LabelPredictor)
        model, codec, one = predictor.model, predictor.codec, predictor.encode_one(text)
        with capture_attention() as log:
            scores = predictor.scores([one])
        # With a conditional random field another label may be likelier at a place than the one that is output.
        labels, probabilities_NL = model.best(scores).tolist(), model.probabilities(scores)
        tokens = predictor.tokenize(text)
        axes = {
            "source": Axis.from_text("input", codec.tokenizer.kind, text, one.ids, tokens),
            "target": Axis.from_tokens("labels", [codec.labels[label] for label in labels]),
        }
        found = alternatives_of(probabilities_NL, labels, options.alternatives, codec.labels.__getitem__)
        return Trace(options.name, axes, recorded_attentions(model, log, axes), *found, self.pictures(predictor))

    def pictures(self, predictor: LabelPredictor) -> tuple[Picture, ...]:
        """Return what `look` draws besides attention."""
        return ()


def one_label(pair: Pair) -> list[str]:
    """Return the only label of an example."""
    names = pair.target.split()
    if len(names) != 1:
        raise DataError(f"the label {pair.target[:80]!r} is not one word; write it as one, as in very_good")
    return names


@dataclass(frozen=True)
class EncodedText:
    """A text as a labeller reads it."""

    ids: list[int]
    places: list[int]  # of the scores that are output: one per word, or the only one
    words: Sequence[str] = ()
    tags: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.ids)


class LabelPredictor(BatchPredictor[Labeller, LabelCodec, EncodedText]):
    """A tagger or classifier in use: the labels of each text, separated by spaces. What is cut off has no labels."""

    needs = Labeller

    @abstractmethod
    def tokenize(self, text: str) -> list[str]:
        """Return what is written for each id of `encode`."""

    def cut(self, one: EncodedText) -> EncodedText:
        return EncodedText(
            one.ids[: self.limit],
            [place for place in one.places if place < self.limit],
            one.words[: self.limit],
            one.tags[: self.limit],
        )

    def extras(self, batch: Sequence[EncodedText], layout: Layout) -> Mapping[str, Ragged]:
        """Return what the model reads besides ids. `layout` is that of the ids."""
        return NO_EXTRAS

    def outputs(self, batch: Sequence[EncodedText], options: SearchOptions) -> list[str]:
        scores = self.scores(batch)
        labels = Ragged(self.model.best(scores), scores.layout).split()
        return [" ".join(self.codec.labels[number] for number in found.tolist()) for found in labels]

    def scores(self, batch: Sequence[EncodedText]) -> Ragged:
        """Return the scores of the labels that are output for each text: [N, L]."""
        source = Ragged.from_lists([one.ids for one in batch], self.device)
        found = self.model.scores(source, self.extras(batch, source.layout))
        layout = Layout([len(one.places) for one in batch], source.layout.device)
        if layout.total == found.layout.total:
            return Ragged(found.values, layout)
        starts = [0, *accumulate(map(len, batch))]
        places = [start + place for start, one in zip(starts, batch, strict=False) for place in one.places]
        return Ragged(found.values[torch.tensor(places, device=layout.device)], layout)
