"""Which tokens would repeat what an output already has (`no_repeat_ngram`, `max_repeats`).

Shapes: R rows, T tokens of each output so far, V columns of the scores.
"""

from __future__ import annotations

from torch import Tensor

from regard.config import SearchOptions
from regard.decoding.ranking import IMPOSSIBLE

LONGEST = 16  # tokens of what is repeated in a loop


def forbids_repetition(options: SearchOptions) -> bool:
    """Whether an option depends on the output so far."""
    return bool(options.no_repeat_ngram or options.max_repeats)


def forbid_repetition(logits_RV: Tensor, output_RT: Tensor, options: SearchOptions) -> None:
    """Make tokens impossible that would repeat n-grams, or continue a loop. `output_RT` are the outputs so far."""
    if options.no_repeat_ngram:
        _forbid_ngrams(logits_RV, output_RT, options.no_repeat_ngram)
    if options.max_repeats:
        _forbid_loops(logits_RV, output_RT, options.max_repeats)


def _forbid_ngrams(logits_RV: Tensor, output_RT: Tensor, size: int) -> None:
    """Forbid the last token of every n-gram that would be there twice."""
    length = output_RT.size(1)
    if length < size:
        return
    windows_RWN = output_RT.unfold(1, size, 1)
    last_RN = output_RT[:, length - size + 1 :]
    same_RW = (windows_RWN[:, :, : size - 1] == last_RN[:, None]).all(dim=2)
    rows, places = same_RW.nonzero().unbind(1)
    logits_RV[rows, windows_RWN[rows, places, size - 1]] = IMPOSSIBLE


def _forbid_loops(logits_RV: Tensor, output_RT: Tensor, repeats: int) -> None:
    """Forbid to begin a run of tokens once more that has come so many times in a row."""
    length = output_RT.size(1)
    for period in range(1, min(LONGEST, length // repeats) + 1):
        last_RT = output_RT[:, length - period * repeats :]
        loops_R = (last_RT[:, period:] == last_RT[:, :-period]).all(dim=1)
        rows = loops_R.nonzero()[:, 0]
        logits_RV[rows, last_RT[rows, 0]] = IMPOSSIBLE
