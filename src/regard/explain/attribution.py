"""Which words of a source an output token depends on: attention, rollout, gradients and words left out, side by side.

Each method gives one number per source token. Attention and rollout are shares. The others are about the log-probability of
the token: gradient × input and integrated gradients (Sundararajan et al. 2017) take a vector of zeros in place of a word's
vector as the absence of the word; leaving out deletes it.

Shapes: M source tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import SearchOptions
from regard.data.ragged import Layout, Ragged
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.explain.attention import Axis, attention_rollout, mean_over_heads
from regard.explain.recorded import record_forced, recorded_attentions
from regard.explain.translation_axes import translation_axes
from regard.models.base import Seq2Seq
from regard.models.encoder_decoder import EncoderDecoder

METHODS = ("attention", "rollout", "gradient x input", "integrated gradients", "leave one out")
STEPS = 96  # of the sum that stands for the integral
REFINED, FINER = 8, 12  # as many steps are divided, into as many
BATCH = 48  # of these steps at once

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class NextToken:
    """A token that a model may output next, and what it depends on."""

    model: Seq2Seq
    source: Axis
    source_ids: list[int]
    prefix_ids: list[int]  # the output so far, without BOS
    token: int

    def log_probability(self, source_ids: Sequence[int] | None = None) -> float:
        """Return the log-probability of the token, for this source or another one."""
        source = Ragged.from_lists([list(self.source_ids if source_ids is None else source_ids)], "cpu")
        with torch.inference_mode():
            return self.log_probabilities(self.model.encode(source)).item()

    def log_probabilities(self, memory: Ragged) -> Tensor:
        """Return the log-probability of the token for each output of the encoder: [B]."""
        read = [[self.model.bos, *self.prefix_ids]] * memory.layout.num_sentences
        logits_NV = self.model.decode(Ragged.from_lists(read, "cpu"), memory).float()
        return logits_NV[len(read[0]) - 1 :: len(read[0])].log_softmax(dim=-1)[:, self.token]

    def words(self, numbers: Numbers) -> Numbers:
        """Return the sums of numbers of tokens by word."""
        return np.array([numbers[word].sum() for word in self.source.words])


def next_token(translator: Translator, source: str, prefix: str, word: str) -> NextToken:
    """Return the first token of a word, as what a translator may output after a prefix of its translation."""
    model = translator.model
    if not isinstance(model, Seq2Seq):
        raise DecodeError("this model outputs all tokens at once, so no token depends on those before it")
    encoded, outputs, vocabularies = translator.encode_pairs([source], [prefix], SearchOptions())
    ids = translator.tokenizers.target.encode(word)
    if not ids:
        raise DecodeError("the word whose probability is asked for is empty")
    axes = translation_axes(
        translator.tokenizers.source,
        vocabularies[0],
        source,
        encoded[0],
        outputs[0],
        reads_source_eos=model.reads_source_eos,
    )
    return NextToken(model, axes["source"], encoded[0], outputs[0][:-1], ids[0])


def probabilities(translator: Translator, source: str, prefix: str, words: Sequence[str]) -> dict[str, float]:
    """Return the probability that the first token of each of some words comes next."""
    return {word: float(np.exp(next_token(translator, source, prefix, word).log_probability())) for word in words}


def attribute(question: NextToken) -> dict[str, Numbers]:
    """Return the numbers of all methods for the words of the source."""
    attention, rollout = _attention(question)
    gradient, integrated = _gradient_x_input(question), _integrated_gradients(question)
    found = dict(zip(METHODS[:4], (attention, rollout, gradient, integrated), strict=True))
    by_word = {name: question.words(numbers) for name, numbers in found.items()}
    return by_word | {METHODS[4]: leave_one_out(question)}


def _attention(question: NextToken) -> tuple[Numbers, Numbers]:
    """Return the mean attention of the token to the source, over layers and heads; and through the encoder's rollout."""
    model = question.model
    with torch.inference_mode():
        source = Ragged.from_lists([question.source_ids], "cpu")
        log, _ = record_forced(model, source, [*question.prefix_ids, question.token])
    names = [str(number) for number in range(len(question.prefix_ids) + 1)]
    axes = {
        "source": question.source,
        "target": Axis.from_tokens("output", names),
        "read": Axis.from_tokens("read", names),
    }
    layers = recorded_attentions(model, log, axes)
    across = [mean_over_heads(one.weights)[-1] for one in layers if one.name == "encoder-decoder"]
    own = [mean_over_heads(one.weights) for one in layers if one.name == "encoder"]
    if not across or not own:
        raise DecodeError("attribution needs a model with attention in its encoder and from its decoder: a Transformer")
    mean: Numbers = np.stack(across).astype(np.float64).mean(axis=0)
    return mean, mean @ attention_rollout(own)


def _gradient_x_input(question: NextToken) -> Numbers:
    """Return the slope of the log-probability along each word's vector."""
    return _slopes(question, torch.ones(1))[0]


def _integrated_gradients(question: NextToken) -> Numbers:
    """Return the slopes along each word's vector, integrated from vectors of zeros to those of the words.

    The sum over words is the log-probability minus that of zeros. Intervals in which it is not, because the model changes
    abruptly there, are divided once more.
    """
    edges = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64)
    middles, width = (edges[1:] + edges[:-1]) / 2, 1 / STEPS
    parts = _slopes(question, middles) * width
    left_over = np.abs(parts.sum(axis=1) - np.diff(_along_path(question, edges)))
    finer = ((torch.arange(FINER) + 0.5) / FINER - 0.5) * width
    for worst in np.argsort(-left_over)[:REFINED]:
        parts[worst] = _slopes(question, middles[worst] + finer).mean(axis=0) * width
    total: Numbers = parts.sum(axis=0)
    return total


def _vectors(question: NextToken) -> tuple[EncoderDecoder, Tensor]:
    model = question.model
    if not isinstance(model, EncoderDecoder) or model.config.copy or not model.reads_source_eos:
        raise DecodeError("gradients by word are for Transformers that read the end of the source and do not copy")
    return model, model.source_vectors(torch.tensor(question.source_ids)).detach()


def _scaled(vectors_MD: Tensor, shares: Tensor) -> Ragged:
    """Return the vectors times each of the shares, a sentence each."""
    values = (shares[:, None, None] * vectors_MD).flatten(0, 1).to(vectors_MD.dtype)
    return Ragged(values, Layout([len(vectors_MD)] * len(shares), "cpu"))


def _slopes(question: NextToken, shares: Tensor) -> Numbers:
    """Return, at each share of the word vectors, the gradient of the log-probability times each vector: [shares, M]."""
    model, vectors_MD = _vectors(question)
    found = []
    for some in shares.split(BATCH):
        scaled = _scaled(vectors_MD, some)
        scaled.values.requires_grad_()
        with torch.enable_grad():
            logp = question.log_probabilities(model.encode_vectors(scaled))
            gradient = torch.autograd.grad(logp.sum(), scaled.values)[0]
        found.append((gradient.unflatten(0, (len(some), -1)) * vectors_MD).sum(dim=2))
    return torch.cat(found).double().numpy()


@torch.inference_mode()
def _along_path(question: NextToken, shares: Tensor) -> Numbers:
    """Return the log-probability at each share of the word vectors."""
    model, vectors_MD = _vectors(question)
    parts = [
        question.log_probabilities(model.encode_vectors(_scaled(vectors_MD, some))) for some in shares.split(BATCH)
    ]
    return torch.cat(parts).double().numpy()


def leave_one_out(question: NextToken) -> Numbers:
    """Return the log-probability minus that without each word of the source. EOS cannot be left out; it has 0."""
    base, words = question.log_probability(), question.source.words
    found = np.zeros(len(words))
    for number, word in enumerate(words[: len(question.source.words_without_eos)]):
        kept = [id for index, id in enumerate(question.source_ids) if index not in word]
        found[number] = base - question.log_probability(kept)
    return found
