"""Translation, and every other task that turns one text into another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import AugmentConfig, SearchOptions
from regard.data.batch import ADDED, FERTILITIES, Batch, collate_pairs, make_batch
from regard.data.columns import Column, Columns, Dataset, Indices, pair_columns
from regard.data.word_alignment import Aligner
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DataError
from regard.explain.recorded import attention_between
from regard.explain.trace import FEWEST_KEYS, Trace, TraceOptions
from regard.explain.translation_trace import trace_translation
from regard.messages import counted
from regard.metrics import TEXT, histograms
from regard.models import model_config
from regard.models.base import Model, NonAutoregressive, Seq2Seq
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import Corpus, TextPairs, TrainingData, read_corpus, read_valid
from regard.tasks.predictor import Warn, ignore
from regard.tasks.stored_corpora import StoredCorpora, read_stores
from regard.text.augment import augmented
from regard.text.bitext import new_report
from regard.text.corpus import Pair
from regard.text.languages import Languages
from regard.text.protected_spans import PLACEHOLDERS
from regard.text.tokenizer import UNK, Tokenizer
from regard.text.tokenizer_pair import Tokenizers, fit_tokenizers, load_tokenizers
from regard.text.unknown_words import extend
from regard.training.events import Example, Listener, Noted

RARE = 10  # times in the training text: too few to learn a token from
MANY_EXAMPLES = 500  # with fewer a run is a toy
MANY_TOKENS = 1_000_000  # with more, tokens are rarely too rare


class TranslationTask(Task[Tokenizers]):
    """Text to text. The codec is a pair of tokenizers."""

    name = "translation"
    added = ADDED
    compares = TEXT
    searches = True
    ignored_options = ()
    augments = True
    reads_tags = True
    cuts = True

    # Data

    def read(self, folders: list[Path]) -> Corpus:
        corpora = self.recipe.data.corpora
        if all(one.store is None for one in corpora):
            return read_corpus(self.recipe, folders)
        report = new_report(self.recipe.data)
        valid = read_valid(self.recipe, folders, report)
        if self.recipe.tokenizer.sampled:
            raise ConfigError(
                "ids on disk are the same every epoch; set tokenizer.sampling=0, or train from text without data.train.store"
            )
        train = read_stores(self.recipe, folders, report)
        return Corpus(train, valid, report, train.notes())

    def fit(self, train: TrainingData) -> Tokenizers:
        config, tags = self.recipe.tokenizer, self.recipe.data.tags
        if isinstance(train, StoredCorpora):
            return train.tokenizers(config, tags)
        if not config.joint and getattr(model_config(self.recipe.model)[1], "tie", None) == "all":
            # The model would notice only if the vocabularies differ in size.
            raise ConfigError("model.tie is 'all' but the two sides have separate vocabularies; set model.tie=target")
        return fit_tokenizers(train.examples(), config, tags=tags, symbols=self.symbols)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that the tokenizers must not split."""
        augment = self.recipe.data.augment
        return PLACEHOLDERS if augment is not None and augment.placeholders else ()

    def load_codec(self, folder: Folder) -> Tokenizers:
        return load_tokenizers(folder)

    @property
    def copies(self) -> bool:
        """Whether the model copies words of the source."""
        return bool(getattr(model_config(self.recipe.model)[1], "copy", False))

    @property
    def longest_source(self) -> int | None:
        """The tokens that sources are cut to; None: they are not cut."""
        return self.recipe.data.cuts[0]

    @property
    def longest_target(self) -> int | None:
        """The tokens that targets are cut to; None: they are not cut."""
        return self.recipe.data.cuts[1]

    def encode(self, examples: Sequence[Pair], codec: Tokenizers) -> Columns:
        if self.copies:
            sources, targets = [], []
            for pair in examples:
                most = None if self.longest_source is None else max(0, self.longest_source - len(pair.tags))
                ids, vocabulary = extend(codec.source, pair.source, most=most)
                sources.append(ids)
                targets.append(vocabulary.encode(pair.target))
        else:
            sources = codec.source.encode_all([pair.source for pair in examples])
            targets = codec.target.encode_all([pair.target for pair in examples])
        return self._cut(Column.from_lists(sources), tag_column(examples, codec), Column.from_lists(targets))

    def _cut(self, sources: Column, tags: Column, targets: Column) -> Columns:
        """Return the columns, with the tags in front of the sources, cut where the recipe says so."""
        sources = sources.after(tags) if len(tags.values) else sources
        sources = sources if self.longest_source is None else sources.cut(self.longest_source)
        return pair_columns(sources, targets if self.longest_target is None else targets.cut(self.longest_target))

    def dataset(self, train: TrainingData, codec: Tokenizers) -> Dataset:
        if not isinstance(train, StoredCorpora):
            return self.encode(train.examples(), codec)
        if self.copies:
            raise ConfigError("model.copy needs text; train without data.train.store")
        return train.encoded(codec, self.encode)

    def epochs(self, train: TrainingData, dataset: Dataset, codec: Tokenizers) -> Callable[[int], Dataset]:
        """With subword sampling, or with noise in the text, each epoch has ids of its own."""
        config, seed = self.recipe.tokenizer, self.recipe.train.seed
        augment = self.recipe.data.augment
        if augment is not None and augment.changes_text:
            return self._noisy_epochs(train, dataset, augment, codec)
        if not config.sampled:
            return super().epochs(train, dataset, codec)
        if any(one.fresh for one in self.recipe.data.corpora):
            raise ConfigError("each epoch has new examples already (data.train.fresh); set tokenizer.sampling=0")
        assert isinstance(train, TextPairs) and isinstance(dataset, Columns), "ids on disk are the same every epoch"
        sources, targets = [pair.source for pair in train.pairs], [pair.target for pair in train.pairs]
        source = _resampled(codec.source, sources, config.side("source").sampling, dataset["source"])
        target = _resampled(codec.target, targets, config.side("target").sampling, dataset["target"])
        tags, sampled = tag_column(train.pairs, codec), bool(config.side("source").sampling)
        no_tags = tags.cut(0)  # the fixed column has them

        @lru_cache(maxsize=1)
        def draw(epoch: int) -> Columns:
            number = seed * 1_000_003 + epoch
            return self._cut(source(number), tags if sampled else no_tags, target(number))

        return draw

    def _noisy_epochs(
        self, train: TrainingData, dataset: Dataset, augment: AugmentConfig, codec: Tokenizers
    ) -> Callable[[int], Dataset]:
        if not isinstance(train, TextPairs):
            raise ConfigError(
                "data.augment changes text, and a store has ids; train from text without data.train.store"
            )
        if self.recipe.tokenizer.sampled:
            raise ConfigError("data.augment and tokenizer.sampling cannot be combined; leave one of them out")
        pairs, of_epoch, seed = train.pairs, train.of_epoch, self.recipe.train.seed

        @lru_cache(maxsize=1)
        def draw(epoch: int) -> Columns:
            if of_epoch is not None:
                return self.encode(augmented(of_epoch(epoch), augment, seed=seed, epoch=epoch), codec)
            noisy = augmented(pairs, augment, seed=seed, epoch=epoch)
            changed = [row for row, (one, plain) in enumerate(zip(noisy, pairs, strict=True)) if one is not plain]
            assert isinstance(dataset, Columns)
            return dataset.with_rows(changed, self.encode([noisy[row] for row in changed], codec))

        return draw

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Fertilities come from a word aligner that learns from the training pairs."""
        if set(model.extras) - {FERTILITIES}:
            return super().extras(model, dataset)
        if FERTILITIES not in model.extras:
            return lambda columns: columns
        augment = self.recipe.data.augment
        changes = self.recipe.tokenizer.sampled or (augment is not None and augment.changes_text)
        if not isinstance(dataset, Columns) or changes:
            raise ConfigError(
                "this model needs its training pairs in memory and the same tokens in each epoch; remove "
                "data.train.store, tokenizer.sampling and data.augment"
            )
        return Aligner.learn(dataset, max_length=self.recipe.data.max_length).add_to

    def check(self, dataset: Dataset, model: Model, listen: Listener) -> None:
        if not isinstance(dataset, Columns):
            return
        for side, most in (("source", self.longest_source), ("target", self.longest_target)):
            count = 0 if most is None else int((dataset[side].lengths >= most).sum())
            if most is not None and count:
                counts = f"{count:,} of {counted(len(dataset), side)}"
                listen(Noted(0, f"{counts} have {counted(most, 'token')} or more; training reads the first {most:,}"))
        self._note_rare_tokens(dataset, listen)
        if not isinstance(model, NonAutoregressive):
            return
        count = int(model.cannot_write(dataset["source"].lengths, dataset["target"].lengths).sum())
        if count == len(dataset):
            raise DataError("every target is longer than this model can output for its source; raise model.places")
        if count:
            targets = counted(count, "target")
            listen(Noted(0, f"nothing is learned from {targets} longer than this model can output for the source"))

    def _note_rare_tokens(self, dataset: Columns, listen: Listener) -> None:
        """Note that subwords are too long for the text: a model learns little about tokens that it hardly ever sees."""
        for side in ("source", "target"):
            config, values = self.recipe.tokenizer.side(side), dataset[side].values
            if config.kind not in ("bpe", "unigram") or not MANY_EXAMPLES <= len(dataset) <= len(values) < MANY_TOKENS:
                continue
            times = len(values) / len(np.unique(values))
            if times < RARE:
                listen(
                    Noted(
                        0,
                        f"each {side} token occurs only {times:.1f} times on average in the training text, too rarely to be "
                        "learned; use a smaller tokenizer.size, or tokenizer.kind=char",
                    )
                )
                return

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        return collate_pairs(columns, rows)

    def probe(self, codec: Tokenizers, length: int, count: int) -> Batch:
        return make_batch([[UNK] * length] * count, [[UNK] * length] * count)

    # Models

    def sizes(self, codec: Tokenizers) -> dict[str, int]:
        return {"source_size": codec.source.size, "target_size": codec.target.size}

    def vocabularies(self, codec: Tokenizers) -> dict[str, Sequence[str]]:
        target = codec.target.tokens(range(codec.target.size))
        source = codec.source.tokens(range(codec.source.size))
        # Two tokenizers may number their subwords by one vocabulary, as those of imported Marian models do.
        return {"source_size": target if source == target else source, "target_size": target}

    def take_over(self, codec: Tokenizers, other: Any) -> Tokenizers:
        return other.with_tags(tuple(codec.tags)) if isinstance(other, Tokenizers) else codec

    def fit_like(self, train: TrainingData, other: Any) -> Tokenizers:
        if not isinstance(other, Tokenizers):
            return self.fit(train)
        # Nothing is learnt from the text. The ids of a store are there already.
        other = other.with_tags(self.recipe.data.tags)
        if isinstance(train, StoredCorpora) and self.vocabularies(self.fit(train)) != self.vocabularies(other):
            raise ConfigError(
                f"the ids in {train.folder} were made by other tokenizers than those of the run that train.init names; "
                "train from text, or set train.init_tokenizer=new"
            )
        return other

    def predictor(self, model: Model, codec: Tokenizers, *, greedy: bool = False, warn: Warn = ignore) -> Translator:
        options, languages = self.search_options(greedy=greedy), Languages(self.recipe.data.language_pairs)
        return Translator(model, codec, options, warn=warn, languages=languages)

    def into(self, predictor: Translator, language: str) -> Translator:
        return predictor.into(language)

    def outputs(
        self, predictor: Translator, examples: Sequence[Pair], *, options: SearchOptions | None = None
    ) -> list[str]:
        """Return the translation of each source, with the symbols in front of it that the example has."""
        outputs = [""] * len(examples)
        for tags in dict.fromkeys(pair.tags for pair in examples):
            rows = [row for row, pair in enumerate(examples) if pair.tags == tags]
            # A set without tags is translated as the translator says, which may have been told a language.
            chosen = predictor.with_tags(tags) if tags else predictor
            found = chosen.predict([examples[row].source for row in rows], options=options)
            for row, text in zip(rows, found, strict=True):
                outputs[row] = text
        return outputs

    def details(self, model: Model, codec: Tokenizers, examples: Sequence[Example]) -> dict[str, Any]:
        details: dict[str, Any] = {
            "histograms": histograms([one.output for one in examples], [one.reference for one in examples])
        }
        if examples and isinstance(model, Seq2Seq):
            # The same one at each validation.
            long = (one for one in examples if len(codec.source.encode(one.source)) >= FEWEST_KEYS)
            first = next(long, examples[0])
            details["attention"] = attention_between(model, codec, first.source, first.output, tags=first.tags)
        return details

    def trace(self, predictor: Translator, text: str, options: TraceOptions) -> Trace:
        search = predictor.options.replace(beam=options.beam)
        return trace_translation(predictor, text, options=search, alternatives=options.alternatives, name=options.name)


def tag_column(examples: Sequence[Pair], codec: Tokenizers) -> Column:
    """Return the ids of the symbols in front of each source."""
    return Column.from_lists([codec.tag_ids(pair.tags) for pair in examples])


def _resampled(tokenizer: Tokenizer, texts: list[str], rate: float, fixed: Column) -> Callable[[int], Column]:
    """Return a function from a number to the ids of one side; they are always the same if the rate is 0."""
    if not rate:
        return lambda number: fixed
    resampled = tokenizer.resampled(texts, rate)
    return lambda number: Column(*resampled.draw(number))
