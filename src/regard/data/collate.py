"""How sequence pairs become a batch: EOS behind each sequence, BOS in front of what the decoder reads.

This is the only place where BOS and EOS are added for training. Both loaders use it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from regard.data.batch import Batch
from regard.data.batching import Indices
from regard.data.columns import Column, Columns, pair_columns
from regard.data.ragged import Layout, Ragged
from regard.text.tokenizer import BOS, EOS

FERTILITIES = "fertilities"
ADDED = (1, 1)  # EOS, in either column


def collate_pairs(columns: Columns, rows: Indices) -> Batch:
    """Return the batch of these sequence pairs, on the CPU."""
    source, labels = gathered(columns["source"], rows, end=EOS), gathered(columns["target"], rows, end=EOS)
    extras = {}
    if FERTILITIES in columns:
        # EOS becomes EOS.
        values = columns[FERTILITIES].gather(rows, end=1).astype(np.int64)
        extras[FERTILITIES] = Ragged(torch.from_numpy(values), source.layout)
    return Batch(source, shift_right(labels, BOS), labels, labels.layout.total, extras)


def gathered(column: Column, rows: Indices, *, end: int | None = None) -> Ragged:
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
