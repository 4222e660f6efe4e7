"""Batches of sequences within a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.data.columns import Indices


def cut_to_budget(order: Indices, lengths: Sequence[Indices], budget: int) -> list[Indices]:
    """Cut the examples, in this order, into batches of at most `budget` tokens in every column.

    An example longer than the budget makes a batch of its own.
    """
    # Tokens before each example, and after the last one.
    totals = [np.concatenate([[0], one[order].cumsum()]) for one in lengths]
    batches, start = [], 0
    while start < len(order):
        ends = [int(np.searchsorted(one, one[start] + budget, side="right")) - 1 for one in totals]
        end = max(min(ends), start + 1)
        batches.append(order[start:end])
        start = end
    return batches


def batches_by_length(lengths: Sequence[int] | Indices, budget: int) -> list[list[int]]:
    """Return the rows of each batch for inference, longest first. Rows of length 0 are left out."""
    found = np.asarray(lengths, dtype=np.int64)
    rows = np.flatnonzero(found)
    order = rows[np.argsort(-found[rows], kind="stable")]
    return [batch.tolist() for batch in cut_to_budget(order, (found,), budget)]
