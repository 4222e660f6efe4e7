"""Batches of one fixed shape: both sides filled to a token budget with whole sentences, a few dummy tokens at the end.

Nothing is padded inside a batch, so sentences need not be of like length; they are taken in random order, and near the end
of a batch the next ones that still fit are preferred. A batch is one row of int32 numbers: one copy takes it to a device.

Shapes: S source tokens, T target tokens, B sentences of a batch, the dummy one and empty ones among them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import Indices
from regard.data.lengths import Kept
from regard.data.loader import Batch
from regard.data.order import Order, Position
from regard.data.ragged import FixedLayout, Ragged
from regard.data.sides import Encoded, Sides
from regard.data.store import IdStore
from regard.errors import ConfigError, DataError
from regard.text.tokenizer import BOS, EOS

CHOICE = 4  # sentences of which the next one is chosen, so that both sides fill alike
LOOK_AHEAD = 128  # sentences tried for the room that is left
NO_LABEL = -1  # of dummy tokens


@dataclass(frozen=True)
class Shape:
    """What all batches of a run have in common."""

    source_tokens: int  # S
    target_tokens: int  # T
    sentences: int  # B
    longest: int  # tokens of a sentence, EOS among them
    fertilities: bool = False  # whether each source token has one

    @property
    def parts(self) -> list[int]:
        """Lengths of a row's parts: source ids, positions, sentences; target ids, labels, positions, sentences; ..."""
        S, T = self.source_tokens, self.target_tokens
        told = S if self.fertilities else 0
        # ... both offsets, fertilities, real target tokens
        return [S, S, S, T, T, T, T, self.sentences + 1, self.sentences + 1, told, 1]


def shape_for(kept: Kept, budget: int, *, fertilities: bool = False) -> Shape:
    """The shape for these sentences (EOS counted in), with `budget` tokens on the larger side."""
    longest = kept.longest
    if longest > budget:
        raise ConfigError(
            f"train.tokens is {budget} but a sentence has {longest} tokens; raise it, or lower data.max_length"
        )
    ratio = kept.source_tokens / kept.target_tokens
    source, target = (budget, round(budget / ratio)) if ratio > 1 else (round(budget * ratio), budget)
    source, target = (max(-(-tokens // 64) * 64, longest) for tokens in (source, target))
    return Shape(source, target, int(1.25 * target / (kept.target_tokens / kept.pairs)) + 9, longest, fertilities)


def fill(
    source_lengths: Indices,
    target_lengths: Indices,
    shape: Shape,
    random: np.random.Generator,
    *,
    all_of_them: bool = False,
) -> list[Indices]:
    """All sentences in random order, in batches that fit the shape; what would leave the last one half empty is left out.

    With `all_of_them` nothing is.
    """
    order = random.permutation(len(source_lengths))
    waiting = deque(zip(order.tolist(), source_lengths[order].tolist(), target_lengths[order].tolist(), strict=True))
    batches: list[Indices] = []
    S, T = shape.source_tokens, shape.target_tokens
    while waiting:
        chosen: list[int] = []
        passed: list[tuple[int, int, int]] = []  # that did not fit any more
        next_few: list[tuple[int, int, int]] = []
        room_s, room_t = S, T
        while len(passed) < LOOK_AHEAD and len(chosen) < shape.sentences - 1:
            while waiting and len(next_few) < CHOICE:
                next_few.append(waiting.popleft())
            fitting = [one for one in next_few if one[1] <= room_s and one[2] <= room_t]
            if not next_few:
                break
            if not fitting:
                passed += next_few
                next_few = []
                continue
            # the one after which both sides are filled most alike
            best = min(fitting, key=lambda one: abs((room_s - one[1]) * T - (room_t - one[2]) * S))
            next_few.remove(best)
            chosen.append(best[0])
            room_s, room_t = room_s - best[1], room_t - best[2]
        passed += next_few
        waiting.extendleft(reversed(passed))
        full = bool(passed) or len(chosen) == shape.sentences - 1
        if full or all_of_them or not batches:
            batches.append(np.array(chosen, dtype=np.int64))
    return batches


def write_row(row: NDArray[np.int32], sides: Sides, chosen: Indices, shape: Shape) -> None:
    """Writes the batch of these pairs into a row."""
    parts = np.split(row, np.cumsum(shape.parts)[:-1])
    _write_side(parts[0], parts[1], parts[2], parts[7], sides.source.lengths_of(chosen), EOS)
    _write_side(parts[4], parts[5], parts[6], parts[8], sides.target.lengths_of(chosen), NO_LABEL)
    _put_ids(parts[0], sides.source, chosen)
    real = _put_ids(parts[4], sides.target, chosen)
    labels, inputs = parts[4], parts[3]
    inputs[1:] = labels[:-1]
    inputs[parts[8][: len(chosen)]] = BOS
    inputs[real:] = EOS
    if shape.fertilities:
        assert sides.fertilities is not None
        told = sides.fertilities.ids_of(chosen, end=1)  # EOS becomes EOS
        parts[9][: len(told)], parts[9][len(told) :] = told, NO_LABEL
    parts[10][0] = real


def _write_side(
    ids: NDArray[np.int32], positions: NDArray[np.int32], sentences: NDArray[np.int32], offsets: NDArray[np.int32],
    lengths: Indices, dummy: int,
) -> None:  # fmt: skip
    """Everything of one side but the real ids: the dummies behind them make a sentence of their own, at position 0."""
    ends = (lengths + 1).cumsum()
    real = int(ends[-1])
    offsets[0], offsets[1 : len(ends) + 1], offsets[len(ends) + 1 :] = 0, ends, len(ids)
    sentences[:real] = np.repeat(np.arange(len(ends), dtype=np.int32), lengths + 1)
    sentences[real:] = len(ends)
    positions[:real] = np.arange(real, dtype=np.int32) - offsets[sentences[:real]]
    positions[real:] = 0
    ids[real:] = dummy


def _put_ids(ids: NDArray[np.int32], store: IdStore, chosen: Indices) -> int:
    """The ids of these sentences, each with EOS behind it; how many there are."""
    values = store.ids_of(chosen, end=EOS)
    ids[: len(values)] = values
    return len(values)


@dataclass(frozen=True)
class PackedBatch:
    """A batch as one row, on any device."""

    row: Tensor
    shape: Shape
    num_tokens: int

    def as_lists(self) -> dict[str, list[list[int]]]:
        """The ids of each sentence, dummies among them, for a person to look at."""
        return self.unpack().as_lists()

    def unpack(self) -> Batch:
        """The batch itself: views of the row."""
        return unpack(self.row, self.shape, self.num_tokens)


def unpack(row: Tensor, shape: Shape, num_tokens: int) -> Batch:
    """The batch that a row holds."""
    source, s_at, s_of, target, labels, t_at, t_of, s_offsets, t_offsets, told, _ = row.split(shape.parts)
    return Batch(
        Ragged(source, FixedLayout(s_at, s_of, s_offsets, longest=shape.longest)),
        Ragged(target, FixedLayout(t_at, t_of, t_offsets, longest=shape.longest)),
        labels,
        num_tokens,
        told if shape.fertilities else None,
    )


class PackedLoader(Order):
    """Batches of one fixed shape, written in blocks of rows."""

    BLOCK = 2**22  # numbers of a block of rows

    def __init__(self, sides_of: Callable[[int], Encoded], *, budget: int, max_length: int, seed: int) -> None:
        super().__init__(sides_of, budget=budget, max_length=max_length, seed=seed)
        sides = sides_of(0)
        kept = sides.upto(max_length)
        if not kept.pairs:
            raise DataError(f"every pair has a side of more than {max_length} tokens; raise data.max_length")
        source, target = kept.source_tokens + kept.pairs, kept.target_tokens + kept.pairs  # EOS
        told = isinstance(sides, Sides) and sides.fertilities is not None
        self.shape = shape_for(Kept(kept.pairs, source, target, kept.longest + 1), budget, fertilities=told)

    def cut(self, source_lengths: Indices, target_lengths: Indices, random: np.random.Generator) -> list[Indices]:
        fits = np.flatnonzero(np.maximum(source_lengths, target_lengths) <= self.shape.longest)
        return [fits[batch] for batch in fill(source_lengths[fits], target_lengths[fits], self.shape, random)]

    def batches(self, position: Position, *, rank: int = 0, ranks: int = 1) -> Iterator[tuple[PackedBatch, Position]]:
        """Each batch of a process from here on, with the position after those of all processes."""
        for rows, positions in self.rows(position, rank=rank, ranks=ranks):
            for row, after in zip(rows, positions, strict=True):
                yield PackedBatch(row, self.shape, int(row[-1])), after

    def rows(self, position: Position, *, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, list[Position]]]:
        """Rows of many batches at a time, [rows, numbers], and the position after each."""
        width = sum(self.shape.parts)
        most = max(1, self.BLOCK // width)
        chosen = []
        for one in self.own(position, rank=rank, ranks=ranks):
            chosen.append(one)
            if len(chosen) < most and one[2].batch > 0:  # nothing is read of a block of pairs before its time
                continue
            block = np.empty((len(chosen), width), dtype=np.int32)
            for row, (sides, pairs, _) in zip(block, chosen, strict=True):
                write_row(row, sides, pairs, self.shape)
            yield torch.from_numpy(block), [after for _, _, after in chosen]
            chosen = []
