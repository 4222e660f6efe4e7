"""Language modelling: predict the next token of a text, score texts by their perplexity, and continue prompts.

An example is one line of text (`data.train = { text = "train.txt" }`). Its tokens, and EOS, are predicted from those before
them. A text of more than `data.max_length` tokens becomes several blocks; the first token that a block reads is the last
one of the block before it, so that every token is predicted once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from regard.config import SearchOptions
from regard.data.batch import Batch, gather_rows, shift_right
from regard.data.batch_sampler import dev_batches
from regard.data.budget import batches_by_length
from regard.data.columns import Column, Columns, Indices, pair_columns
from regard.data.ragged import Layout, Ragged
from regard.decoding.constraints import Demands
from regard.decoding.sampling import SampleOptions, sample
from regard.decoding.search import search
from regard.errors import ConfigError
from regard.explain.attention import Axis
from regard.explain.recorded import alternatives_of, recorded_attentions
from regard.explain.trace import Trace, TraceOptions
from regard.messages import counted
from regard.metrics import PROBABILITIES, Score
from regard.models.base import Model
from regard.models.decoder import Decoder
from regard.nn.attention_log import capture_attention
from regard.storage.folder import Folder
from regard.tasks.base import OF_TRANSLATION, dev_loss
from regard.tasks.corpus import TrainingData
from regard.tasks.predictor import BatchPredictor, Warn, ignore
from regard.tasks.word_codec import WordCodec, WordTask, load_word_codec
from regard.text.corpus import Pair
from regard.text.tokenizer import BOS, EOS, UNK, fit_input_tokenizer

LARGEST_EXPONENT = 700.0  # of exp in float64


class LanguageModellingTask(WordTask[WordCodec]):
    """Texts, without a target side."""

    name = "language-modelling"
    added = (0, 0)
    compares = PROBABILITIES
    samples = True
    ignored_options = OF_TRANSLATION  # prompts are continued by search

    def fit(self, train: TrainingData) -> WordCodec:
        config = self.recipe.tokenizer
        if config.sampled:
            raise ConfigError("language modelling splits a text in one way only; set tokenizer.sampling=0")
        return WordCodec(fit_input_tokenizer([pair.source for pair in train.examples()], config))

    def load_codec(self, folder: Folder) -> WordCodec:
        return load_word_codec(folder)

    def encode(self, examples: Sequence[Pair], codec: WordCodec) -> Columns:
        read, labels = [], []
        for ids in codec.tokenizer.encode_all([pair.source for pair in examples]):
            for block_read, block in blocks(ids, max(1, self.recipe.data.max_length)):
                read.append(block_read)
                labels.append(block)
        return pair_columns(Column.from_lists(read), Column.from_lists(labels))

    def collate(self, columns: Columns, rows: Indices) -> Batch:
        labels = gather_rows(columns["target"], rows)
        read = Ragged(gather_rows(columns["source"], rows).values, labels.layout)
        return Batch(read, read, labels, labels.layout.total)

    def probe(self, codec: WordCodec, length: int, count: int) -> Batch:
        layout = Layout([length] * count)
        ids = Ragged(torch.full((layout.total,), UNK), layout)
        return Batch(ids, ids, ids, layout.total)

    def predictor(self, model: Model, codec: WordCodec, *, greedy: bool = False, warn: Warn = ignore) -> LanguageModel:
        return LanguageModel(model, codec, self.recipe.decode, warn)

    # Scores

    def evaluate(
        self,
        predictor: LanguageModel,
        examples: Sequence[Pair],
        *,
        options: SearchOptions | None = None,
        warn: Warn = ignore,
    ) -> list[Score]:
        """Return the perplexity of the texts. Search options have no effect."""
        columns = self.encode(examples, predictor.codec)
        budget, most = max(self.recipe.decode.tokens, self.recipe.data.max_length), self.recipe.data.max_length
        batches = dev_batches(columns, self.collate, added=self.added, budget=budget, max_length=most)
        loss, labels = dev_loss(predictor.model, batches, predictor.device)
        return self.loss_scores(loss, labels, examples, predictor.codec)

    def loss_scores(self, loss: float, labels: int, examples: Sequence[Pair], codec: WordCodec) -> list[Score]:
        """Return the perplexity per token, of which UNK is one, and per word that has no unknown symbol.

        A word with one costs what its tokens cost but does not count, so unknown words never improve the second.
        """
        texts = [pair.source for pair in examples]
        encoded = zip(texts, codec.tokenizer.encode_all(texts), strict=True)
        with_unknown = [(text, ids) for text, ids in encoded if UNK in ids]
        tokens = sum(ids.count(UNK) for _, ids in with_unknown)
        words = sum(UNK in codec.tokenizer.encode(word) for text, _ in with_unknown for word in text.split())
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
    def trace(self, predictor: LanguageModel, text: str, options: TraceOptions) -> Trace:
        """Continue a prompt, and show for every token what the model expected there."""
        model, tokenizer, prompt = predictor.model, predictor.codec.tokenizer, predictor.encode_one(text)
        if options.sample is None:
            (found,) = predictor.continued([prompt], predictor.options)
        else:
            (found,) = predictor.sampled([prompt], options.sample)
        ids = [*found, EOS]
        with capture_attention() as log:
            read = shift_right(Ragged.from_lists([ids], predictor.device), BOS)
            probabilities_NV = model.decode(read, model.encode(read)).float().softmax(dim=-1)
        others = alternatives_of(probabilities_NV, ids, options.alternatives, lambda id: tokenizer.tokens([id])[0])
        axes = {
            "source": Axis.from_text("prompt", tokenizer.kind, text, prompt, tokenizer.tokenize(text)),
            "target": Axis.from_ids("text", tokenizer, ids),
            "read": Axis.from_ids("read before", tokenizer, read.values.tolist()),
        }
        return Trace(options.name, axes, recorded_attentions(model, log, axes), *others)


def blocks(ids: Sequence[int], most: int) -> list[tuple[list[int], list[int]]]:
    """Return what is read and what is predicted, block by block, of at most `most` tokens each; EOS is predicted last."""
    read, labels = [BOS, *ids], [*ids, EOS]
    return [(read[at : at + most], labels[at : at + most]) for at in range(0, len(labels), most)]


class LanguageModel(BatchPredictor[Decoder, WordCodec, list[int]]):
    """A language model in use: each prompt with the continuation that search finds; an empty one is not continued."""

    needs = Decoder
    if_empty = "the text is empty; give a prompt to continue"
    added = 1  # at least one token follows

    def encode(self, text: str) -> list[int]:
        return self.codec.tokenizer.encode(text) if text.strip() else []

    def cut(self, one: list[int]) -> list[int]:
        return one[: self.limit]

    def batches(self, encoded: Sequence[list[int]], options: SearchOptions) -> list[list[int]]:
        lengths = [len(ids) + options.max_extra if ids else 0 for ids in encoded]
        return batches_by_length(lengths, max(1, options.tokens // options.beam))

    def outputs(self, batch: Sequence[list[int]], options: SearchOptions) -> list[str]:
        return [self.codec.tokenizer.decode(ids) for ids in self.continued(batch, options)]

    def continued(self, prompts: Sequence[list[int]], options: SearchOptions) -> list[list[int]]:
        """Return the prompts of a batch with the continuations that search finds, as ids without EOS."""
        # Search takes the last token for EOS, and allows `max_extra` tokens more than there are.
        source = Ragged.from_lists([[*ids, EOS] for ids in prompts], self.device)
        demands = Demands.prefixes(prompts, eos=self.model.eos)
        found = search(self.model, source, options=options.replace(nbest=1), demands=demands)
        return [best[0].ids for best in found]

    def sample(self, prompts: Sequence[str], *, options: SampleOptions | None = None) -> list[str]:
        """Return each prompt with a continuation that is drawn at random. Prompts may be empty."""
        encoded = self.encode_all(prompts, call="sample()")
        return [self.codec.tokenizer.decode(ids) for ids in self.sampled(encoded, options or SampleOptions())]

    def sampled(self, prompts: Sequence[list[int]], options: SampleOptions) -> list[list[int]]:
        """Return prompts with continuations that are drawn at random, as ids without EOS."""
        return sample(self.model, prompts, options, budget=self.options.tokens)
