"""How important each head is, and what is left of a model when heads are removed in the order of their importance.

`removal_importance` is the loss without a head minus that of the complete model, one head at a time. `gradient_importance`
is the mean of |∂ loss / ∂ gate| over sentences, for a gate of 1 behind each head (Michel et al. 2019, "Are sixteen heads
really better than one?"). Removing many heads in order is how they and Voita et al. (2019) ask how few are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from regard.data.batch import shift_right
from regard.data.budget import cut_to_budget
from regard.data.ragged import Ragged
from regard.decoding.forced_decoding import TOKENS, log_probabilities
from regard.explain.head_gates import Head, all_heads, gated, silenced
from regard.models.base import Seq2Seq

Report = Callable[[str, int, int], None]  # what is done, how much of it, and of how much
Importance = dict[Head, float]


class Examples(NamedTuple):
    """Sentences with given outputs: sources as the encoder reads them, outputs with EOS."""

    sources: Sequence[Sequence[int]]
    outputs: Sequence[Sequence[int]]

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.outputs))

    def batches(self) -> Iterator[tuple[Ragged, Ragged]]:
        """Yield sources and labels in batches of similar lengths."""
        lengths = tuple(np.array([len(ids) for ids in some], dtype=np.int64) for some in self)
        for rows in cut_to_budget(np.lexsort(lengths)[::-1], lengths, TOKENS):
            yield (
                Ragged.from_lists([self.sources[row] for row in rows], "cpu"),
                Ragged.from_lists([self.outputs[row] for row in rows], "cpu"),
            )


class PruningPoint(NamedTuple):
    """A model without some of its heads."""

    removed: int
    loss: float
    bleu: float | None = None


@torch.inference_mode()
def loss_per_token(model: Seq2Seq, examples: Examples, silent: Sequence[Head] = ()) -> float:
    """Return the cross-entropy per target token, EOS included, without the silent heads."""
    total = 0.0
    with silenced(model, silent):
        for source, labels in examples.batches():
            logits = model.decode(shift_right(labels, model.bos), model.encode(source)).float()
            total -= log_probabilities(logits, labels.values).double().sum().item()
    return total / examples.num_tokens


def removal_importance(model: Seq2Seq, examples: Examples, report: Report) -> Importance:
    """Return the loss per token without each head, minus that of the complete model. Below 0: it is better without."""
    base, heads, found = loss_per_token(model, examples), all_heads(model), {}
    for number, head in enumerate(heads):
        report("removing one head", number, len(heads))
        found[head] = loss_per_token(model, examples, [head]) - base
    return found


def gradient_importance(model: Seq2Seq, examples: Examples, report: Report) -> Importance:
    """Return the mean over sentences of |∂ loss / ∂ gate| of each head; the loss is that of all tokens of a sentence."""
    found: Importance = dict.fromkeys(all_heads(model), 0.0)
    done = 0
    for source, labels in examples.batches():
        report("gradients", done, len(examples.sources))
        with torch.enable_grad(), gated(model, source.layout, labels.layout) as gates:
            logits = model.decode(shift_right(labels, model.bos), model.encode(source)).float()
            loss = -log_probabilities(logits, labels.values).sum()
            gradients = torch.autograd.grad(loss, list(gates.values()))
        for layer, gradient_BH in zip(gates, gradients, strict=True):
            for head, value in zip(layer.heads, gradient_BH.abs().sum(dim=0).tolist(), strict=True):
                found[head] += value / len(examples.sources)
        done += source.layout.num_sentences
    return found


def by_layer(importance: Mapping[Head, float]) -> Importance:
    """Return importances divided by the length of their layer's vector, as Michel et al. compare heads of several layers."""
    squares: dict[tuple[str, int], float] = {}
    for head, value in importance.items():
        squares[head[:2]] = squares.get(head[:2], 0.0) + value**2
    return {head: value / squares[head[:2]] ** 0.5 if value else 0.0 for head, value in importance.items()}


def removal_order(importance: Mapping[Head, float]) -> list[Head]:
    """Return heads from the least important to the most important."""
    return sorted(importance, key=lambda head: importance[head])


def random_order(heads: Sequence[Head], seed: int) -> list[Head]:
    """Return heads in a random order, with which an order by importance is compared."""
    return [heads[number] for number in np.random.default_rng(seed).permutation(len(heads))]


def points_of(num_heads: int, count: int) -> list[int]:
    """Return how many heads are removed at each point of a curve: from none to all."""
    return sorted({round(number * num_heads / (count - 1)) for number in range(count)})


def pruning_curve(
    model: Seq2Seq,
    examples: Examples,
    order: Sequence[Head],
    at: Sequence[int],
    bleu: Callable[[], float] | None = None,
) -> Iterator[PruningPoint]:
    """Yield the loss, and BLEU if it is asked for, of a model without the first heads of an order."""
    for removed in at:
        loss = loss_per_token(model, examples, order[:removed])
        if bleu is None:
            yield PruningPoint(removed, loss)
            continue
        with silenced(model, order[:removed]):
            yield PruningPoint(removed, loss, bleu())
