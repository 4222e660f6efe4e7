"""The non-autoregressive Transformer with fertilities (Gu et al. 2018).

A fertility is the number of target tokens that a source token becomes. Each source token is copied that many times, and the
decoder turns the copies into the target, all at once. In training an aligner gives the fertilities. In use they are
predicted, and a teacher model can choose among the outputs for several guesses. The mask of the paper that keeps a position
from attending to itself is left out.

Shapes: N target tokens, M source tokens, D width, H heads, K head width, L fertilities, B sentences, C candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.config import between
from regard.data.batch import FERTILITIES, NO_LABEL, Batch
from regard.data.ragged import Layout, Ragged
from regard.data.word_alignment import spread_evenly
from regard.models.base import NonAutoregressive, Output, WriteOptions, make_config
from regard.models.encoder_decoder import EncoderDecoder, TransformerConfig, layer_options
from regard.models.non_autoregressive import (
    ranked_outputs,
    refuse_causal_layers,
    refuse_unused_embedding,
    repeated,
)
from regard.nn.attend import AttentionMask
from regard.nn.attention import PositionalAttention
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.dropout import Noise
from regard.nn.layers import Stack, TransformerDecoderLayer, scale_outputs
from regard.nn.linear import Linear
from regard.nn.norms import Residual
from regard.nn.positions import Positions
from regard.text.tokenizer import BOS

GOLDEN = 0.6180339887498949  # its multiples, modulo 1, are spread evenly between 0 and 1


class NatConfig(TransformerConfig, frozen=True):
    """The options of a Transformer, and the number of fertilities."""

    fertilities: int = 50  # different fertilities, 0 included

    def check(self) -> None:
        super().check()
        between(self, 2, 1000, "fertilities")


class NatLayer(TransformerDecoderLayer):
    """A decoder layer with one more attention, whose queries and keys are positions: it helps to order the output."""

    def __init__(self, config: NatConfig, noise: Noise) -> None:
        super().__init__(**layer_options(config), noise=noise)
        self.positional = PositionalAttention(
            config.width, config.heads, dropout=config.attention_dropout, noise=noise, backend=config.attention
        )
        self.around_positional = Residual(
            config.width, kind=config.norm, order=config.norm_order, dropout=config.dropout, noise=noise
        )
        scale_outputs(config.sublayer_gain, self.positional.output)

    def forward(  # type: ignore[override]
        self,
        x_ND: Tensor,
        memory_MD: Tensor,
        own: AttentionMask,
        across: AttentionMask,
        places_ND: Tensor,
    ) -> Tensor:
        x_ND = self.around_attention(x_ND, lambda x: self.attention(x, own))
        x_ND = self.around_positional(x_ND, lambda x: self.positional(x, places_ND, own))
        x_ND = self.around_cross_attention(x_ND, lambda x: self.cross_attention(x, memory_MD, across))
        return self.around_feed_forward(x_ND, lambda x: self.feed_forward(x, own.queries, with_input=True))


class Nat(EncoderDecoder, NonAutoregressive):
    """A Transformer whose decoder reads copies of the source."""

    config: NatConfig
    extras = (FERTILITIES,)

    def __init__(self, config: NatConfig | None = None, *, source_size: int, target_size: int, **options: Any) -> None:
        config = make_config(NatConfig, config, options)
        refuse_unused_embedding(config)
        super().__init__(config, source_size=source_size, target_size=target_size)
        refuse_causal_layers(config)
        self.decoder: Stack[NatLayer] = Stack(NatLayer(config, self.noise) for _ in self.decoder)  # type: ignore[assignment]
        self.places = Positions("sinusoid", config.width, max_positions=config.max_positions)
        self.fertility = Linear(config.width, [config.fertilities], bias=True)

    # Training

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        memory, layout = self.encode(batch.source), batch.labels.layout
        if FERTILITIES in batch.extras:
            fertilities_M = batch.extras[FERTILITIES].values
        else:
            fertilities_M = spread_evenly(batch.source.layout, layout)
        hidden_ND = self._rewrite(_copies(batch.source.values, fertilities_M, layout.total), layout, memory)
        token_loss = linear_cross_entropy(
            hidden_ND, self.output_weight, batch.labels.values, smoothing=smoothing, bias_V=self.logit_bias
        )
        logits_ML = self.fertility(memory.values).float()
        classes_M = fertilities_M.long().clamp(max=self.config.fertilities - 1)
        return token_loss + F.cross_entropy(logits_ML, classes_M, reduction="sum", ignore_index=NO_LABEL)

    def _rewrite(self, copies_N: Tensor, layout: Layout, memory: Ragged) -> Tensor:
        """Return the decoder's output for the copied source tokens: [N, D]."""
        x_ND = self._embed(copies_N, self.source_embedding, self.target_positions, layout.positions, layout.longest)
        table = self.places.constants(layout.longest)
        assert table is not None
        places_ND = table.index_select(0, layout.positions).to(x_ND.dtype)
        return self._through_decoder(x_ND, layout, memory, causal=False, also=[places_ND])

    # Output

    def encode(self, source: Ragged) -> Copied:
        encoded = super().encode(source)
        return Copied(encoded.values, encoded.layout, source.values)

    def write(self, memory: Copied, options: WriteOptions) -> list[list[Output]]:
        candidates = options.candidates
        source, ids = repeated(memory, candidates), repeated(Ragged(memory.ids, memory.layout), candidates)
        guesses = self._guess_fertilities(memory, candidates)
        parts = guesses.split(list(memory.layout.lengths), dim=1)
        fertilities = Ragged(torch.cat([part.flatten() for part in parts]), source.layout)
        most = torch.tensor(options.limits, device=memory.values.device).repeat_interleave(candidates) + 1
        fertilities_M = within(fertilities, most)
        lengths = torch.zeros_like(most).index_add(0, source.layout.sentences, fertilities_M)
        layout = Layout(lengths.tolist(), memory.layout.device)
        hidden_ND = self._rewrite(_copies(ids.values, fertilities_M, layout.total), layout, source)
        tokens_N, logp_N = self.likeliest(hidden_ND, without=BOS)
        return ranked_outputs(tokens_N, logp_N, layout, candidates)

    def _guess_fertilities(self, memory: Ragged, candidates: int) -> Tensor:
        """Return the likeliest fertilities, then their means, then draws, which are the same each time: [C, M]."""
        p_ML = self.fertility(memory.values).float().softmax(dim=-1)
        means = (p_ML * torch.arange(p_ML.size(1), device=p_ML.device)).sum(dim=-1).round().long()
        guesses = [p_ML.argmax(dim=-1), means][:candidates]
        if candidates > 2:
            spots = torch.rand(candidates - 2, 1, generator=torch.Generator().manual_seed(0)).to(p_ML.device)
            # A draw depends on the position alone, and not on the rest of the batch.
            spots = (spots + memory.layout.positions * GOLDEN) % 1.0
            drawn = torch.searchsorted(p_ML.cumsum(dim=-1), spots.t().contiguous()).clamp(max=p_ML.size(1) - 1)
            guesses += list(drawn.t())
        return torch.stack(guesses)


def _copies(ids_M: Tensor, fertilities_M: Tensor, count: int) -> Tensor:
    """Return each id as often as its fertility says, `count` ids in all: [N]. Dummy tokens get arbitrary ids."""
    ends_M = fertilities_M.clamp(min=0).cumsum(0)
    which_N = torch.searchsorted(ends_M, torch.arange(count, device=ids_M.device), right=True)
    return ids_M.index_select(0, which_N.clamp(max=ids_M.size(0) - 1))


@dataclass(frozen=True)
class Copied(Ragged):
    """The encoder's output, and the source ids to be copied."""

    ids: Tensor


def within(fertilities: Ragged, most_B: Tensor) -> Tensor:
    """Return the fertilities, lowered so that no sentence has more than most_B copies: [M].

    A sentence without copies gets one, of its last token.
    """
    f_M, layout = fertilities.values, fertilities.layout
    last = layout.offsets[1:].long() - 1
    empty_B = torch.zeros_like(most_B).index_add(0, layout.sentences, f_M) == 0
    f_M = f_M.index_add(0, last, empty_B.to(f_M.dtype))
    upto_M = f_M.cumsum(0)
    begins_B = upto_M[last] - torch.zeros_like(most_B).index_add(0, layout.sentences, f_M)
    before_M = upto_M - f_M - begins_B.index_select(0, layout.sentences)
    return torch.minimum(f_M, (most_B.index_select(0, layout.sentences) - before_M).clamp(min=0))
