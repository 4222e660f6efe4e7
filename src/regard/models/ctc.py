"""Translation by connectionist temporal classification (Libovický and Helcl 2018): more positions than tokens.

Each source token becomes a few positions. The decoder outputs a token or a blank at every position, and repeated tokens are
merged. The loss sums over all alignments that give the target, so no lengths are predicted. BOS is the blank.

Shapes: N positions, M source tokens, D width, V vocabulary, B sentences, T positions of the longest sentence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.config import between
from regard.data.batch import Batch
from regard.data.columns import Indices
from regard.data.ragged import Layout, Ragged
from regard.models.base import NonAutoregressive, Output, WriteOptions, make_config
from regard.models.encoder_decoder import EncoderDecoder, TransformerConfig
from regard.models.non_autoregressive import refuse_causal_layers, refuse_unused_embedding
from regard.nn.linear import Linear
from regard.text.tokenizer import BOS as BLANK
from regard.text.tokenizer import EOS


class CtcConfig(TransformerConfig, frozen=True):
    """The options of a Transformer, and the number of positions."""

    places: int = 3  # positions per source token

    def check(self) -> None:
        super().check()
        between(self, 1, 16, "places")


class Ctc(EncoderDecoder, NonAutoregressive):
    """A Transformer whose decoder reads a few projections of each encoder output."""

    config: CtcConfig
    static_shapes = False  # the loss needs lengths on the host
    smooths_labels = False

    def __init__(self, config: CtcConfig | None = None, *, source_size: int, target_size: int, **options: Any) -> None:
        config = make_config(CtcConfig, config, options)
        refuse_unused_embedding(config)
        super().__init__(config, source_size=source_size, target_size=target_size)
        refuse_causal_layers(config)
        self.unfold = Linear(config.width, [config.width] * config.places, bias=True)
        if self.max_length is not None:
            self.max_length //= config.places

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Return the loss. Smoothing has no effect, and a target that has too few positions costs nothing."""
        hidden = self._fill_places(self.encode(batch.source))
        logits_NV = self.project(hidden.values)
        logp_TBV = hidden.layout.pad(logits_NV.float().log_softmax(dim=-1)).transpose(0, 1)
        labels_N = batch.labels.values
        lengths = [length - 1 for length in batch.labels.layout.lengths]
        return F.ctc_loss(
            logp_TBV,
            labels_N[labels_N != EOS],
            torch.tensor(hidden.layout.lengths),
            torch.tensor(lengths),
            blank=BLANK,
            reduction="sum",
            zero_infinity=True,
        )

    def _fill_places(self, memory: Ragged) -> Ragged:
        """Return the decoder's output at every position: [N, D]."""
        count = self.config.places
        layout = Layout([count * length for length in memory.layout.lengths], memory.layout.device)
        x_ND = self.unfold(memory.values).view(-1, self.width)
        x_ND = self.dropout(self.target_positions.add(x_ND, layout.positions, layout.longest))
        return Ragged(self._through_decoder(x_ND, layout, memory, causal=False), layout)

    def cannot_write(self, source_lengths: Indices, target_lengths: Indices) -> NDArray[np.bool_]:
        return target_lengths > self.config.places * (source_lengths + 1)

    def write(self, memory: Ragged, options: WriteOptions) -> list[list[Output]]:
        """Return one output per sentence: the likeliest token of each position, without repeats and blanks."""
        hidden = self._fill_places(memory)
        tokens_N, logp_N = self.likeliest(hidden.values, without=EOS)
        tokens, logp = Ragged(tokens_N, hidden.layout).split(), Ragged(logp_N, hidden.layout).split()
        outputs = []
        for number, limit in enumerate(options.limits):
            ids = [token for token in torch.unique_consecutive(tokens[number]).tolist() if token != BLANK]
            outputs.append([Output(ids[:limit], logp[number].mean().item())])
        return outputs
