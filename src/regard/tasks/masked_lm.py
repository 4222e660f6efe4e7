"""Masked language modelling: predict words that are hidden in a text (Devlin et al. 2019).

An example is a line of text. In each epoch about 15 % of its tokens are chosen: 80 % of them are replaced by a mask, 10 % by
a random token, and 10 % stay as they are. What is chosen follows from (seed, epoch) alone. In use, a word written as [MASK]
is predicted; in a text without one, every seventh word is hidden, so that a model can be scored on plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.batch import NO_LABEL, Batch, gather_rows, num_labels
from regard.data.columns import Column, Columns, Dataset, Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.explain.attention import Axis
from regard.explain.recorded import alternatives_of, recorded_attentions
from regard.explain.trace import Trace, TraceOptions
from regard.metrics import MASKED
from regard.models import model_config
from regard.models.base import Model
from regard.models.masked_lm import MaskedLm
from regard.models.word_encoder import CHARACTERS, WordConfig
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.corpus import TextPairs, TrainingData
from regard.tasks.predictor import BatchPredictor, Warn, ignore
from regard.tasks.word_codec import WordCodec, WordTask, cased, encode_words, load_word_codec, spaced_words
from regard.text.corpus import Pair
from regard.text.tokenizer import BOS as MASK  # an encoder reads no BOS, so its id is free
from regard.text.tokenizer import EOS, UNK, fit_input_tokenizer
from regard.text.words import (
    MASK_CHARACTER,
    MASK_WORD,
    Spellings,
    fit_words,
    hidden_words,
    split_words,
)

CHOSEN, MASKED_SHARE, RANDOM_SHARE = 0.15, 0.8, 0.1  # of the tokens; of those chosen
DEV_EPOCH = 2**62  # the number of the epoch whose masks a dev set has
WORDS, SPELLINGS = "words", "spellings"  # columns with what the text has, before anything is hidden


class MaskedLmTask(WordTask[WordCodec]):
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

    def fit(self, train: TrainingData) -> WordCodec:
        if self.characters and self.recipe.tokenizer.side("source").kind != "word":
            raise ConfigError("characters are those of words; set tokenizer.kind=word")
        texts = [" ".join(split_words(pair.source)) for pair in train.examples()]
        words = fit_words(texts, spelled=bool(self.characters), tagged=False)
        texts = [text.lower() for text in texts] if self.characters else texts
        return WordCodec(fit_input_tokenizer(texts, self.recipe.tokenizer), words)

    def load_codec(self, folder: Folder) -> WordCodec:
        return load_word_codec(folder)

    def encode(self, examples: Sequence[Pair], codec: WordCodec) -> Columns:
        """Return examples with the masks of a dev set, which are always the same."""
        return self._masked(self._read(examples, codec), codec, DEV_EPOCH)

    def dataset(self, train: TrainingData, codec: WordCodec) -> Dataset:
        return self._masked(self._read(train.examples(), codec), codec, 0)

    def epochs(self, train: TrainingData, dataset: Dataset, codec: WordCodec) -> Callable[[int], Dataset]:
        """Each epoch hides other words."""
        fresh = train.of_epoch if isinstance(train, TextPairs) else None
        assert isinstance(dataset, Columns)

        @lru_cache(maxsize=1)
        def draw(epoch: int) -> Dataset:
            columns = dataset if fresh is None else self._read(fresh(epoch), codec)
            return self._masked(columns, codec, epoch)

        return draw

    def _read(self, examples: Sequence[Pair], codec: WordCodec) -> Columns:
        words = [split_words(pair.source) for pair in examples]
        encoded = [encode_words(codec.tokenizer, cased(one, codec.words))[0] for one in words]
        columns = {WORDS: Column.from_lists(encoded)}
        if codec.words.characters:
            spelled = codec.words.spell([word for one in words for word in one], self.characters)
            columns[SPELLINGS] = Column(spelled, columns[WORDS].offsets)
        return Columns(columns, (WORDS,))

    def _masked(self, columns: Columns, codec: WordCodec, epoch: int) -> Columns:
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

    def probe(self, codec: WordCodec, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        zeros = torch.zeros(layout.total, dtype=torch.int64)
        # At most a quarter of the tokens of a batch are predicted.
        labels = torch.where(torch.arange(layout.total) % 4 == 0, zeros, NO_LABEL)
        extras = {}
        if codec.words.characters:
            extras[CHARACTERS] = Ragged(zeros.new_ones(layout.total, self.characters), layout)
        return Batch(Ragged(zeros, layout), None, Ragged(labels, layout), -(-layout.total // 4), extras)

    # Models

    def predictor(self, model: Model, codec: WordCodec, *, greedy: bool = False, warn: Warn = ignore) -> MaskPredictor:
        return MaskPredictor(model, codec, self.recipe.decode, warn)

    @torch.inference_mode()
    def trace(self, predictor: MaskPredictor, text: str, options: TraceOptions) -> Trace:
        model, codec, hidden = predictor.model, predictor.codec, predictor.encode_one(text)
        with capture_attention() as log:
            logits = predictor.logits([hidden])
        best = logits.argmax(dim=-1).tolist()
        axes = {
            "source": Axis.from_text("input", codec.tokenizer.kind, " ".join(hidden.words), hidden.ids, hidden.tokens),
            "target": Axis.from_tokens("hidden words", [predictor.word(number) for number in best]),
        }
        found = alternatives_of(logits.float().softmax(dim=-1), best, options.alternatives, predictor.word)
        return Trace(options.name, axes, recorded_attentions(model, log, axes), *found)


def hidden_spelling(length: int) -> Spellings:
    """Return the characters of a hidden word."""
    return np.array([MASK_CHARACTER] + [0] * (length - 1), dtype=np.int16)


@dataclass(frozen=True)
class Hidden:
    """A text whose hidden words are masks."""

    words: list[str]
    masks: list[int]  # the numbers of the hidden words
    ids: list[int]
    places: list[int]  # of the hidden words among the ids
    tokens: list[str]  # of the ids
    spellings: Spellings  # of the words; no columns if the model reads none

    def __len__(self) -> int:
        return len(self.ids)


class MaskPredictor(BatchPredictor[MaskedLm, WordCodec, Hidden]):
    """A masked language model in use: each text with its hidden words predicted."""

    needs = MaskedLm

    def __init__(self, model: Model, codec: WordCodec, options: SearchOptions, warn: Warn = ignore) -> None:
        super().__init__(model, codec, options, warn)
        assert isinstance(self.model.config, WordConfig)
        self.characters = self.model.config.characters

    def encode(self, text: str) -> Hidden:
        return self.hide(text)

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
        device = self.device
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

    def outputs(self, batch: Sequence[Hidden], options: SearchOptions) -> list[str]:
        best = iter(self.logits(batch).argmax(dim=-1).tolist())
        outputs = []
        for one in batch:
            words = list(one.words)
            for number in one.masks:
                words[number] = self.word(next(best))
            outputs.append(" ".join(words))
        return outputs

    def cut(self, one: Hidden) -> Hidden:
        places = [place for place in one.places if place < self.limit]
        return replace(
            one,
            masks=one.masks[: len(places)],
            ids=one.ids[: self.limit],
            places=places,
            tokens=one.tokens[: self.limit],
            spellings=one.spellings[: self.limit],
        )
