"""How well candidates agree with each other, by chrF or BLEU: the utilities of minimum-Bayes-risk decoding.

Both metrics count the n-grams that a candidate shares with another one, each at most as often as it is in both. The k-th
occurrence of an n-gram in a candidate is a column of its own here, so that a product of 0-1 matrices counts them for all
pairs of candidates at once. The scores are those of sacreBLEU.

Shapes: U distinct candidates, O orders of n-grams, T tokens of all candidates, C columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]
Ids = NDArray[np.int64]

CHRF_ORDER, CHRF_BETA = 6, 2
BLEU_ORDER = 4
MOST_ENTRIES = 2**24  # of a matrix of columns in memory


def expected_utilities(candidates: Sequence[str], metric: str) -> list[float]:
    """Return the mean score of each candidate with all candidates as references, from 0 to 100.

    Equal candidates count as often as they occur. The order of the candidates changes nothing.
    """
    distinct, places, counts = np.unique(np.array(candidates, dtype=object), return_inverse=True, return_counts=True)
    utilities_UU = UTILITIES[metric](distinct.tolist())
    expected_U = utilities_UU @ counts / len(candidates)
    return [float(expected_U[place]) for place in places]


def chrf_utilities(texts: Sequence[str]) -> Counts:
    """Return chrF2 of each text with each text as its reference: [U, U]."""
    matches_OUU, counts_OU = shared_ngrams([_code_points(text) for text in texts], CHRF_ORDER)
    present_OUU = (counts_OU[:, :, None] > 0) & (counts_OU[:, None] > 0)
    orders_UU = np.maximum(present_OUU.sum(axis=0), 1)
    counts_OU = np.maximum(counts_OU, 1)
    precision_UU = (matches_OUU / counts_OU[:, :, None]).sum(axis=0) / orders_UU
    recall_UU = (matches_OUU / counts_OU[:, None]).sum(axis=0) / orders_UU
    weighted_UU = CHRF_BETA**2 * precision_UU + recall_UU
    score_UU = (1 + CHRF_BETA**2) * precision_UU * recall_UU / np.where(weighted_UU == 0, 1, weighted_UU)
    return 100 * score_UU


def bleu_utilities(texts: Sequence[str]) -> Counts:
    """Return sentence BLEU of each text with each text as its reference: [U, U].

    Tokens are those of "13a". Precisions of zero are smoothed exponentially, and orders that a text is too short for do not
    count, as in sacreBLEU's `sentence_bleu`.
    """
    tokenize = _bleu_tokenizer()
    numbers: dict[str, int] = {}
    sequences = [[numbers.setdefault(one, len(numbers)) for one in tokenize(text.rstrip()).split()] for text in texts]
    matches_OUU, counts_OU = shared_ngrams([np.array(one, dtype=np.int64) for one in sequences], BLEU_ORDER)
    counts_OU1 = counts_OU[:, :, None]
    counted_OUU = np.broadcast_to(counts_OU1 > 0, matches_OUU.shape)
    missing_OUU = counted_OUU & (matches_OUU == 0)
    # The first order without a match counts as half a match, the next one as a quarter, and so on.
    smoothed_OUU = np.where(missing_OUU, 0.5 ** missing_OUU.cumsum(axis=0), np.maximum(matches_OUU, 1))
    logs_OUU = np.where(counted_OUU, np.log(smoothed_OUU / np.maximum(counts_OU1, 1)), 0)
    mean_UU = logs_OUU.sum(axis=0) / np.maximum(counted_OUU.sum(axis=0), 1)
    length_U = counts_OU[0]
    shorter_UU = np.minimum(0, 1 - length_U[None] / np.maximum(length_U[:, None], 1))
    return 100 * np.where(matches_OUU.any(axis=0), np.exp(mean_UU + shorter_UU), 0)


UTILITIES: Mapping[str, Callable[[Sequence[str]], Counts]] = {"chrf": chrf_utilities, "bleu": bleu_utilities}


@cache
def _bleu_tokenizer() -> Callable[[str], str]:
    # Importing sacreBLEU takes a tenth of a second, and most searches do not need it.
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenizer: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]
    return tokenizer


def _code_points(text: str) -> Ids:
    """Return the characters of a text, without spaces."""
    # Not UTF-8: a text may have half of a surrogate pair.
    return np.fromiter(map(ord, "".join(text.split())), dtype=np.int64)


def shared_ngrams(sequences: Sequence[Ids], order: int) -> tuple[Counts, Counts]:
    """Return how many n-grams each two sequences share, [O, U, U], and how many each has, [O, U], for n up to `order`."""
    lengths_U = np.array([len(one) for one in sequences], dtype=np.int64)
    counts_OU = np.maximum(lengths_U - np.arange(order)[:, None], 0).astype(np.float64)
    matches_OUU = np.zeros((order, len(sequences), len(sequences)))
    owners_T = np.repeat(np.arange(len(sequences)), lengths_U)
    # How many tokens of its sequence begin at each token.
    left_T = np.repeat(lengths_U.cumsum(), lengths_U) - np.arange(lengths_U.sum())
    tokens_T = np.unique(np.concatenate(sequences), return_inverse=True)[1]
    ngrams, starts = tokens_T, np.arange(len(tokens_T))
    for n in range(order):
        kept = left_T[starts] > n
        ngrams, starts = ngrams[kept], starts[kept]
        if n:
            longer = ngrams * (tokens_T.max(initial=0) + 1) + tokens_T[starts + n]
            ngrams = np.unique(longer, return_inverse=True)[1]
        matches_OUU[n] = _matches(ngrams, owners_T[starts], len(sequences))
        np.fill_diagonal(matches_OUU[n], counts_OU[n])
    return matches_OUU, counts_OU


def _matches(ngrams: Ids, owners: Ids, sequences: int) -> Counts:
    """Return how many n-grams each two sequences share, except with themselves: [U, U]."""
    order = np.lexsort((owners, ngrams))
    ngrams, owners = ngrams[order], owners[order]
    # Which occurrence of the n-gram in its sequence each is.
    begins = np.ones(len(ngrams), dtype=np.bool_)
    begins[1:] = (ngrams[1:] != ngrams[:-1]) | (owners[1:] != owners[:-1])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(ngrams)), 0))
    occurrence = np.arange(len(ngrams)) - first
    keys = ngrams * (occurrence.max(initial=0) + 1) + occurrence
    _, columns, used = np.unique(keys, return_inverse=True, return_counts=True)
    several = used > 1  # what only one sequence has is shared with none
    number = several.cumsum() - 1
    kept = several[columns]
    columns, owners = number[columns[kept]], owners[kept]
    total = np.zeros((sequences, sequences))
    width, num_columns = max(1, MOST_ENTRIES // sequences), int(several.sum())
    for begin in range(0, num_columns, width):
        inside = (columns >= begin) & (columns < begin + width)
        # Counts below 2^24 are exact in float32.
        has_UC = np.zeros((sequences, min(width, num_columns - begin)), dtype=np.float32)
        has_UC[owners[inside], columns[inside] - begin] = 1
        total += has_UC @ has_UC.T
    return total
