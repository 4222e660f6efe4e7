"""Recurrent layers over ragged batches: the first tokens of all sentences, then the second ones, and no padding.

A state is one tensor, [L, P, R, H]: L layers, P parts (the hidden state; of an LSTM the cell too), R rows, H hidden width.

Shapes: N tokens, B sentences, T the longest sentence, D width of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from regard.data.ragged import Layout
from regard.nn.dropout import Dropout, Noise

CellKind = Literal["lstm", "gru"]


class TimeOrder:
    """The tokens of a batch by time step, and in a step by sentence, longest first: those still going come first."""

    def __init__(self, layout: Layout) -> None:
        lengths = np.array(layout.lengths, dtype=np.int64)
        longest_first = np.argsort(-lengths, kind="stable")
        starts, ordered = (lengths.cumsum() - lengths)[longest_first], lengths[longest_first]
        steps = np.arange(layout.longest)[:, None]
        going = ordered > steps  # [T, B]
        tokens = (starts + steps)[going]

        def on_device(numbers: NDArray[np.int64]) -> Tensor:
            return torch.from_numpy(numbers).to(layout.device)

        self.rows = torch.from_numpy(going.sum(axis=1))  # sentences still going, for the host: [T]
        self.sentences = on_device(longest_first)  # their numbers, longest first: [B]
        self.places = on_device(_inverse(longest_first))  # for each sentence, its place in that order: [B]
        self.tokens = on_device(tokens)  # their numbers in this order: [N]
        self.back = on_device(_inverse(tokens))  # for each token, its place in this order: [N]

    def pack(self, x_ND: Tensor) -> PackedSequence:
        """As PyTorch's recurrent layers take it: tokens in this order."""
        return PackedSequence(x_ND, self.rows, self.sentences, self.places)


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    inverse = np.empty_like(order)
    inverse[order] = np.arange(order.size)
    return inverse


class Recurrent(nn.Module):
    """Layers of LSTM or GRU, dropout between them. Bidirectional ones share `hidden` between their two directions."""

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
        # No Stack: the layers of one are gathered from shards when they are called, and `step` calls none.
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

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return next(self.parameters()).dtype

    def forward(self, x_ND: Tensor, order: TimeOrder) -> tuple[Tensor, Tensor]:
        """The outputs of the last layer, [N, H], and the last state, [L, P, B, H]; both ways, or one way."""
        last = []
        x_ND = x_ND.index_select(0, order.tokens)
        for number, layer in enumerate(self._layers()):
            x_ND = self.dropout(x_ND) if number else x_ND
            packed, final = self._run(layer, order.pack(x_ND.to(self.dtype)))
            x_ND = packed.data
            parts = list(final) if self.kind == "lstm" else [final]
            last.append(torch.stack([part.transpose(0, 1).flatten(1) for part in parts]))  # directions side by side
        return x_ND.index_select(0, order.back), torch.stack(last)

    def onwards(self, x_BTD: Tensor, state: Tensor) -> Tensor:
        """The outputs of the last layer over a rectangle, [B, T, H], from this state on. For one direction."""
        for number, layer in enumerate(self._layers()):
            x_BTD = self.dropout(x_BTD) if number else x_BTD
            parts = [part[None].to(self.dtype) for part in state[number].unbind()]
            given = tuple(parts) if self.kind == "lstm" else parts[0]
            x_BTD = self._run(layer, x_BTD.transpose(0, 1).to(self.dtype), given)[0].transpose(0, 1)
        return x_BTD

    def _run(self, layer: nn.RNNBase, *given: Any) -> Any:
        """One layer, by cuDNN where there is one, in the precision of its weights.

        Autocast would give cuDNN float16, too narrow for gradients, whatever it was told.
        """
        with torch.autocast(next(layer.parameters()).device.type, enabled=False):
            return layer(*given)

    def step(self, x_RD: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One token a row: the output of the last layer, [R, H], and the new state. For one direction."""
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


def top(state: Tensor) -> Tensor:
    """The hidden state of the last layer: [R, H]."""
    return state[-1, 0]


@torch.no_grad()
def _draw(layer: nn.RNNBase, kind: CellKind) -> None:
    """Orthogonal between states, Xavier from inputs, biases zero; an LSTM begins by remembering (forget gate 1)."""
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
