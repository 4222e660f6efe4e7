"""Masked language modelling: predict words that are hidden in a text (Devlin et al. 2019).

An example is a line of text. In each epoch about 15 % of its tokens are chosen: 80 % of them are replaced by a mask, 10 % by
a random token, and 10 % stay as they are. What is chosen follows from (seed, epoch) alone. In use, a word written as [MASK]
is predicted; in a text without one, every seventh word is hidden, so that a model can be scored on plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.batch import NO_LABEL, Batch, gather_rows, num_labels
from regard.data.batch_sampler import cut_to_budget
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError, DecodeError
from regard.explain.attention import Axis, recorded_attentions
from regard.explain.trace import Alternative, Trace
from regard.metrics import MASKED
from regard.models import model_config
from regard.models.base import Model
from regard.models.masked_lm import MaskedLm
from regard.models.word_encoder import CHARACTERS, WordConfig
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import TextPairs, TrainingData
from regard.tasks.labels import cased, encode_words, input_tokenizer, spaced_words
from regard.text.corpus import Pair
from regard.text.inputs import as_texts
from regard.text.tokenizer import BOS as MASK  # an encoder reads no BOS, so its id is free
from regard.text.tokenizer import EOS, UNK, Tokenizer, Tokenizers, fit_input_tokenizer, load_tokenizers
from regard.text.words import (
    MASK_CHARACTER,
    MASK_WORD,
    NO_FEATURES,
    Spellings,
    WordFeatures,
    fit_words,
    hidden_words,
    load_words,
    split_words,
)

CHOSEN, MASKED_SHARE, RANDOM_SHARE = 0.15, 0.8, 0.1  # of the tokens; of those chosen
DEV_EPOCH = 2**62  # the number of the epoch whose masks a dev set has
WORDS, SPELLINGS = "words", "spellings"  # columns with what the text has, before anything is hidden


@dataclass(frozen=True)
class TextCodec:
    """A tokenizer, and what else is read of a word."""

    tokenizer: Tokenizer
    words: WordFeatures = NO_FEATURES

    def save(self, folder: Folder) -> None:
        Tokenizers(self.tokenizer, self.tokenizer).save(folder)
        self.words.save(folder)


class MaskedLmTask(Task[TextCodec]):
    """Hidden words of a text."""

    name = "masked-lm"
    added = (0,)
    compares = MASKED

    def __init__(self, recipe: Any) -> None:
        super().__init__(recipe)
        config = model_config(recipe.model)[1]
        assert isinstance(config, WordConfig), config
        self.characters = config.characters  # of a word, that are read

    # Data

    def fit(self, train: TrainingData) -> TextCodec:
        if self.characters and self.recipe.tokenizer.side("source").kind != "word":
            raise ConfigError("characters are those of words; set tokenizer.kind=word")
        texts = [" ".join(split_words(pair.source)) for pair in train.examples()]
        words = fit_words(texts, spelled=bool(self.characters), tagged=False)
        texts = [text.lower() for text in texts] if self.characters else texts
        return TextCodec(fit_input_tokenizer(texts, self.recipe.tokenizer), words)

    def load_codec(self, folder: Folder) -> TextCodec:
        return TextCodec(load_tokenizers(folder).source, load_words(folder))

    def encode(self, examples: Sequence[Pair], codec: TextCodec) -> Columns:
        """Return examples with the masks of a dev set, which are always the same."""
        return self._masked(self._read(examples, codec), codec, DEV_EPOCH)

    def dataset(self, train: TrainingData, codec: TextCodec) -> Dataset:
        return self._masked(self._read(train.examples(), codec), codec, 0)

    def epochs(self, train: TrainingData, dataset: Dataset, codec: TextCodec) -> Callable[[int], Dataset]:
        """Each epoch hides other words."""
        fresh = train.of_epoch if isinstance(train, TextPairs) else None
        assert isinstance(dataset, Columns)

        @lru_cache(maxsize=1)
        def draw(epoch: int) -> Dataset:
            columns = dataset if fresh is None else self._read(fresh(epoch), codec)
            return self._masked(columns, codec, epoch)

        return draw

    def _read(self, examples: Sequence[Pair], codec: TextCodec) -> Columns:
        words = [split_words(pair.source) for pair in examples]
        encoded = [encode_words(codec.tokenizer, cased(one, codec.words))[0] for one in words]
        columns = {WORDS: Column.from_lists(encoded)}
        if codec.words.characters:
            spelled = codec.words.spell([word for one in words for word in one], self.characters)
            columns[SPELLINGS] = Column(spelled, columns[WORDS].offsets)
        return Columns(columns, (WORDS,))

    def _masked(self, columns: Columns, codec: TextCodec, epoch: int) -> Columns:
        """Return the columns with some words hidden: a function of (seed, epoch)."""
        words, offsets = columns[WORDS].values, columns[WORDS].offsets
        # Runs of other seeds have the same dev masks, so that their losses can be compared.
        seed = 0 if epoch == DEV_EPOCH else self.recipe.train.seed
        random = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        drawn = random.random(len(words))
        # An unknown word cannot be predicted.
        chosen = (drawn < CHOSEN) & (words != UNK)
        hidden = chosen & (drawn < CHOSEN * MASKED_SHARE)
        replaced = chosen & ~hidden & (drawn < CHOSEN * (MASKED_SHARE + RANDOM_SHARE))
        others = random.integers(min(EOS + 1, codec.tokenizer.size - 1), codec.tokenizer.size, int(replaced.sum()))
        source = words.copy()
        source[hidden], source[replaced] = MASK, others
        found = {
            "source": Column(source, offsets),
            "labels": Column(np.where(chosen, words, NO_LABEL).astype(np.int32), offsets),
        }
        if codec.words.characters:
            spellings = columns[SPELLINGS].values.copy()
            spellings[hidden] = hidden_spelling(self.characters)
            spellings[replaced] = codec.words.spell(codec.tokenizer.tokens(others.tolist()), self.characters)
            found[CHARACTERS] = Column(spellings, offsets)
        return Columns({**columns.columns, **found}, ("source",))

    def extras(self, model: Model, dataset: Dataset) -> Callable[[Columns], Columns]:
        """Characters are a column already."""
        return lambda columns: columns

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        source = gather_rows(columns["source"], rows)
        # All have one layout, which is moved to a device once.
        labels = Ragged(gather_rows(columns["labels"], rows).values, source.layout)
        names = [name for name in (CHARACTERS,) if name in columns]
        extras = {name: Ragged(gather_rows(columns[name], rows).values, source.layout) for name in names}
        return Batch(source, None, labels, num_labels(labels), extras)

    def probe(self, codec: TextCodec, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        zeros = torch.zeros(layout.total, dtype=torch.int64)
        # At most a quarter of the tokens of a batch are predicted.
        labels = torch.where(torch.arange(layout.total) % 4 == 0, zeros, NO_LABEL)
        extras = {}
        if codec.words.characters:
            extras[CHARACTERS] = Ragged(zeros.new_ones(layout.total, self.characters), layout)
        return Batch(Ragged(zeros, layout), None, Ragged(labels, layout), -(-layout.total // 4), extras)

    # Models

    def sizes(self, codec: TextCodec) -> dict[str, int]:
        more = {"num_characters": codec.words.num_characters} if codec.words.characters else {}
        return {"source_size": codec.tokenizer.size, **more}

    def rows(self, codec: TextCodec) -> dict[str, Sequence[str]]:
        return {
            "embedding": codec.tokenizer.tokens(range(codec.tokenizer.size)),
            "spelling.embedding": codec.words.character_names,
        }

    def take_over(self, codec: TextCodec, other: Any) -> TextCodec:
        tokenizer, words = input_tokenizer(other), getattr(other, "words", NO_FEATURES)
        if tokenizer is None or bool(words.characters) != bool(codec.words.characters):
            return codec
        return TextCodec(tokenizer, WordFeatures(words.characters))

    def predictor(
        self,
        model: Model,
        codec: TextCodec,
        *,
        greedy: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> MaskPredictor:
        return MaskPredictor(model, codec, self.recipe.decode, warn)

    @torch.inference_mode()
    def trace(
        self, predictor: MaskPredictor, text: str, *, name: str = "", beam: int | None = None, alternatives: int = 0
    ) -> Trace:
        model, codec = predictor.model, predictor.codec
        hidden = predictor.hide(text)
        if not hidden.ids:
            raise DecodeError("the text is empty; give one with words in it")
        if len(hidden.ids) > predictor.limit:
            raise DecodeError(f"the text has {len(hidden.ids)} tokens; this model takes at most {predictor.limit}")
        with capture_attention() as log:
            logits = predictor.logits([hidden])
        best = logits.float().softmax(dim=-1).topk(min(1 + alternatives, logits.size(-1)), dim=-1)
        found = [
            [(number, predictor.word(number), round(p, 6)) for number, p in zip(numbers, ps, strict=True)]
            for numbers, ps in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        shown = " ".join(hidden.words)
        axes = {
            "source": Axis.from_text("input", codec.tokenizer.kind, shown, hidden.ids, hidden.tokens),
            "target": Axis.from_tokens("hidden words", [row[0][1] for row in found]),
        }
        others = [[Alternative(number, word, p, "") for number, word, p in row[1:]] for row in found]
        return Trace(name, axes, recorded_attentions(model, log, axes), [row[0][2] for row in found], others)


def hidden_spelling(length: int) -> Spellings:
    """Return the characters of a hidden word."""
    return np.array([MASK_CHARACTER] + [0] * (length - 1), dtype=np.int16)


class Hidden(NamedTuple):
    """A text whose hidden words are masks."""

    words: list[str]
    masks: list[int]  # the numbers of the hidden words
    ids: list[int]
    places: list[int]  # of the hidden words among the ids
    tokens: list[str]  # of the ids
    spellings: Spellings  # of the words; no columns if the model reads none


class MaskPredictor:
    """A masked language model in use. `warn` receives a message for each text that is cut."""

    def __init__(self, model: Model, codec: TextCodec, options: SearchOptions, warn: Callable[[str], None]) -> None:
        if not isinstance(model, MaskedLm):
            raise ConfigError(f"masks need a model of the class MaskedLm, and {type(model).__name__} is not one")
        assert isinstance(model.config, WordConfig)
        self.model, self.codec, self.budget, self.warn = model, codec, options.tokens, warn
        self.characters = model.config.characters
        self.limit = min(options.max_source, model.max_length or options.max_source)  # tokens of a text

    def hide(self, text: str) -> Hidden:
        """Return a text with its hidden words as masks."""
        words = split_words(text)
        masks = hidden_words(words)
        words = [MASK_WORD if number in set(masks) else word for number, word in enumerate(words)]
        tokenizer = self.codec.tokenizer
        ids: list[int] = []
        tokens: list[str] = []
        places: list[int] = []
        spaced = spaced_words(tokenizer, words)
        for number, word in enumerate(spaced_words(tokenizer, cased(words, self.codec.words))):
            if words[number] == MASK_WORD:
                places.append(len(ids))
                ids.append(MASK)
                tokens.append(MASK_WORD)
            else:
                ids += tokenizer.encode(word) or [UNK]
                tokens += tokenizer.tokenize(spaced[number]) or [word]
        spellings = self.codec.words.spell(words, self.characters)
        if self.characters:
            spellings[masks] = hidden_spelling(self.characters)
        return Hidden(words, masks, ids, places, tokens, spellings)

    def logits(self, texts: Sequence[Hidden]) -> Tensor:
        """Return the scores of the vocabulary at each hidden word, of all texts."""
        device = next(self.model.parameters()).device
        source = Ragged.from_lists([one.ids for one in texts], device)
        starts = np.cumsum([0, *(len(one.ids) for one in texts)])[:-1].tolist()
        places = [start + place for start, one in zip(starts, texts, strict=True) for place in one.places]
        extras = {}
        if self.characters:
            spellings = torch.from_numpy(np.concatenate([one.spellings for one in texts]).astype(np.int64))
            extras[CHARACTERS] = Ragged(spellings.to(device), source.layout)
        logits = self.model.scores(source, torch.tensor(places, device=device, dtype=torch.int64), extras)
        logits[:, : EOS + 1] = float("-inf")  # neither unknown words nor masks are predicted
        return logits

    def word(self, token: int) -> str:
        """Return a token as a word."""
        return self.codec.tokenizer.decode([token]).strip() or self.codec.tokenizer.tokens([token])[0]

    @torch.inference_mode()
    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return each text with its hidden words predicted. Search options do not apply."""
        inputs = as_texts(inputs, call="predict()")
        hidden = [self._cut(number, self.hide(text)) for number, text in enumerate(inputs, start=1)]
        lengths = np.array([len(one.ids) for one in hidden], dtype=np.int64)
        order = np.flatnonzero(lengths)
        order = order[np.argsort(-lengths[order], kind="stable")]
        outputs = [""] * len(inputs)
        for rows in cut_to_budget(order, (lengths,), self.budget):
            texts = [hidden[row] for row in rows]
            best = iter(self.logits(texts).argmax(dim=-1).tolist())
            for row, one in zip(rows.tolist(), texts, strict=True):
                words = list(one.words)
                for number in one.masks:
                    words[number] = self.word(next(best))
                outputs[row] = " ".join(words)
        return outputs

    def _cut(self, number: int, one: Hidden) -> Hidden:
        if len(one.ids) <= self.limit:
            return one
        self.warn(f"line {number} has {len(one.ids)} tokens; only the first {self.limit} are used")
        places = [place for place in one.places if place < self.limit]
        return one._replace(
            masks=one.masks[: len(places)],
            ids=one.ids[: self.limit],
            places=places,
            tokens=one.tokens[: self.limit],
            spellings=one.spellings[: self.limit],
        )
