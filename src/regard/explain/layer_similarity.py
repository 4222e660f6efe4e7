"""How similar layers represent the same tokens, by linear CKA (Kornblith et al. 2019), and how alike positions are.

`linear_cka` is 1 for representations that are equal up to rotation, reflection, one common scale and a shift, and near 0 for
unrelated ones. It compares vectors of different widths, so it compares layers of different models too. `position_similarity`
is near 1 where all positions of a sentence have the same vector, so that attention has nothing to choose from: the rank
collapse of deep stacks (Dong et al. 2021).

Shapes: N tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batch import shift_right
from regard.explain.head_importance import Examples, Report
from regard.models.transformer import Transformer
from regard.nn.layers import Stack

STACKS = ("encoder", "decoder")


def linear_cka(x_ND: Tensor, y_ND: Tensor) -> float:
    """Return the similarity of two representations of the same tokens, from 0 to 1; 0 if one of them is constant."""
    return similarities([x_ND], [y_ND])[0][0]


def similarities(rows: Sequence[Tensor], columns: Sequence[Tensor]) -> list[list[float]]:
    """Return the linear CKA of every representation in `rows` with every one in `columns`: |XᵀY|² / (|XᵀX| |YᵀY|).

    All are of the same tokens, one row per token, and are centred first; |·| is the Frobenius norm.
    """
    centred_rows, centred_columns = ([_centred(one) for one in some] for some in (rows, columns))
    row_norms, column_norms = ([_norm(one.T @ one) for one in some] for some in (centred_rows, centred_columns))
    return [
        [
            min(1.0, _norm(x.T @ y) ** 2 / (x_norm * y_norm)) if x_norm and y_norm else 0.0
            for y, y_norm in zip(centred_columns, column_norms, strict=True)
        ]
        for x, x_norm in zip(centred_rows, row_norms, strict=True)
    ]


def noise_similarity(tokens: int, width: int, other: int) -> float:
    """Return about the linear CKA of independent Gaussian noise: small only if there are many more tokens than columns.

    With m = tokens - 1, |XᵀY|² is m · width · other on average, and |XᵀX|² is m · width · (m + width + 1).
    """
    return math.sqrt(width * other / ((tokens + width) * (tokens + other)))


@dataclass(frozen=True)
class StackStates:
    """The states of a stack for all tokens, [N, D] each: the input of the first layer, then each layer's output."""

    layers: list[Tensor]
    lengths: list[int]  # of the sentences, one after the other

    def position_similarity(self) -> list[float]:
        """Return for each layer how alike the positions of a sentence are, on average over sentences."""
        return [position_similarity(layer, self.lengths) for layer in self.layers]


def position_similarity(x_ND: Tensor, lengths: Sequence[int]) -> float:
    """Return the mean cosine between two positions of a sentence; 0 if no sentence has two.

    Unit vectors u of a sentence of length L have |sum of u|² = L + the cosines of all L (L - 1) ordered pairs.
    """
    sentences = F.normalize(x_ND.double(), dim=-1).split(list(lengths))
    found = [
        (float(one.sum(dim=0).square().sum()) - len(one)) / (len(one) * (len(one) - 1))
        for one in sentences
        if len(one) > 1
    ]
    return sum(found) / len(found) if found else 0.0


@torch.inference_mode()
def layer_states(model: Transformer, examples: Examples, report: Report) -> dict[str, StackStates]:
    """Return the states of both stacks.

    The decoder reads the given outputs. Tokens of equal sources and outputs are in the same order for every model.
    """
    batches: dict[str, list[list[Tensor]]] = {name: [] for name in STACKS}
    lengths: dict[str, list[int]] = {name: [] for name in STACKS}
    for source, labels in examples.batches():
        report("layers", len(lengths["encoder"]), len(examples.sources))
        with _recorded(model.encoder) as encoder, _recorded(model.decoder) as decoder:
            memory = model.encode(source)
            model.decode(shift_right(labels, model.bos), memory)
        for name, states, read in zip(STACKS, (encoder, decoder), (memory, labels), strict=True):
            batches[name].append(states)
            lengths[name] += read.layout.lengths
    return {
        name: StackStates([torch.cat(parts) for parts in zip(*batches[name], strict=True)], lengths[name])
        for name in STACKS
    }


@contextmanager
def _recorded(stack: Stack[Any]) -> Iterator[list[Tensor]]:
    """Yield a list to which the input of the first layer and the output of every layer are added as they are computed."""
    states: list[Tensor] = []
    layers = list(stack)
    handles = [layers[0].register_forward_pre_hook(lambda _, given: states.append(given[0].detach()))]
    handles += [layer.register_forward_hook(lambda _, __, output: states.append(output.detach())) for layer in layers]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def _centred(x_ND: Tensor) -> Tensor:
    x_ND = x_ND.double()
    return x_ND - x_ND.mean(dim=0)


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix))
