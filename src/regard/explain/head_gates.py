"""Heads that are silenced, or whose output is multiplied by a gate: the attention modules of a model, by name.

Shapes: N query tokens, B sentences, H heads, V value width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.ragged import Layout
from regard.errors import DecodeError
from regard.models.base import Model
from regard.nn.attention import MultiHead
from regard.nn.attention_log import ENCODER_DECODER

KINDS = ("encoder", "decoder", "encoder-decoder")


class Head(NamedTuple):
    """A head of a model: the kind of attention, and layer and number, both counted from 1."""

    attention: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.attention} {self.layer}.{self.head}"


class AttentionLayer(NamedTuple):
    """The attention of one layer."""

    attention: str
    layer: int
    module: MultiHead

    @property
    def heads(self) -> list[Head]:
        return [Head(self.attention, self.layer, number + 1) for number in range(self.module.shape.num_heads)]


def attention_layers(model: Model) -> list[AttentionLayer]:
    """Return the attention layers of an encoder and a decoder, in the order of KINDS."""
    found: list[AttentionLayer] = []
    for name, module in model.named_modules():
        if isinstance(module, MultiHead) and module.kind in (None, ENCODER_DECODER):
            kind = "encoder-decoder" if module.kind is ENCODER_DECODER else name.split(".")[0]
            if kind in KINDS:
                found.append(AttentionLayer(kind, int(name.split(".")[1]) + 1, module))
    return sorted(found, key=lambda one: (KINDS.index(one.attention), one.layer))


def all_heads(model: Model) -> list[Head]:
    """Return the heads of a model."""
    return [head for layer in attention_layers(model) for head in layer.heads]


@contextmanager
def silenced(model: Model, heads: Iterable[Head]) -> Iterator[None]:
    """Make these heads give nothing (zeros), in all computations of the model in this context.

    The model is that of PyTorch: a translator whose searches it shall affect is loaded with engine="torch".
    """
    silent = set(heads)
    unknown = silent - set(all_heads(model))
    if unknown:
        raise DecodeError(f"the model has no head {min(unknown)}; its heads are {_described(model)}")
    with ExitStack() as stack:
        for layer in attention_layers(model):
            kept = torch.tensor([float(head not in silent) for head in layer.heads])
            if not kept.all():
                stack.enter_context(_gated(layer.module, kept))
        yield


@contextmanager
def gated(model: Model, source: Layout, target: Layout) -> Iterator[dict[AttentionLayer, Tensor]]:
    """Multiply the output of each head by a gate of 1 for each sentence of a batch. Yield the gates, [B, H]."""
    with ExitStack() as stack:
        gates = {}
        for layer in attention_layers(model):
            gate_BH = torch.ones(source.num_sentences, layer.module.shape.num_heads, requires_grad=True)
            sentences = (source if layer.attention == "encoder" else target).sentences
            stack.enter_context(_gated(layer.module, gate_BH.index_select(0, sentences)))
            gates[layer] = gate_BH
        yield gates


@contextmanager
def _gated(module: MultiHead, gate: Tensor) -> Iterator[None]:
    """Multiply what heads give to the output projection by gates: [H], or [N, H]."""

    def multiply(_: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        heads_NHV = given[0].unflatten(-1, (module.shape.num_heads, -1))
        return ((heads_NHV * gate.to(heads_NHV)[..., None]).flatten(-2), *given[1:])

    handle = module.output.register_forward_pre_hook(multiply)
    try:
        yield
    finally:
        handle.remove()


def _described(model: Model) -> str:
    layers = attention_layers(model)
    counts = {kind: [one for one in layers if one.attention == kind] for kind in KINDS}
    return ", ".join(
        f"{kind} 1.1 to {len(some)}.{some[-1].module.shape.num_heads}" for kind, some in counts.items() if some
    )
