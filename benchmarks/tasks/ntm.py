"""A Neural Turing Machine as it is usually written: a module per head, a loop over steps and heads, padded batches.

Shapes: B sequences, T steps, C channels, D width of the controller, L locations, M width of a location, V output bits.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Recipe
from regard.data.batch import NO_LABEL, Batch
from regard.models import model_config
from regard.models.binary import MOST_BITS
from regard.models.ntm import CONSTANT, NtmConfig


class Head(nn.Module):
    """Addresses the memory; `writes` adds what is erased and added."""

    def __init__(self, width: int, location_width: int, *, writes: bool) -> None:
        super().__init__()
        M = location_width
        self.sizes = [M, 1, 1, 3, 1, *([M, M] if writes else [])]
        self.linear = nn.Linear(width, sum(self.sizes))

    def address(self, hidden_BD: Tensor, memory_BLM: Tensor, before_BL: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the weights, [B, L], and what remains of the parameters: erase and add of a head that writes."""
        key, strength, gate, shares, power, *rest = self.linear(hidden_BD).split(self.sizes, dim=-1)
        similarity = F.cosine_similarity(memory_BLM, key.tanh()[:, None], dim=-1, eps=1e-8)
        content = (F.softplus(strength) * similarity).softmax(dim=-1)
        gate = gate.sigmoid()
        mixed = gate * content + (1 - gate) * before_BL
        shares = shares.softmax(dim=-1)
        moved = sum(shares[:, i : i + 1] * mixed.roll(i - 1, dims=-1) for i in range(3))
        raised = (moved + 1e-8) ** (1 + F.softplus(power))
        return raised / raised.sum(dim=-1, keepdim=True), rest


class PlainNtm(nn.Module):
    """A controller and its heads."""

    def __init__(self, config: NtmConfig, *, input_width: int, output_width: int, largest_number: int) -> None:
        super().__init__()
        self.config, self.output_width, self.largest_number = config, output_width, largest_number
        self.input_width = input_width
        D, M, R = config.width, config.location_width, config.read_heads
        C = input_width + bool(largest_number) + R * M
        self.lstm = nn.LSTMCell(C, D) if config.controller == "lstm" else None
        self.feed_forward = nn.Linear(C, D) if config.controller != "lstm" else None
        self.readers = nn.ModuleList(Head(D, M, writes=False) for _ in range(R))
        self.writers = nn.ModuleList(Head(D, M, writes=True) for _ in range(config.write_heads))
        self.output = nn.Linear(D + R * M, output_width)
        self.first_reads = nn.Parameter(torch.zeros(R, M))

    def forward(self, inputs_BTC: Tensor, numbers_BT: Tensor, bits_BTV: Tensor, wanted_BT: Tensor) -> Tensor:
        config, B = self.config, inputs_BTC.size(0)
        memory = inputs_BTC.new_full((B, config.locations, config.location_width), CONSTANT)
        first = F.one_hot(torch.zeros(B, dtype=torch.int64, device=memory.device), config.locations).float()
        reading, writing = [first for _ in self.readers], [first for _ in self.writers]
        reads = [one.tanh().expand(B, -1) for one in self.first_reads]
        state = (memory.new_zeros(B, config.width), memory.new_zeros(B, config.width))
        loss = memory.new_zeros(())
        # `padded` does not know the widths.
        inputs_BTC, bits_BTV = inputs_BTC[..., -self.input_width :], bits_BTV[..., -self.output_width :]
        for t in range(inputs_BTC.size(1)):
            x = [inputs_BTC[:, t], *reads]
            if self.largest_number:
                number = numbers_BT[:, t : t + 1]
                x.append((number / self.largest_number - 0.5) * 12**0.5 * (number > 0))
            if self.lstm is not None:
                state = self.lstm(torch.cat(x, dim=-1), state)
                hidden = state[0]
            else:
                hidden = self.feed_forward(torch.cat(x, dim=-1)).tanh()
            for i, head in enumerate(self.readers):
                reading[i], _ = head.address(hidden, memory, reading[i])
                reads[i] = (reading[i][:, :, None] * memory).sum(dim=1)
            written = memory
            for i, head in enumerate(self.writers):
                writing[i], (erase, add) = head.address(hidden, memory, writing[i])
                where = writing[i][:, :, None]
                written = written * (1 - where * erase.sigmoid()[:, None]) + where * add.tanh()[:, None]
            memory = written
            logits = self.output(torch.cat([hidden, *reads], dim=-1))
            losses = F.binary_cross_entropy_with_logits(logits, bits_BTV[:, t], reduction="none").sum(dim=-1)
            loss = loss + (losses * wanted_BT[:, t]).sum()
        return loss


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the Neural Turing Machine that the recipe describes."""
    _, config = model_config(recipe.model)
    assert isinstance(config, NtmConfig), "the recipe's model is not a Neural Turing Machine"
    return PlainNtm(config, **sizes)


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return inputs and wanted bits, MOST_BITS each, [B, T, bits]; numbers, and whether an output is wanted: [B, T]."""
    mask = batch.source.layout.mask
    ids, labels = batch.source.layout.pad(batch.source.values), batch.labels.layout.pad(batch.labels.values)
    ids, labels = ids.masked_fill(~mask, 0), labels.masked_fill(~mask, NO_LABEL)
    places = torch.arange(MOST_BITS - 1, -1, -1)

    def bits(values: Tensor) -> Tensor:
        return ((values[..., None] >> places) & 1).float()

    return bits(ids), (ids >> MOST_BITS).float(), bits(labels), labels != NO_LABEL
