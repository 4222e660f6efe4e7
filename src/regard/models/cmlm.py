"""Mask-predict (Ghazvininejad et al. 2019): a decoder that predicts masked tokens, and masks the least likely ones again.

The length is predicted first, as its difference from the source's. BOS, which never occurs inside a sentence, is the mask.

Shapes: N target tokens, M source tokens, D width, B sentences, C candidates per sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard import kernels
from regard.config import between
from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Layout, Ragged
from regard.models.base import NonAutoregressive, Output, WriteOptions, make_config
from regard.models.encoder_decoder import EncoderDecoder, TransformerConfig
from regard.models.non_autoregressive import ranked_outputs, refuse_causal_layers, repeated
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.linear import Linear
from regard.text.tokenizer import BOS as MASK


class CmlmConfig(TransformerConfig, frozen=True):
    """The options of a Transformer, and the range of lengths."""

    farthest: int = 64  # the most tokens by which a target may be shorter or longer than its source

    def check(self) -> None:
        super().check()
        between(self, 0, 10_000, "farthest")


class Cmlm(EncoderDecoder, NonAutoregressive):
    """A Transformer whose decoder attends in both directions."""

    config: CmlmConfig

    def __init__(self, config: CmlmConfig | None = None, *, source_size: int, target_size: int, **options: Any) -> None:
        config = make_config(CmlmConfig, config, options)
        super().__init__(config, source_size=source_size, target_size=target_size)
        refuse_causal_layers(config)
        self.length = Linear(config.width, [2 * config.farthest + 1], bias=True)

    # Training

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        memory, layout, labels_N = self.encode(batch.source), batch.labels.layout, batch.labels.values
        masked_N = self._draw_masks(layout) if self.training else torch.ones_like(labels_N, dtype=torch.bool)
        # Dummy tokens have no label.
        visible = Ragged(labels_N.masked_fill(masked_N, MASK).clamp(min=0), layout)
        hidden_ND = self._fill_in(visible, memory)
        if kernels.usable(hidden_ND):
            # The kernel skips tokens without a label.
            labels_N = labels_N.masked_fill(~masked_N, NO_LABEL)
        else:
            masked = masked_N.nonzero()[:, 0]
            hidden_ND, labels_N = hidden_ND.index_select(0, masked), labels_N[masked]
        token_loss = linear_cross_entropy(
            hidden_ND, self.output_weight, labels_N, smoothing=smoothing, bias_V=self.logit_bias
        )
        return token_loss + self._length_loss(batch, memory)

    def _length_loss(self, batch: Batch, memory: Ragged) -> Tensor:
        labels_N, offsets = batch.labels.values, batch.labels.layout.offsets.long()
        farthest = self.config.farthest
        changes_B = offsets.diff() - self._source_lengths(memory)
        classes_B = changes_B.clamp(-farthest, farthest) + farthest
        real_B = labels_N[offsets[:-1].clamp(max=labels_N.size(0) - 1)] != NO_LABEL
        real_B &= offsets.diff() > 0
        losses_B = F.cross_entropy(self._length_logits(memory).float(), classes_B, reduction="none")
        return losses_B.masked_fill(~real_B, 0.0).sum()

    def _draw_masks(self, layout: Layout) -> Tensor:
        """Mask a random number of random tokens in each sentence, at least one: True where masked, [N]."""
        shares_B = self.noise.uniform(layout.num_sentences, layout.device)
        counts_B = (shares_B * layout.offsets.diff()).long() + 1
        return lowest(self.noise.uniform(layout.total, layout.device), counts_B, layout)

    def _fill_in(self, visible: Ragged, memory: Ragged) -> Tensor:
        """Return the decoder's output for each token, masked or not: [N, D]."""
        layout = visible.layout
        x_ND = self._embed(
            visible.values, self.target_embedding, self.target_positions, layout.positions, layout.longest
        )
        return self._through_decoder(x_ND, layout, memory, causal=False)

    def _length_logits(self, memory: Ragged) -> Tensor:
        """Return the logits of each difference between target and source length: [B, 2 * farthest + 1]."""
        x_MD = memory.values.float()
        sums_BD = x_MD.new_zeros(memory.layout.num_sentences, self.width).index_add(0, memory.layout.sentences, x_MD)
        logits: Tensor = self.length(sums_BD / self._source_lengths(memory).clamp(min=1)[:, None])
        return logits

    def _source_lengths(self, memory: Ragged) -> Tensor:
        return memory.layout.offsets.diff().long()

    # Output

    def write(self, memory: Ragged, options: WriteOptions) -> list[list[Output]]:
        lengths_BC = self._likeliest_lengths(memory, options.limits, options.candidates)
        count, iterations = lengths_BC.size(1), options.iterations
        layout = Layout(lengths_BC.flatten().tolist(), memory.layout.device)
        memory = repeated(memory, count)
        tokens_N = torch.full((layout.total,), MASK, device=layout.device)
        logp_N = torch.zeros(layout.total, device=layout.device)
        lengths = torch.tensor(layout.lengths, device=layout.device)
        for iteration in range(iterations):
            options.check()
            # All tokens at first, then fewer in each pass.
            num_masked = lengths * (iterations - iteration) // iterations
            masked_N = lowest(logp_N, num_masked, layout)
            if iteration and not bool(masked_N.any()):
                break
            hidden_ND = self._fill_in(Ragged(tokens_N.masked_fill(masked_N, MASK), layout), memory)
            best, best_logp = self.likeliest(hidden_ND, without=MASK)
            tokens_N = torch.where(masked_N, best, tokens_N)
            logp_N = torch.where(masked_N, best_logp, logp_N)
        return ranked_outputs(tokens_N, logp_N, layout, count)

    def _likeliest_lengths(self, memory: Ragged, limits: Sequence[int], candidates: int) -> Tensor:
        """Return the likeliest lengths, EOS included, for so many candidates: [B, C]."""
        logits, farthest = self._length_logits(memory), self.config.farthest
        source = self._source_lengths(memory)
        changes = torch.arange(-farthest, farthest + 1, device=logits.device)
        lengths = source[:, None] + changes
        most = torch.tensor(limits, device=logits.device)[:, None] + 1
        fits = (lengths >= 1) & (lengths <= most)
        fits |= (changes == 0) & ~fits.any(dim=1, keepdim=True)
        chosen = logits.float().masked_fill(~fits, float("-inf")).topk(min(candidates, logits.size(1)), dim=1).indices
        return lengths.gather(1, chosen).clamp(min=1).minimum(most)


def lowest(values_N: Tensor, counts_B: Tensor, layout: Layout) -> Tensor:
    """Return True for the tokens with the lowest values, counts_B of each sentence: [N]."""
    by_value = values_N.argsort(stable=True)
    # Sentence by sentence, lowest first.
    order = by_value[layout.sentences[by_value].argsort(stable=True)]
    rank_N = torch.empty_like(order)
    rank_N[order] = torch.arange(layout.total, device=order.device) - layout.offsets[layout.sentences]
    return rank_N < counts_B.index_select(0, layout.sentences)
