"""What a task is, to everything that serves more than one: the trainer, reports, cards and the verbs.

A task reads text, fits a codec to it (tokenizers, labels, or nothing), encodes examples into columns, collates rows of them
into batches, names the sizes its models need, and puts a trained model to use. One instance serves one recipe. A model
family names its task (`models.Family`), and `register_task` adds tasks from other packages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch

from regard.config import Recipe, SearchOptions
from regard.data.batch import Batch
from regard.data.columns import Columns, Dataset, Indices
from regard.errors import ConfigError
from regard.explain.trace import Trace, TraceOptions
from regard.metrics import Score, score_all
from regard.models.base import Model
from regard.run.folder import Codec
from regard.storage.folder import Folder
from regard.tasks.corpus import Corpus, TextPairs, TrainingData, read_corpus
from regard.tasks.predictor import Warn, ignore
from regard.text.corpus import Pair
from regard.training.events import Example, Listener


class Predictor(Protocol):
    """A model with its codec: lines of text in, lines of text out."""

    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the output for each input, in the form of the references of a test set."""


C = TypeVar("C", bound=Codec)


OF_TRANSLATION = ("mbr", "coverage_penalty", "reverse_weight")  # options of `[decode]` that choose among translations


class Task(ABC, Generic[C]):
    """One task, for one recipe."""

    name: ClassVar[str]
    added: ClassVar[tuple[int, ...]]  # tokens that `collate` adds to an example, per column that limits a batch
    uses_families_of: ClassVar[str | None] = None  # another task, whose model families can also do this one
    compares: str  # kind of its outputs, by which metrics are chosen (`Metric.compares`)
    searches: ClassVar[bool] = False  # whether the outputs that are scored are found by search
    augments: ClassVar[bool] = False  # whether its training text may get noise (`data.augment`)
    reads_tags: ClassVar[bool] = False  # whether symbols may stand in front of its inputs (`Pair.tags`)
    cuts: ClassVar[bool] = False  # whether `data.cut_source` and `data.cut_target` have an effect
    samples: ClassVar[bool] = False  # whether `trace` can draw an output at random (`TraceOptions.sample`)

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    @property
    def ignored_options(self) -> tuple[str, ...]:
        """Options of `[decode]` that have no effect: those of translation, and those of search unless the task searches."""
        searching = ("beam", "length_penalty", "length_penalty_kind", "early_stopping", "max_extra", "iterations")
        return OF_TRANSLATION if self.searches else (*searching, *OF_TRANSLATION)

    # Data

    def read(self, folders: list[Path]) -> Corpus:
        """Return the training and dev examples that the recipe names."""
        return read_corpus(self.recipe, folders)

    def with_files(self, examples: Sequence[Pair], folders: list[Path]) -> list[Pair]:
        """Return examples of a data file with the content of other files that their lines name, such as images."""
        return list(examples)

    @abstractmethod
    def fit(self, train: TrainingData) -> C:
        """Return a codec learnt from the training examples."""

    @abstractmethod
    def load_codec(self, folder: Folder) -> C:
        """Return the codec that was saved in a folder."""

    @abstractmethod
    def encode(self, examples: Sequence[Pair], codec: C) -> Columns:
        """Return examples as columns."""

    def dataset(self, train: TrainingData, codec: C) -> Dataset:
        """Return the training examples, encoded."""
        return self.encode(train.examples(), codec)

    def epochs(self, train: TrainingData, dataset: Dataset, codec: C) -> Callable[[int], Dataset]:
        """Return a function from the number of an epoch to its examples, which are new ones with `data.train.fresh`.

        The examples of all corpora are there once each, in the same order; `data.mixing` draws from them.
        """
        if not isinstance(train, TextPairs) or train.of_epoch is None:
            return lambda epoch: dataset
        of_epoch = train.of_epoch

        @lru_cache(maxsize=1)
        def draw(epoch: int) -> Dataset:
            return self.encode(of_epoch(epoch), codec)

        return draw

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Return a function that adds the columns a model asks for (`Model.extras`)."""
        if model.extras:
            raise ConfigError(f"this model needs {', '.join(model.extras)}, which {self.name} does not provide")
        return lambda columns: columns

    def check(self, dataset: Dataset, model: Model, listen: Listener) -> None:
        """Refuse training or dev examples that the model cannot output, or report how many there are."""

    @abstractmethod
    def collate(self, columns: Columns, rows: Indices) -> Batch:
        """Return the batch of these rows."""

    @abstractmethod
    def probe(self, codec: C, length: int, count: int) -> Batch:
        """Return a synthetic batch of `count` examples of `length` tokens, for the memory check."""

    # Models

    @abstractmethod
    def sizes(self, codec: C) -> dict[str, int]:
        """Return the keyword arguments of a model that follow from the codec, such as vocabulary sizes."""

    def vocabularies(self, codec: C) -> Mapping[str, Sequence[str]]:
        """Return what the ids of each vocabulary stand for (tokens, characters, labels), by the name of its size in `sizes`.

        A run that begins with the weights of another one (`train.init`) takes over what stands for the same text. A task
        whose sizes are no vocabularies returns none of them.
        """
        raise ConfigError(
            f"the task {self.name} does not support train.init (it defines no vocabularies); remove train.init"
        )

    def take_over(self, codec: C, other: Any) -> C:
        """Return the codec with the tokenizers of the codec that a run begins with (`train.init`); by default as it is."""
        return codec

    def fit_like(self, train: TrainingData, other: Any) -> C:
        """Return a codec learnt from the training examples, with the tokenizers of the codec that a run begins with."""
        return self.take_over(self.fit(train), other)

    def search_options(self, *, greedy: bool) -> SearchOptions:
        """Return the search options of the recipe; with `greedy`, those of the quickest search."""
        return self.recipe.decode.replace(beam=1) if greedy else self.recipe.decode

    @abstractmethod
    def predictor(self, model: Model, codec: C, *, greedy: bool = False, warn: Warn = ignore) -> Predictor:
        """Return the model in use. `greedy` asks for the quickest search, for validation."""

    def into(self, predictor: Any, language: str) -> Any:
        """Return the predictor with outputs in one of its languages."""
        raise ConfigError(f"{self.name} has no languages to choose from; leave out {language!r} (--to)")

    def outputs(self, predictor: Any, examples: Sequence[Pair], *, options: SearchOptions | None = None) -> list[str]:
        """Return the output for the input of each example."""
        found: list[str] = predictor.predict([pair.source for pair in examples], options=options)
        return found

    def evaluate(
        self,
        predictor: Any,
        examples: Sequence[Pair],
        *,
        options: SearchOptions | None = None,
        warn: Warn = ignore,
    ) -> list[Score]:
        """Return the scores of a test set: by default, of outputs that are compared with the references."""
        inputs, references = [pair.source for pair in examples], [pair.target for pair in examples]
        outputs = self.outputs(predictor, examples, options=options)
        if any(text.strip() for text in inputs) and not any(text.strip() for text in outputs):
            warn("all outputs are empty: the model has not learned enough to output anything")
        return score_all(outputs, references, inputs, self.recipe.evaluate, compares=self.compares)

    def loss_scores(self, loss: float, labels: int, examples: Sequence[Pair], codec: C) -> list[Score]:
        """Return scores that follow from the summed loss in nats, for tasks that compare `PROBABILITIES`."""
        return []

    def details(self, model: Model, codec: C, examples: Sequence[Example]) -> dict[str, Any]:
        """Return what else a report shows of dev examples; by default nothing."""
        return {}

    def describe_input(self, text: str) -> str:
        """Return how progress and reports show an input; by default as it is."""
        return text

    def trace(self, predictor: Any, text: str, options: TraceOptions) -> Trace:
        """Return what the model did with one input: tokens, attention weights, probabilities, and other outputs."""
        raise ConfigError(f"regard look does not support the task {self.name}; use regard evaluate or regard report")


@torch.inference_mode()
def dev_loss(model: Model, batches: Sequence[Batch], device: torch.device) -> tuple[float, int]:
    """Return the summed loss in nats, unsmoothed, and the number of labels: exp of their ratio is the perplexity."""
    total, tokens = 0.0, 0
    for batch in batches:
        total, tokens = total + model(batch.to(device)).item(), tokens + batch.num_tokens
    return total, tokens
