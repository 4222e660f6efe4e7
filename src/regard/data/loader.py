"""A batch of training pairs, and batches of like length in training order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regard.data.batch_sampler import BatchSampler, Position
from regard.data.batching import Indices, bucketed_batches, cut_to_budget
from regard.data.column import IdColumn
from regard.data.columns import EncodedPairs
from regard.data.ragged import Layout, Ragged
from regard.text.tokenizer import BOS, EOS

WORTH_HALVING = 512  # target tokens; with as many, threads gain 2 to 5 % (LOG.md, "On a Neoverse N1")


@dataclass(frozen=True)
class Batch:
    """Source sentences ending in EOS; target sentences beginning with BOS, and the tokens each prefix must predict."""

    source: Ragged
    target: Ragged
    labels: torch.Tensor  # the target without BOS, with EOS: [N]
    num_tokens: int  # target tokens, EOS among them: what the loss is divided by; dummy ones behind them do not count
    fertilities: torch.Tensor | None = None  # target tokens that each source token became, where asked for: [M]

    def halves(self) -> list[Batch]:
        """The batch in two, of about as many tokens each; whole where that is not worth it. For one on a CPU."""
        source, target = self.source.layout.lengths, self.target.layout.lengths
        if self.num_tokens < WORTH_HALVING or len(target) < 2:
            return [self]
        so_far = np.add(source, target).cumsum()
        middle = min(int(np.abs(so_far - so_far[-1] / 2).argmin()) + 1, len(target) - 1)
        sources, targets = self.source.cut(middle), self.target.cut(middle)
        labels = self.labels.tensor_split((targets[0].layout.total,))
        fertilities: Sequence[torch.Tensor | None] = (None, None)
        if self.fertilities is not None:
            fertilities = self.fertilities.tensor_split((sources[0].layout.total,))
        tokens = [target.layout.total for target in targets]
        return [Batch(*half) for half in zip(sources, targets, labels, tokens, fertilities, strict=True)]

    def as_lists(self) -> dict[str, list[list[int]]]:
        """The ids of each sentence, for a person to look at."""
        return {"source": self.source.as_lists(), "target": self.target.as_lists()}


def make_batch(
    source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> Batch:
    """The batch of these sentence pairs, given as plain ids."""
    labels = Ragged.from_lists([[*ids, EOS] for ids in target], device)
    return Batch(
        source=Ragged.from_lists([[*ids, EOS] for ids in source], device),
        target=Ragged(_shift_right(labels), labels.layout),
        labels=labels.values,
        num_tokens=labels.layout.total,
    )


def _shift_right(labels: Ragged) -> torch.Tensor:
    """Each sentence moved right by one, BOS in front."""
    shifted = labels.values.roll(1)
    shifted[labels.layout.offsets[:-1].long()] = BOS
    return shifted


class Loader(BatchSampler):
    """Batches of sentences of like length, for what must lay them out as rectangles."""

    def cut(self, source_lengths: Indices, target_lengths: Indices, random: np.random.Generator) -> list[Indices]:
        return bucketed_batches(source_lengths, target_lengths, budget=self.budget, random=random)

    def batches(
        self, position: Position, *, rank: int = 0, ranks: int = 1
    ) -> Generator[tuple[Batch, Position], None, None]:
        """Each batch of a process from here on, with the position after those of all processes."""
        for sides, rows, after in self.own(position, rank=rank, ranks=ranks):
            yield gather(sides, rows), after


def gather(sides: EncodedPairs, rows: Indices) -> Batch:
    """The batch of these pairs, on the CPU."""
    source = _take(sides.source, rows)
    labels = _take(sides.target, rows)
    target, fertilities = Ragged(_shift_right(labels), labels.layout), None
    if sides.fertilities is not None:  # EOS becomes EOS
        fertilities = torch.from_numpy(sides.fertilities.ids_of(rows, end=1).astype(np.int64))
    return Batch(source, target, labels.values, labels.layout.total, fertilities)


def _take(store: IdColumn, rows: Indices) -> Ragged:
    """The sentences of these rows, each with EOS behind it."""
    values = store.ids_of(rows, end=EOS).astype(np.int64)
    return Ragged(torch.from_numpy(values), Layout((store.lengths_of(rows) + 1).tolist()))


def in_order(sides: EncodedPairs, *, budget: int, max_length: int) -> list[Batch]:
    """All pairs up to the length once, those of like length together: for a dev set, where order does not matter."""
    source_lengths, target_lengths = sides.source.lengths + 1, sides.target.lengths + 1
    order = np.lexsort((source_lengths, target_lengths))
    order = order[np.maximum(source_lengths, target_lengths)[order] <= max_length + 1]
    return [gather(sides, rows) for rows in cut_to_budget(order, source_lengths, target_lengths, budget)]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with its tensors on the device."""
    if device.type == "cpu":
        return batch
    source, target = batch.source, batch.target
    return Batch(
        Ragged(source.values.to(device, non_blocking=True), source.layout.to(device)),
        Ragged(target.values.to(device, non_blocking=True), target.layout.to(device)),
        batch.labels.to(device, non_blocking=True),
        batch.num_tokens,
        None if batch.fertilities is None else batch.fertilities.to(device, non_blocking=True),
    )
