"""Mask-predict (Ghazvininejad et al. 2019): a decoder that fills in what is masked, and masks again what it doubts.

The length is predicted first, as its difference to the source's. BOS, which never stands inside a sentence, is the mask.

Shapes: N target tokens, M source tokens, D width, B sentences, C candidates of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard import kernels
from regard.config import between
from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models.base import NonAutoregressive, Output, make_config
from regard.models.encoder_decoder import EncoderDecoder, TransformerConfig
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.linear import Linear
from regard.text.tokenizer import BOS as MASK
from regard.text.tokenizer import EOS


class CmlmConfig(TransformerConfig, frozen=True):
    """The Transformer's, and what can be said of lengths."""

    farthest: int = 64  # most tokens that a target may be shorter or longer than its source

    def check(self) -> None:
        super().check()
        between(self, 0, 10_000, "farthest")


class Cmlm(EncoderDecoder, NonAutoregressive):
    """A Transformer whose decoder sees both ways."""

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
        written = Ragged(labels_N.masked_fill(masked_N, MASK).clamp(min=0), layout)  # dummies have no label
        hidden_ND = self._fill_in(written, memory)
        if kernels.usable(hidden_ND):  # they pass over what has no label
            labels_N = labels_N.masked_fill(~masked_N, NO_LABEL)
        else:
            wanted = masked_N.nonzero()[:, 0]
            hidden_ND, labels_N = hidden_ND.index_select(0, wanted), labels_N[wanted]
        of_tokens = linear_cross_entropy(hidden_ND, self.output_weight, labels_N, smoothing=smoothing)
        return of_tokens + self._loss_of_lengths(batch, memory)

    def _loss_of_lengths(self, batch: Batch, memory: Ragged) -> Tensor:
        labels_N, offsets = batch.labels.values, batch.labels.layout.offsets.long()
        farthest = self.config.farthest
        changes_B = offsets.diff() - self._source_lengths(memory)
        classes_B = changes_B.clamp(-farthest, farthest) + farthest
        real_B = labels_N[offsets[:-1].clamp(max=labels_N.size(0) - 1)] != NO_LABEL
        real_B &= offsets.diff() > 0
        losses_B = F.cross_entropy(self._length_logits(memory).float(), classes_B, reduction="none")
        return losses_B.masked_fill(~real_B, 0.0).sum()

    def _draw_masks(self, layout: Layout) -> Tensor:
        """In each sentence a random number of random tokens, one at least: True where masked, [N]."""
        shares_B = self.noise.uniform(layout.num_sentences, layout.device)
        counts_B = (shares_B * layout.offsets.diff()).long() + 1
        return lowest(self.noise.uniform(layout.total, layout.device), counts_B, layout)

    def _fill_in(self, written: Ragged, memory: Ragged) -> Tensor:
        """What the decoder makes of each token, masked or not: [N, D]."""
        layout = written.layout
        x_ND = self._embed(
            written.values, self.target_embedding, self.target_positions, layout.positions, layout.longest
        )
        return self._through_decoder(x_ND, layout, memory, causal=False)

    def _length_logits(self, memory: Ragged) -> Tensor:
        """For each sentence, of each difference of lengths: [B, 2 * farthest + 1]."""
        x_MD = memory.values.float()
        sums_BD = x_MD.new_zeros(memory.layout.num_sentences, self.width).index_add(0, memory.layout.sentences, x_MD)
        logits: Tensor = self.length(sums_BD / self._source_lengths(memory).clamp(min=1)[:, None])
        return logits

    def _source_lengths(self, memory: Ragged) -> Tensor:
        return memory.layout.offsets.diff().long()

    # Writing

    def write(
        self,
        memory: Ragged,
        *,
        limits: Sequence[int],
        candidates: int,
        iterations: int,
        check: Callable[[], None] = lambda: None,
    ) -> list[list[Output]]:
        lengths_BC = self._likeliest_lengths(memory, limits, candidates)
        count = lengths_BC.size(1)
        layout = Layout(lengths_BC.flatten().tolist(), memory.layout.device)
        memory = repeated(memory, count)
        tokens_N = torch.full((layout.total,), MASK, device=layout.device)
        logp_N = torch.zeros(layout.total, device=layout.device)
        lengths = torch.tensor(layout.lengths, device=layout.device)
        for iteration in range(iterations):
            check()
            doubted = lengths * (iterations - iteration) // iterations  # all of them at first
            masked_N = lowest(logp_N, doubted, layout)
            if iteration and not bool(masked_N.any()):
                break
            hidden_ND = self._fill_in(Ragged(tokens_N.masked_fill(masked_N, MASK), layout), memory)
            best, best_logp = self.likeliest(hidden_ND, without=MASK)
            tokens_N = torch.where(masked_N, best, tokens_N)
            logp_N = torch.where(masked_N, best_logp, logp_N)
        return in_groups(tokens_N, logp_N, layout, count)

    def _likeliest_lengths(self, memory: Ragged, limits: Sequence[int], candidates: int) -> Tensor:
        """Lengths (EOS among them) of as many candidates: [B, C]."""
        logits, farthest = self._length_logits(memory), self.config.farthest
        source = self._source_lengths(memory)
        changes = torch.arange(-farthest, farthest + 1, device=logits.device)
        lengths = source[:, None] + changes
        most = torch.tensor(limits, device=logits.device)[:, None] + 1
        fits = (lengths >= 1) & (lengths <= most)
        fits |= (changes == 0) & ~fits.any(dim=1, keepdim=True)
        chosen = logits.float().masked_fill(~fits, float("-inf")).topk(min(candidates, logits.size(1)), dim=1).indices
        return lengths.gather(1, chosen).clamp(min=1).minimum(most)


def refuse_causal_layers(config: TransformerConfig) -> None:
    """A decoder that sees both ways has no use for convolutions that look back only."""
    if config.feed_forward == "conv":
        raise ConfigError("model.feed_forward is 'conv', which looks back only in a decoder; set relu, gelu or swiglu")


def lowest(values_N: Tensor, counts_B: Tensor, layout: Layout) -> Tensor:
    """True for as many tokens of each sentence as it counts, those with the lowest values: [N]."""
    by_value = values_N.argsort(stable=True)
    order = by_value[layout.sentences[by_value].argsort(stable=True)]  # sentence by sentence, lowest first
    rank_N = torch.empty_like(order)
    rank_N[order] = torch.arange(layout.total, device=order.device) - layout.offsets[layout.sentences]
    return rank_N < counts_B.index_select(0, layout.sentences)


def repeated(memory: Ragged, count: int) -> Ragged:
    """Each sentence so many times, one copy behind the other."""
    if count == 1:
        return memory
    parts = [part for part in memory.split() for _ in range(count)]
    lengths = [length for length in memory.layout.lengths for _ in range(count)]
    return Ragged(torch.cat(parts), Layout(lengths, memory.layout.device))


def in_groups(tokens_N: Tensor, logp_N: Tensor, layout: Layout, count: int) -> list[list[Output]]:
    """The rows, `count` of them a sentence, best first. What follows the first EOS of a row is nobody's."""
    found = []
    for ids, logp in zip(Ragged(tokens_N, layout).split(), Ragged(logp_N, layout).split(), strict=True):
        text = ids.tolist()
        text = text[: text.index(EOS)] if EOS in text else text
        found.append(Output(text, logp.mean().item()))
    return [sorted(found[at : at + count], key=lambda one: -one.score) for at in range(0, len(found), count)]
