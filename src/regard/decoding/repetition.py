"""Which tokens would repeat what an output already has (`no_repeat_ngram`, `max_repeats`).

Shapes: R rows, T tokens of each output so far, W n-grams of N tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from regard.config import SearchOptions
from regard.decoding.step_model import Integers

LONGEST = 16  # tokens of what is repeated in a loop


def forbids_repetition(options: SearchOptions) -> bool:
    """Whether an option depends on the output so far."""
    return bool(options.no_repeat_ngram or options.max_repeats)


def repetitions(output_RT: Integers, options: SearchOptions) -> tuple[Integers, Integers]:
    """Return the rows and the tokens that would repeat n-grams there, or continue a loop."""
    found = [_ngrams(output_RT, options.no_repeat_ngram)] if options.no_repeat_ngram else []
    found += _loops(output_RT, options.max_repeats) if options.max_repeats else []
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    rows, tokens = zip(*found, strict=True)
    return np.concatenate(rows), np.concatenate(tokens)


def _ngrams(output_RT: Integers, size: int) -> tuple[Integers, Integers]:
    """Return the last token of every n-gram that would be there twice."""
    length = output_RT.shape[1]
    if length < size:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    windows_RWN = sliding_window_view(output_RT, size, axis=1)
    last_RN = output_RT[:, length - size + 1 :]
    same_RW = (windows_RWN[:, :, : size - 1] == last_RN[:, None]).all(axis=2)
    rows, places = same_RW.nonzero()
    return rows, windows_RWN[rows, places, size - 1]


def _loops(output_RT: Integers, repeats: int) -> list[tuple[Integers, Integers]]:
    """Return the tokens that begin a run of tokens once more that has come so many times in a row."""
    length, found = output_RT.shape[1], []
    for period in range(1, min(LONGEST, length // repeats) + 1):
        last_RT = output_RT[:, length - period * repeats :]
        (rows,) = (last_RT[:, period:] == last_RT[:, :-period]).all(axis=1).nonzero()
        found.append((rows, last_RT[rows, 0]))
    return found
