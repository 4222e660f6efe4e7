"""Recurrent layers over flat batches: the first tokens of all sentences, then the second tokens, and so on.

Nothing is padded if the host knows the lengths. With a `StaticLayout`, which a CUDA graph needs, it does not; then sentences
of similar length are padded: on a GPU a recurrence waits for the host's calls far longer than padding takes.

A state is one tensor, [L, P, R, H]: L layers, P parts (the hidden state; for an LSTM also the cell), R rows, H hidden width.

Shapes: N tokens, B sentences, T the longest sentence, D width of the input.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.data.ragged import Layout, StaticLayout
from regard.nn.dropout import Dropout, Noise

CellKind = Literal["lstm", "gru"]


class TimeOrder:
    """The tokens of a batch by time step, and within a step by sentence, longest first."""

    def __init__(self, layout: Layout) -> None:
        lengths = np.array(layout.lengths, dtype=np.int64)
        longest_first = np.argsort(-lengths, kind="stable")
        starts, ordered = (lengths.cumsum() - lengths)[longest_first], lengths[longest_first]
        steps = np.arange(layout.longest)[:, None]
        active = ordered > steps  # sentences that have a token in a step: [T, B]
        tokens = (starts + steps)[active]

        def on_device(numbers: NDArray[np.int64]) -> Tensor:
            return torch.from_numpy(numbers).to(layout.device)

        self.rows = torch.from_numpy(active.sum(axis=1))  # active sentences of each step, on the host: [T]
        self.sentences = on_device(longest_first)  # numbers of the sentences, longest first: [B]
        self.places = on_device(_inverse(longest_first))  # for each sentence, its place in that order: [B]
        self.tokens = on_device(tokens)  # numbers of the tokens in this order: [N]
        self.back = on_device(_inverse(tokens))  # for each token, its place in this order: [N]

    def split(self, x_ND: Tensor) -> tuple[Tensor, ...]:
        """Return the tokens of each step: [R, D], one row per active sentence."""
        return x_ND.index_select(0, self.tokens).split(self.rows.tolist())

    def join(self, steps: Sequence[Tensor]) -> Tensor:
        """Return the inverse of `split`."""
        return torch.cat(list(steps)).index_select(0, self.back)

    def through(self, layers: Sequence[nn.RNNBase], x_ND: Tensor, dropout: Dropout) -> Tensor:
        """Return the output of the last of these layers, with dropout between them: [N, H]."""
        x_ND = x_ND.index_select(0, self.tokens)
        for number, layer in enumerate(layers):
            x_ND = dropout(x_ND) if number else x_ND
            x_ND = _run(layer, PackedSequence(x_ND.to(_dtype(layer)), self.rows, self.sentences, self.places))[0].data
        return x_ND.index_select(0, self.back)


class Rectangle:
    """The tokens of a batch by time step if the host does not know the lengths: all sentences have all steps."""

    def __init__(self, layout: StaticLayout) -> None:
        self.layout = layout
        self.sentences = None  # in the order of the batch

    def split(self, x_ND: Tensor) -> tuple[Tensor, ...]:
        """Return the tokens of each step, padded: [B, D]."""
        return self.layout.pad(x_ND).unbind(1)

    def join(self, steps: Sequence[Tensor]) -> Tensor:
        """Return the inverse of `split`."""
        return self.layout.unpad(torch.stack(list(steps), dim=1))

    def through(self, layers: Sequence[nn.RNNBase], x_ND: Tensor, dropout: Dropout) -> Tensor:
        """Return what `TimeOrder.through` returns. Each direction runs alone, and all sentences start at the first step."""
        for number, layer in enumerate(layers):
            x_ND = dropout(x_ND) if number else x_ND
            ways = [self.layout, self.layout.backwards] if layer.bidirectional else [self.layout]
            out = []
            for way, weights in zip(ways, layer.all_weights, strict=True):
                x_TBD = way.pad(x_ND.to(_dtype(layer))).transpose(0, 1)
                out.append(way.unpad(_one_way(layer, x_TBD, weights).transpose(0, 1)))
            x_ND = torch.cat(out, dim=-1)
        return x_ND


def steps_of(layout: Layout) -> TimeOrder | Rectangle:
    """Return the tokens of a batch by time step."""
    return Rectangle(layout) if isinstance(layout, StaticLayout) else TimeOrder(layout)


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    inverse = np.empty_like(order)
    inverse[order] = np.arange(order.size)
    return inverse


class Recurrent(nn.Module):
    """LSTM or GRU layers with dropout between them. If bidirectional, each direction has half of `hidden`."""

    def __init__(
        self,
        kind: CellKind,
        width_in: int,
        hidden: int,
        num_layers: int,
        *,
        dropout: float,
        noise: Noise,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.kind, self.hidden, self.num_layers = kind, hidden, num_layers
        self.num_parts = 2 if kind == "lstm" else 1
        layer = nn.LSTM if kind == "lstm" else nn.GRU
        own = hidden // 2 if bidirectional else hidden
        # Not a Stack: FSDP gathers the weights of a Stack's layers when the layers are called, and `step` calls none.
        self.layers = nn.ModuleList(
            layer(width_in if number == 0 else hidden, own, bidirectional=bidirectional) for number in range(num_layers)
        )
        self.dropout = Dropout(dropout, noise)
        for one in self._layers():
            _draw(one, kind)

    def _layers(self) -> Iterator[nn.RNNBase]:
        for layer in self.layers:
            assert isinstance(layer, nn.RNNBase)
            yield layer

    def forward(self, x_ND: Tensor, order: TimeOrder | Rectangle) -> Tensor:
        """Return the output of the last layer, [N, H], starting from a state of zeros."""
        return order.through(list(self._layers()), x_ND, self.dropout)

    def onwards(self, x_BTD: Tensor, state: Tensor) -> Tensor:
        """Return the output of the last layer for a padded batch, [B, T, H], from this state on. One direction only."""
        for number, layer in enumerate(self._layers()):
            x_BTD = self.dropout(x_BTD) if number else x_BTD
            parts = [part[None].to(_dtype(layer)) for part in state[number].unbind()]
            given = tuple(parts) if self.kind == "lstm" else parts[0]
            x_BTD = _run(layer, x_BTD.transpose(0, 1).to(_dtype(layer)), given)[0].transpose(0, 1)
        return x_BTD

    def step(self, x_RD: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output of the last layer for one token per row, [R, H], and the new state. One direction only."""
        after = []
        for number, layer in enumerate(self._layers()):
            x_RD = self.dropout(x_RD) if number else x_RD
            weights = layer.all_weights[0]
            if self.kind == "lstm":
                h_RH, c_RH = torch.lstm_cell(x_RD, tuple(state[number].unbind()), *weights)
                after.append(torch.stack([h_RH, c_RH]))
            else:
                h_RH = torch.gru_cell(x_RD, state[number, 0], *weights)
                after.append(h_RH[None])
            x_RD = h_RH
        return x_RD, torch.stack(after)


def _dtype(layer: nn.RNNBase) -> torch.dtype:
    """Return the dtype of the layer's weights."""
    return next(layer.parameters()).dtype


def _run(layer: nn.RNNBase, *given: Any) -> Any:
    """Run one layer in the precision of its weights, by cuDNN if available.

    Autocast always gives cuDNN float16, which is too narrow for gradients.
    """
    with torch.autocast(next(layer.parameters()).device.type, enabled=False):
        return layer(*given)


def _one_way(layer: nn.RNNBase, x_TBD: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Return a layer's output in the direction of these weights, starting from zeros. cuDNN copies the weights."""
    first = x_TBD.new_zeros(1, x_TBD.size(1), layer.hidden_size)
    has_biases, num_layers, dropout, both_ways, batch_first = True, 1, 0.0, False, False
    options = has_biases, num_layers, dropout, layer.training, both_ways, batch_first
    with torch.autocast(x_TBD.device.type, enabled=False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        if isinstance(layer, nn.LSTM):
            return torch.lstm(x_TBD, (first, first), tuple(weights), *options)[0]
        return torch.gru(x_TBD, first, tuple(weights), *options)[0]


def ends_of(out_ND: Tensor, layout: Layout, *, bidirectional: bool) -> Tensor:
    """Return the output of each direction at the last token that it reads of each sentence: [B, H]."""
    last = out_ND.index_select(0, layout.offsets[1:] - 1)
    if not bidirectional:
        return last
    half, first = out_ND.size(-1) // 2, out_ND.index_select(0, layout.offsets[:-1].clamp(max=layout.total - 1))
    return torch.cat([last[:, :half], first[:, half:]], dim=-1)


def top(state: Tensor) -> Tensor:
    """Return the hidden state of the last layer: [R, H]."""
    return state[-1, 0]


@torch.no_grad()
def _draw(layer: nn.RNNBase, kind: CellKind) -> None:
    """Initialize a layer: recurrent weights orthogonal, input weights Xavier, biases 0, those of LSTM forget gates 1."""
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_hh"):
            for gate in parameter.chunk(4 if kind == "lstm" else 3):
                nn.init.orthogonal_(gate)
        elif name.startswith("weight_ih"):
            for gate in parameter.chunk(4 if kind == "lstm" else 3):
                nn.init.xavier_uniform_(gate)
        else:
            parameter.zero_()
            if kind == "lstm" and name.startswith("bias_ih"):
                parameter.chunk(4)[1].fill_(1.0)
