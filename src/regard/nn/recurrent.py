"""Recurrent layers: over whole sentences, one way or both, by cuDNN where there is one; or a token at a time.

Whole sentences lie in a rectangle, begins on one side: what stands behind the end of one changes nothing before it. Read
backwards they lie in another one, ends on one side.

A state is one tensor, [L, P, R, H]: L layers, P parts (the hidden state; of an LSTM the cell too), R rows, H hidden width.

Shapes: N tokens, B sentences, T the longest sentence, D width of the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from regard.data.ragged import Layout
from regard.nn.dropout import Dropout, Noise

CellKind = Literal["lstm", "gru"]


class TimeOrder:
    """The tokens of a batch by time step, and in a step by sentence, longest first: those still going come first."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        lengths = torch.tensor(layout.lengths)
        self._longest_first = lengths.argsort(descending=True, stable=True)
        self.rows = (lengths[None] > torch.arange(layout.longest)[:, None]).sum(dim=1)  # sentences still going: [T]

    @cached_property
    def sentences(self) -> Tensor:
        """The numbers of the sentences, longest first: [B]."""
        return self._longest_first.to(self.layout.device)

    @cached_property
    def places(self) -> Tensor:
        """For each sentence, its place in that order: [B]."""
        return self.sentences.argsort()

    @cached_property
    def tokens(self) -> Tensor:
        """The numbers of the tokens in this order: [N]."""
        step, row = self.layout.positions, self.places[self.layout.sentences]
        return (step * self.layout.num_sentences + row).argsort()

    @cached_property
    def back(self) -> Tensor:
        """For each token, its place in this order: [N]."""
        return self.tokens.argsort()


class Reader(nn.Module):
    """Layers of LSTM or GRU over a source, dropout between them; both ways share `hidden` between them."""

    def __init__(
        self,
        kind: CellKind,
        width_in: int,
        hidden: int,
        num_layers: int,
        *,
        dropout: float,
        noise: Noise,
        both_ways: bool,
    ) -> None:
        super().__init__()
        own = hidden // 2 if both_ways else hidden
        widths = [width_in, *[hidden] * (num_layers - 1)]
        # No Stack: the layers of one are gathered from shards when they are called, and `Recurrent.step` calls none.
        self.onwards = nn.ModuleList(_layer(kind, width, own) for width in widths)
        self.backwards = nn.ModuleList(_layer(kind, width, own) for width in widths) if both_ways else None
        self.dropout = Dropout(dropout, noise)
        self.own = own

    def forward(self, x_ND: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """The outputs of the last layer, [N, H], and what each way ends with, [B, H]."""
        for number, onwards in enumerate(self.onwards):
            x_ND = self.dropout(x_ND) if number else x_ND
            ways = [_over(onwards, x_ND, layout)]
            if self.backwards is not None:
                ways.append(_over(self.backwards[number], x_ND, layout.backwards))
            x_ND = torch.cat(ways, dim=-1)
        offsets = layout.offsets.to(torch.int64)
        last = x_ND.index_select(0, offsets[1:] - 1)[:, : self.own]
        first = x_ND.index_select(0, offsets[:-1])[:, self.own :]
        return x_ND, torch.cat([last, first], dim=-1)


class Recurrent(nn.Module):
    """Layers of LSTM or GRU that write, dropout between them."""

    def __init__(
        self, kind: CellKind, width_in: int, hidden: int, num_layers: int, *, dropout: float, noise: Noise
    ) -> None:
        super().__init__()
        self.kind, self.hidden, self.num_layers = kind, hidden, num_layers
        self.num_parts = 2 if kind == "lstm" else 1
        widths = [width_in, *[hidden] * (num_layers - 1)]
        self.layers = nn.ModuleList(_layer(kind, width, hidden) for width in widths)
        self.dropout = Dropout(dropout, noise)

    def _layers(self) -> Iterator[nn.RNNBase]:
        for layer in self.layers:
            assert isinstance(layer, nn.RNNBase)
            yield layer

    def onwards(self, x_BTD: Tensor, state: Tensor) -> Tensor:
        """The outputs of the last layer over a rectangle, [B, T, H], from this state on."""
        for number, layer in enumerate(self._layers()):
            x_BTD = self.dropout(x_BTD) if number else x_BTD
            x_BTD = _run(layer, x_BTD, state[number].unbind())
        return x_BTD

    def step(self, x_RD: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One token a row: the output of the last layer, [R, H], and the new state."""
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


def _over(layer: nn.Module, x_ND: Tensor, layout: Layout) -> Tensor:
    """What a layer makes of sentences, in the order that the layout lays them: [N, H]."""
    return layout.unpad(_run(layer, layout.pad(x_ND)))


def _run(layer: nn.Module, x_BTD: Tensor, state: Sequence[Tensor] = ()) -> Tensor:
    """One layer over a rectangle, from the parts of a state on: [B, T, H]. In the precision of its weights.

    Autocast would give cuDNN float16, too narrow for gradients, whatever it was told.
    """
    weight = next(layer.parameters())
    parts = tuple(part[None].to(weight.dtype) for part in state)
    given = parts if isinstance(layer, nn.GRU) or not parts else (parts,)
    with torch.autocast(weight.device.type, enabled=False):
        out: Tensor = layer(x_BTD.to(weight.dtype), *given)[0]
    return out


def _layer(kind: CellKind, width: int, hidden: int) -> nn.RNNBase:
    layer = (nn.LSTM if kind == "lstm" else nn.GRU)(width, hidden, batch_first=True)
    _draw(layer, kind)
    return layer


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
