"""Translation, and every other task that turns one text into another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard.data.batch import ADDED, FERTILITIES, Batch, collate_pairs, make_batch
from regard.data.columns import Column, Columns, Dataset, Indices, pair_columns
from regard.data.fertilities import Aligner
from regard.data.pair_store import PairStore
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DataError
from regard.explain.trace import Trace, TraceOptions, attention_between, trace_translation
from regard.messages import counted
from regard.metrics import TEXT, histograms
from regard.models import model_config
from regard.models.base import Model, NonAutoregressive, Seq2Seq
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import Corpus, TextPairs, TrainingData, read_corpus, read_valid
from regard.tasks.predictor import Warn, ignore
from regard.text.bitext import find_store
from regard.text.corpus import Pair
from regard.text.tokenizer import UNK, Tokenizer, Tokenizers, fit_tokenizers, load_tokenizers
from regard.text.unknown_words import extend
from regard.training.events import Example, Listener, Noted


class TranslationTask(Task[Tokenizers]):
    """Text to text. The codec is a pair of tokenizers."""

    name = "translation"
    added = ADDED
    compares = TEXT
    searches = True

    # Data

    def read(self, folders: list[Path]) -> Corpus:
        store = self.recipe.data.train.store
        if store is None:
            return read_corpus(self.recipe, folders)
        valid = read_valid(self.recipe, folders)
        if self.recipe.tokenizer.sampled:
            raise ConfigError(
                "ids on disk are the same every epoch; set tokenizer.sampling=0, or train from text without data.train.store"
            )
        return Corpus(PairStore(find_store(store, folders)), valid)

    def fit(self, train: TrainingData) -> Tokenizers:
        config = self.recipe.tokenizer
        if isinstance(train, PairStore):
            return train.tokenizers(config)
        return fit_tokenizers(train.examples(), config)

    def load_codec(self, folder: Folder) -> Tokenizers:
        return load_tokenizers(folder)

    @property
    def copies(self) -> bool:
        """Whether the model copies words of the source."""
        return bool(getattr(model_config(self.recipe.model)[1], "copy", False))

    @property
    def longest_source(self) -> int | None:
        """The tokens that sources are cut to; None: they are not cut."""
        return self.recipe.data.max_length if self.recipe.data.cut_source else None

    def encode(self, examples: Sequence[Pair], codec: Tokenizers) -> Columns:
        if self.copies:
            sources, targets = [], []
            for pair in examples:
                ids, vocabulary = extend(codec.source, pair.source, most=self.longest_source)
                sources.append(ids)
                targets.append(vocabulary.encode(pair.target))
        else:
            sources = codec.source.encode_all([pair.source for pair in examples])
            targets = codec.target.encode_all([pair.target for pair in examples])
        return pair_columns(self._cut(Column.from_lists(sources)), Column.from_lists(targets))

    def _cut(self, sources: Column) -> Column:
        return sources if self.longest_source is None else sources.cut(self.longest_source)

    def dataset(self, train: TrainingData, codec: Tokenizers) -> Dataset:
        if not isinstance(train, PairStore):
            return self.encode(train.examples(), codec)
        if self.copies or self.longest_source is not None:
            raise ConfigError("model.copy and data.cut_source need text; train without data.train.store")
        return train.encoded(codec)

    def epochs(self, train: TrainingData, dataset: Dataset, codec: Tokenizers) -> Callable[[int], Dataset]:
        """With subword sampling each epoch has ids of its own."""
        config, seed = self.recipe.tokenizer, self.recipe.train.seed
        if not config.sampled:
            return super().epochs(train, dataset, codec)
        if self.recipe.data.train.fresh:
            raise ConfigError("each epoch has new examples already (data.train.fresh); set tokenizer.sampling=0")
        assert isinstance(train, TextPairs) and isinstance(dataset, Columns), "ids on disk are the same every epoch"
        sources, targets = [pair.source for pair in train.pairs], [pair.target for pair in train.pairs]
        source = _resampled(codec.source, sources, config.side("source").sampling, dataset["source"])
        target = _resampled(codec.target, targets, config.side("target").sampling, dataset["target"])

        @lru_cache(maxsize=1)
        def draw(epoch: int) -> Columns:
            number = seed * 1_000_003 + epoch
            return pair_columns(self._cut(source(number)), target(number))

        return draw

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Fertilities come from a word aligner that learns from the training pairs."""
        if set(model.extras) - {FERTILITIES}:
            return super().extras(model, dataset)
        if FERTILITIES not in model.extras:
            return lambda columns: columns
        if not isinstance(dataset, Columns) or self.recipe.tokenizer.sampled:
            raise ConfigError(
                "this model needs its pairs in memory and always split into the same tokens; no store, no sampling"
            )
        return Aligner.learn(dataset, max_length=self.recipe.data.max_length).add_to

    def check(self, dataset: Dataset, model: Model, listen: Listener) -> None:
        if self.longest_source is not None and isinstance(dataset, Columns):
            count, most = int((dataset["source"].lengths >= self.longest_source).sum()), self.longest_source
            counts = f"{count:,} of {counted(len(dataset), 'source')}"
            if count:
                listen(Noted(0, f"{counts} have {most:,} tokens or more; training reads the first {most:,} of them"))
        if not isinstance(dataset, Columns) or not isinstance(model, NonAutoregressive):
            return
        count = int(model.cannot_write(dataset["source"].lengths, dataset["target"].lengths).sum())
        if count == len(dataset):
            raise DataError("every target is longer than this model can write for its source; raise model.places")
        if count:
            targets = counted(count, "target")
            listen(Noted(0, f"nothing is learned from {targets} longer than this model can write for the source"))

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        return collate_pairs(columns, rows)

    def probe(self, codec: Tokenizers, length: int, count: int) -> Batch:
        return make_batch([[UNK] * length] * count, [[UNK] * length] * count)

    # Models

    def sizes(self, codec: Tokenizers) -> dict[str, int]:
        return {"source_size": codec.source.size, "target_size": codec.target.size}

    def vocabularies(self, codec: Tokenizers) -> dict[str, Sequence[str]]:
        target = codec.target.tokens(range(codec.target.size))
        return {
            "source_size": target if codec.joint else codec.source.tokens(range(codec.source.size)),
            "target_size": target,
        }

    def take_over(self, codec: Tokenizers, other: Any) -> Tokenizers:
        return other if isinstance(other, Tokenizers) and other.joint == codec.joint else codec

    def predictor(self, model: Model, codec: Tokenizers, *, greedy: bool = False, warn: Warn = ignore) -> Translator:
        return Translator(model, codec, self.search_options(greedy=greedy), warn=warn)

    def details(self, model: Model, codec: Tokenizers, examples: Sequence[Example]) -> dict[str, Any]:
        details: dict[str, Any] = {
            "histograms": histograms([one.output for one in examples], [one.reference for one in examples])
        }
        if examples and isinstance(model, Seq2Seq):
            details["attention"] = attention_between(model, codec, examples[0].source, examples[0].output)
        return details

    def trace(self, predictor: Translator, text: str, options: TraceOptions) -> Trace:
        search = predictor.options.replace(beam=options.beam)
        return trace_translation(predictor, text, options=search, alternatives=options.alternatives, name=options.name)


def _resampled(tokenizer: Tokenizer, texts: list[str], rate: float, fixed: Column) -> Callable[[int], Column]:
    """Return a function from a number to the ids of one side; they are always the same if the rate is 0."""
    if not rate:
        return lambda number: fixed
    resampled = tokenizer.resampled(texts, rate)
    return lambda number: Column(*resampled.draw(number))
