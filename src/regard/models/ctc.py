"""Translation by connectionist temporal classification (Libovický and Helcl 2018): more places than tokens, some left blank.

Each source token becomes a few places; the decoder says at every place a token or nothing, and a token said twice running
is one. The loss adds up all ways to say the target. Nothing has to be known of lengths. BOS is the blank.

Shapes: N places, M source tokens, D width, V vocabulary, B sentences, T places of the longest sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.config import between
from regard.data.batch import Batch
from regard.data.batching import Indices
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models.base import NonAutoregressive, Output, make_config
from regard.models.cmlm import refuse_causal_layers
from regard.models.encoder_decoder import EncoderDecoder, TransformerConfig
from regard.nn.linear import Linear
from regard.text.tokenizer import BOS as BLANK
from regard.text.tokenizer import EOS as UNSAYABLE


class CtcConfig(TransformerConfig, frozen=True):
    """The Transformer's, and how many places there are."""

    places: int = 3  # of a source token

    def check(self) -> None:
        super().check()
        between(self, 1, 16, "places")


class Ctc(EncoderDecoder, NonAutoregressive):
    """A Transformer whose decoder reads the encoder's output, each of its vectors a few times."""

    config: CtcConfig
    static_shapes = False  # its loss wants lengths on the host

    def __init__(self, config: CtcConfig | None = None, *, source_size: int, target_size: int, **options: Any) -> None:
        config = make_config(CtcConfig, config, options)
        if config.tie == "none":
            raise ConfigError("model.tie is 'none', but this decoder reads no target words; set model.tie=target")
        super().__init__(config, source_size=source_size, target_size=target_size)
        refuse_causal_layers(config)
        self.unfold = Linear(config.width, [config.width] * config.places, bias=True)
        if self.max_length is not None:
            self.max_length //= config.places

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Without smoothing: what the blank gets is the model's own choice. A target with too few places costs nothing."""
        hidden = self._fill_places(self.encode(batch.source))
        said = Ragged(self.project(hidden.values), hidden.layout)
        logp_TBV = said.layout.pad(said.values.float().log_softmax(dim=-1)).transpose(0, 1)
        labels_N = batch.labels.values
        lengths = [length - 1 for length in batch.labels.layout.lengths]
        return F.ctc_loss(
            logp_TBV,
            labels_N[labels_N != UNSAYABLE],
            torch.tensor(said.layout.lengths),
            torch.tensor(lengths),
            blank=BLANK,
            reduction="sum",
            zero_infinity=True,
        )

    def _fill_places(self, memory: Ragged) -> Ragged:
        """What the decoder makes of every place: [N, D]."""
        count = self.config.places
        layout = Layout([count * length for length in memory.layout.lengths], memory.layout.device)
        x_ND = self.unfold(memory.values).view(-1, self.width)
        x_ND = self.dropout(self.target_positions.add(x_ND, layout.positions, layout.longest))
        return Ragged(self._through_decoder(x_ND, layout, memory, causal=False), layout)

    def cannot_write(self, source_lengths: Indices, target_lengths: Indices) -> NDArray[np.bool_]:
        return target_lengths > self.config.places * (source_lengths + 1)

    def write(
        self,
        memory: Ragged,
        *,
        limits: Sequence[int],
        candidates: int,
        iterations: int,
        check: Callable[[], None] = lambda: None,
    ) -> list[list[Output]]:
        """One a sentence: the likeliest token of each place, repeats and blanks left out."""
        places = self._fill_places(memory)
        tokens_N, logp_N = self.likeliest(places.values, without=UNSAYABLE)
        found = []
        for ids, logp, most in zip(
            Ragged(tokens_N, places.layout).split(), Ragged(logp_N, places.layout).split(), limits, strict=True
        ):
            text = [token for token in torch.unique_consecutive(ids).tolist() if token != BLANK]
            found.append([Output(text[:most], logp.mean().item())])
        return found
