"""Models for sequences of binary vectors: at some steps a vector of bits is wanted, at the others one is read.

A step of the input is one integer: its bits are the channels of a vector, and above them is a number (such as how often to
repeat a sequence), which has a channel of its own. A label is the integer of the wanted bits; the loss leaves out steps
without one. `BinaryLstm` and `BinaryTransformer` are what the Neural Turing Machine (`ntm.py`) is compared with.

Shapes: N steps of a batch, C channels of the input, V bits of the output, D width.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import MAX_LAYERS, MAX_WIDTH, Struct, below_one, between
from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.messages import counted
from regard.models.base import Model, make_config
from regard.models.encoder_decoder import EncoderConfig, TransformerEncoder
from regard.nn.linear import Linear
from regard.nn.recurrent import CellKind, Recurrent, steps_of

MOST_BITS = 16  # of a vector
MOST_NUMBER = 2**14 - 1  # with the bits below it, it fits into an int32


class BinaryModel(Model):
    """Reads vectors of `input_width` bits and outputs vectors of `output_width` bits.

    `largest_number` is the largest one in training; 0 if the input has no numbers.
    """

    smooths_labels = False

    def __init__(self, *, input_width: int, output_width: int, largest_number: int) -> None:
        super().__init__()
        if not (1 <= input_width <= MOST_BITS and 1 <= output_width <= MOST_BITS):
            raise ConfigError(
                f"vectors have {input_width} and {counted(output_width, 'bit')}; each can have 1 to {MOST_BITS}"
            )
        self.input_width, self.output_width, self.largest_number = input_width, output_width, largest_number
        self.num_channels = input_width + bool(largest_number)

    def channels(self, ids_N: Tensor) -> Tensor:
        """Return the input of each step: its bits as 0 and 1, then its number: [N, C]."""
        bits_NC = bits_of(ids_N, self.input_width)
        if not self.largest_number:
            return bits_NC
        number_N = (ids_N >> MOST_BITS).to(bits_NC.dtype)
        # Mean 0 and variance 1 if all numbers are equally frequent (Graves et al. 2014, section 4.2).
        scaled_N = (number_N / self.largest_number - 0.5) * math.sqrt(12)
        return torch.cat([bits_NC, (scaled_N * (number_N > 0))[:, None]], dim=-1)

    @abstractmethod
    def logits(self, source: Ragged) -> Ragged:
        """Return the logit of each output bit after each step: [N, V]. No step depends on later ones."""

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Return the cross-entropy in nats, summed over the bits of all wanted vectors. Smoothing has no effect."""
        logits_NV, labels_N = self.logits(batch.source).values.float(), batch.labels.values
        bits_NV = bits_of(labels_N, self.output_width)
        losses_NV = F.binary_cross_entropy_with_logits(logits_NV, bits_NV, reduction="none")
        return (losses_NV.sum(dim=-1) * (labels_N != NO_LABEL)).sum()


def bits_of(ids_N: Tensor, width: int) -> Tensor:
    """Return the lowest bits of each integer as 0.0 and 1.0, the highest of them first: [N, width]."""
    places = torch.arange(width - 1, -1, -1, device=ids_N.device, dtype=ids_N.dtype)
    return ((ids_N[:, None] >> places) & 1).float()


class BinaryLstmConfig(Struct, frozen=True):
    """Defaults are those of the baseline of Graves et al. (2014) for copying: three layers of 256."""

    width: int = 256
    num_layers: int = 3
    cell: CellKind = "lstm"
    dropout: float = 0.0  # between layers

    def check(self) -> None:
        between(self, 1, MAX_WIDTH, "width")
        between(self, 1, MAX_LAYERS, "num_layers")
        below_one(self, "dropout")


class BinaryLstm(BinaryModel):
    """Recurrent layers without an external memory."""

    similar_lengths = True
    packs_float32 = True

    def __init__(
        self,
        config: BinaryLstmConfig | None = None,
        *,
        input_width: int,
        output_width: int,
        largest_number: int = 0,
        **options: Any,
    ) -> None:
        config = make_config(BinaryLstmConfig, config, options)
        super().__init__(input_width=input_width, output_width=output_width, largest_number=largest_number)
        self.config, self.width = config, config.width
        self.layers = Recurrent(
            config.cell, self.num_channels, config.width, config.num_layers, dropout=config.dropout, noise=self.noise
        )
        self.output = nn.Linear(config.width, output_width)

    @property
    def static_shapes(self) -> bool:
        return True

    def logits(self, source: Ragged) -> Ragged:
        hidden_ND = self.layers(self.channels(source.values), steps_of(source.layout))
        return Ragged(self.output(hidden_ND), source.layout)


class BinaryTransformerConfig(EncoderConfig, frozen=True):
    """Layers of the Transformer's encoder in which each step sees itself and the steps before it."""

    def check(self) -> None:
        super().check()
        if self.feed_forward == "conv":
            raise ValueError("feed_forward is 'conv', which sees the next steps; use relu, gelu or swiglu")


class BinaryTransformer(BinaryModel):
    """Causal self-attention over all steps."""

    def __init__(
        self,
        config: BinaryTransformerConfig | None = None,
        *,
        input_width: int,
        output_width: int,
        largest_number: int = 0,
        **options: Any,
    ) -> None:
        config = make_config(BinaryTransformerConfig, config, options)
        super().__init__(input_width=input_width, output_width=output_width, largest_number=largest_number)
        self.config, self.width = config, config.width
        self.max_length = config.max_positions if config.positions == "learned" else None
        self.input = Linear(self.num_channels, [config.width], bias=True, hidden=False)
        self.encoder = TransformerEncoder(config, self, causal=True)
        self.output = Linear(config.width, [output_width], bias=True, hidden=False)

    @property
    def static_shapes(self) -> bool:
        return self.config.static_shapes

    def logits(self, source: Ragged) -> Ragged:
        encoded: Ragged = self.encoder(self.input(self.channels(source.values)), source.layout)
        return Ragged(self.output(encoded.values), source.layout)
