"""Language modelling: predict the next token of a text, score texts by their perplexity, and continue prompts.

An example is one line of text (`data.train = { text = "train.txt" }`). Its tokens, and EOS, are predicted from those before
them. A text of more than `data.max_length` tokens becomes several blocks; the first token that a block reads is the last
one of the block before it, so that every token is predicted once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from regard.config import SearchOptions
from regard.data.batch import Batch, gather_rows, shift_right
from regard.data.batch_sampler import cut_to_budget, dev_batches
from regard.data.columns import Column, Columns, Indices, pair_columns
from regard.data.ragged import Layout, Ragged
from regard.decoding.sampling import SampleOptions, sample
from regard.decoding.search import search
from regard.errors import ConfigError, DecodeError
from regard.explain.attention import Axis, recorded_attentions
from regard.explain.trace import Alternative, Trace
from regard.messages import counted
from regard.metrics import PROBABILITIES, Score
from regard.models.base import Model
from regard.models.decoder import Decoder
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.tasks.corpus import TrainingData
from regard.tasks.losses import dev_loss
from regard.text.corpus import Pair
from regard.text.inputs import as_texts
from regard.text.tokenizer import (
    BOS,
    EOS,
    UNK,
    Tokenizer,
    Tokenizers,
    fit_input_tokenizer,
    load_tokenizers,
)

LARGEST_EXPONENT = 700.0  # of exp in float64


class LanguageModellingTask(Task[Tokenizers]):
    """Texts, without a target side. The codec is the pair of a tokenizer with itself."""

    name = "language-modelling"
    added = (0, 0)
    compares = PROBABILITIES
    samples = True
    ignored_options = ()  # prompts are continued by search

    def fit(self, train: TrainingData) -> Tokenizers:
        config = self.recipe.tokenizer
        if config.sampled:
            raise ConfigError("language modelling splits a text in one way only; set tokenizer.sampling=0")
        tokenizer = fit_input_tokenizer([pair.source for pair in train.examples()], config)
        return Tokenizers(tokenizer, tokenizer)

    def load_codec(self, folder: Folder) -> Tokenizers:
        return load_tokenizers(folder)

    def sizes(self, codec: Tokenizers) -> dict[str, int]:
        return {"source_size": codec.source.size}

    def rows(self, codec: Tokenizers) -> dict[str, Sequence[str]]:
        return {"embedding": codec.source.tokens(range(codec.source.size))}

    def encode(self, examples: Sequence[Pair], codec: Tokenizers) -> Columns:
        read, labels = [], []
        for ids in codec.source.encode_all([pair.source for pair in examples]):
            for block_read, block in blocks(ids, max(1, self.recipe.data.max_length)):
                read.append(block_read)
                labels.append(block)
        return pair_columns(Column.from_lists(read), Column.from_lists(labels))

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        labels = gather_rows(columns["target"], rows)
        read = Ragged(gather_rows(columns["source"], rows).values, labels.layout)
        return Batch(read, read, labels, labels.layout.total)

    def probe(self, codec: Tokenizers, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        ids = Ragged(torch.full((layout.total,), UNK), layout)
        return Batch(ids, ids, ids, layout.total)

    def predictor(
        self,
        model: Model,
        codec: Tokenizers,
        *,
        greedy: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> LanguageModel:
        return LanguageModel(model, codec.source, self.recipe.decode, warn)

    # Scores

    def evaluate(
        self,
        predictor: LanguageModel,
        examples: Sequence[Pair],
        *,
        options: SearchOptions | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> list[Score]:
        """Return the perplexity of the texts. Search options have no effect."""
        codec = Tokenizers(predictor.tokenizer, predictor.tokenizer)
        columns = self.encode(examples, codec)
        budget, most = max(self.recipe.decode.tokens, self.recipe.data.max_length), self.recipe.data.max_length
        batches = dev_batches(columns, self.collate, added=self.added, budget=budget, max_length=most)
        loss, labels = dev_loss(predictor.model, batches, next(predictor.model.parameters()).device)
        return self.loss_scores(loss, labels, examples, codec)

    def loss_scores(self, loss: float, labels: int, examples: Sequence[Pair], codec: Tokenizers) -> list[Score]:
        """Return the perplexity per token, of which UNK is one, and per word that has no unknown symbol.

        A word with one costs what its tokens cost but does not count, so unknown words never improve the second.
        """
        texts = [pair.source for pair in examples]
        encoded = zip(texts, codec.source.encode_all(texts), strict=True)
        with_unknown = [(text, ids) for text, ids in encoded if UNK in ids]
        tokens = sum(ids.count(UNK) for _, ids in with_unknown)
        words = sum(UNK in codec.source.encode(word) for text, _ in with_unknown for word in text.split())
        known = sum(len(text.split()) + 1 for text in texts) - words
        per_token = f"{counted(labels, 'token')}, ends included" + (f", {tokens:,} unknown" if tokens else "")
        per_word = f"{counted(known, 'word')}, ends included"
        if words:
            per_word += f"; {counted(words, 'word')} with unknown symbols cost as much as their tokens but do not count"
        signatures = {"perplexity": (labels, per_token), "word_perplexity": (known, per_word)}
        return [
            Score(name, math.exp(min(loss / max(count, 1), LARGEST_EXPONENT)), signature)
            for name, (count, signature) in signatures.items()
        ]

    # Looking at a text

    @torch.inference_mode()
    def trace(
        self,
        predictor: LanguageModel,
        text: str,
        *,
        name: str = "",
        beam: int | None = None,
        alternatives: int = 0,
        sample: SampleOptions | None = None,
    ) -> Trace:
        """Continue a prompt, and show for every token what the model expected there."""
        model, tokenizer = predictor.model, predictor.tokenizer
        prompt = tokenizer.encode(text)
        if not prompt or not text.strip():
            raise DecodeError("the text is empty; give a prompt to continue")
        if len(prompt) > predictor.limit:
            raise DecodeError(f"the text has {len(prompt)} tokens; this model takes at most {predictor.limit}")
        found = predictor.continued([prompt]) if sample is None else predictor.sampled([prompt], sample)
        labels = Ragged.from_lists([[*found[0], EOS]], next(model.parameters()).device)
        with capture_attention() as log:
            read = shift_right(labels, BOS)
            probabilities_NV = model.decode(read, model.encode(read)).float().softmax(dim=-1)
        own_N = probabilities_NV.gather(1, labels.values[:, None])[:, 0]
        best = probabilities_NV.topk(min(1 + alternatives, probabilities_NV.size(1)), dim=-1)
        others = [
            [
                Alternative(id, tokenizer.tokens([id])[0], round(p, 6), "")
                for id, p in zip(ids, ps, strict=True)
                if id != own
            ][:alternatives]
            for own, ids, ps in zip(labels.values.tolist(), best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        target = Axis.from_ids("text", tokenizer, labels.values.tolist())
        axes = {
            "source": Axis.from_text("prompt", tokenizer.kind, text, prompt, tokenizer.tokenize(text)),
            "target": target,
            "read": Axis.from_ids("read before", tokenizer, read.values.tolist()),
        }
        attentions = recorded_attentions(model, log, axes)
        return Trace(name, axes, attentions, [round(one, 6) for one in own_N.tolist()], others)


def blocks(ids: Sequence[int], most: int) -> list[tuple[list[int], list[int]]]:
    """Return what is read and what is predicted, block by block, of at most `most` tokens each; EOS is predicted last."""
    read, labels = [BOS, *ids], [*ids, EOS]
    return [(read[at : at + most], labels[at : at + most]) for at in range(0, len(labels), most)]


class LanguageModel:
    """A language model in use. `warn` receives a message for each prompt that is cut."""

    def __init__(self, model: Model, tokenizer: Tokenizer, options: SearchOptions, warn: Callable[[str], None]) -> None:
        if not isinstance(model, Decoder):
            raise ConfigError(f"this task needs a model of the class Decoder, and {type(model).__name__} is not one")
        self.model, self.tokenizer, self.warn = model, tokenizer, warn
        self.options = SearchOptions().with_given(options)
        # At least one token follows.
        self.limit = options.max_source if model.max_length is None else min(options.max_source, model.max_length - 1)

    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return each prompt with the continuation that search finds; an empty prompt is not continued."""
        prompts = self._encode(inputs, call="predict()")
        outputs = self.continued([ids for ids in prompts if ids], options=options)
        decoded = map(self.tokenizer.decode, outputs)
        return [next(decoded) if ids else "" for ids in prompts]

    def sample(self, prompts: Sequence[str], *, options: SampleOptions | None = None) -> list[str]:
        """Return each prompt with a continuation that is drawn at random. Prompts may be empty."""
        encoded = self._encode(prompts, call="sample()")
        return [self.tokenizer.decode(ids) for ids in self.sampled(encoded, options or SampleOptions())]

    def continued(self, prompts: list[list[int]], *, options: SearchOptions | None = None) -> list[list[int]]:
        """Return prompts with the continuations that search finds, as ids without EOS."""
        options = self.options.with_given(options).replace(nbest=1)
        device = next(self.model.parameters()).device
        lengths = np.array([len(ids) + options.max_extra for ids in prompts], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        outputs: list[list[int]] = [[] for _ in prompts]
        for rows in cut_to_budget(order, (lengths,), max(1, options.tokens // options.beam)):
            some = [prompts[row] for row in rows]
            # Search takes the last token for EOS, and allows `max_extra` tokens more than there are.
            source = Ragged.from_lists([[*ids, EOS] for ids in some], device)
            for row, best in zip(
                rows.tolist(), search(self.model, source, options=options, prefixes=some), strict=True
            ):
                outputs[row] = best[0].ids
        return outputs

    def sampled(self, prompts: list[list[int]], options: SampleOptions) -> list[list[int]]:
        """Return prompts with continuations that are drawn at random, as ids without EOS."""
        return sample(self.model, prompts, options)

    def _encode(self, texts: Sequence[str], *, call: str) -> list[list[int]]:
        encoded = self.tokenizer.encode_all(as_texts(texts, call=call))
        for number, ids in enumerate(encoded, start=1):
            if len(ids) > self.limit:
                self.warn(f"line {number} has {len(ids)} tokens; only the first {self.limit} are used")
        return [ids[: self.limit] for ids in encoded]
