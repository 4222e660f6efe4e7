"""A batch of training examples, the same for every task; and how sequence pairs become one.

This is the only place where BOS and EOS are added for training: EOS behind each sequence, BOS in front of what the decoder
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from regard.data.columns import Column, Columns, Indices, pair_columns
from regard.data.ragged import Layout, Ragged
from regard.text.tokenizer import BOS, EOS

WORTH_HALVING = 512  # labels; with as many, threads gain 2 to 5 % (LOG.md, "On a Neoverse N1")
NO_LABEL = -1  # of tokens that the loss leaves out
FERTILITIES = "fertilities"
# Lengths of the sentences of each document or story. The source has one sequence per sentence of a document, in the same
# order, or one per story.
SENTENCES = "sentences"
ADDED = (1, 1)  # EOS, in either column


@dataclass(frozen=True)
class Batch:
    """Input sequences, the sequences a decoder reads, and the labels to predict.

    In translation `source` ends in EOS, `target` begins with BOS, and `labels` are the target shifted left by one. A tagger
    has one label per source token and no target; a classifier one label per sequence.
    """

    source: Ragged
    target: Ragged | None
    labels: Ragged
    num_tokens: int  # labels that count: the loss is divided by their number
    extras: Mapping[str, Ragged] = field(default_factory=dict)  # what else a model asks for (`Model.extras`)

    def halves(self) -> list[Batch]:
        """Return two batches of about equally many tokens, or this one if halving does not pay. For CPU batches."""
        outputs = self.labels if self.target is None else self.target
        source, target = self.source.layout.lengths, outputs.layout.lengths
        if self.num_tokens < WORTH_HALVING or len(target) < 2 or len(source) != len(target):
            # Documents, whose source has several sequences each, are few.
            return [self]
        so_far = np.add(source, target).cumsum()
        middle = min(int(np.abs(so_far - so_far[-1] / 2).argmin()) + 1, len(target) - 1)
        sources, labels = self.source.cut(middle), self.labels.cut(middle)
        targets = (None, None) if self.target is None else self.target.cut(middle)
        extras = {name: extra.cut(middle) for name, extra in self.extras.items()}
        return [
            Batch(
                sources[half],
                targets[half],
                labels[half],
                num_labels(labels[half]),
                {name: extra[half] for name, extra in extras.items()},
            )
            for half in (0, 1)
        ]

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with its tensors on the device."""
        device = torch.device(device)
        if device.type == self.source.values.device.type == "cpu":
            return self
        layouts: dict[int, Layout] = {}

        def moved(one: Ragged) -> Ragged:
            # A layout that several sequences share is moved once.
            if id(one.layout) not in layouts:
                layouts[id(one.layout)] = one.layout.to(device)
            return Ragged(one.values.to(device, non_blocking=True), layouts[id(one.layout)])

        return Batch(
            moved(self.source),
            None if self.target is None else moved(self.target),
            moved(self.labels),
            self.num_tokens,
            {name: moved(extra) for name, extra in self.extras.items()},
        )

    def as_lists(self) -> dict[str, list[list[int]]]:
        """Return the values of each example, for a person to look at."""
        sequences = {"source": self.source, "target": self.labels if self.target is None else self.target}
        return {name: one.as_lists() for name, one in sequences.items()}


def num_labels(labels: Ragged) -> int:
    """Return the number of labels that count: all but NO_LABEL. Numbers, as in regression, all count."""
    return labels.layout.total if labels.values.is_floating_point() else int((labels.values != NO_LABEL).sum())


Collate = Callable[[Columns, Indices], Batch]  # how a task makes a batch of some rows of its columns


def collate_pairs(columns: Columns, rows: Indices) -> Batch:
    """Return the batch of these sequence pairs, on the CPU."""
    source, labels = gather_rows(columns["source"], rows, end=EOS), gather_rows(columns["target"], rows, end=EOS)
    extras = {}
    if FERTILITIES in columns:
        # The fertility of EOS is 1.
        values = columns[FERTILITIES].gather(rows, end=1).astype(np.int64)
        extras[FERTILITIES] = Ragged(torch.from_numpy(values), source.layout)
    return Batch(source, shift_right(labels, BOS), labels, labels.layout.total, extras)


def gather_rows(column: Column, rows: Indices, *, end: int | None = None) -> Ragged:
    """Return these examples of a column, each followed by `end` if given. Integers become int64."""
    values = column.gather(rows, end=end)
    if values.dtype.kind in "iu":
        values = values.astype(np.int64)
    return Ragged(torch.from_numpy(values), Layout((column.lengths_of(rows) + (end is not None)).tolist()))


def shift_right(labels: Ragged, first: int) -> Ragged:
    """Return each sequence moved right by one token, with `first` in front."""
    shifted = labels.values.roll(1)
    shifted[labels.layout.offsets[:-1].long()] = first
    return Ragged(shifted, labels.layout)


def make_batch(
    source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> Batch:
    """Return the batch of these sequence pairs, given as ids without BOS and EOS."""
    columns = pair_columns(Column.from_lists(source), Column.from_lists(target))
    return collate_pairs(columns, np.arange(len(source))).to(torch.device(device))
