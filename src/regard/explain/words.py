"""Pieces joined to words, and weights between tokens made weights between words.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.explain.trace_types import Weights
from regard.text.symbols import EOS
from regard.text.tokenizer import Tokenizer

SPACE = "\u2581"  # how SentencePiece shows a space


def group(tokenizer: Tokenizer, ids: Sequence[int]) -> list[list[int]]:
    """The tokens of each word. EOS and punctuation stand alone; characters are grouped as letters and digits are."""
    tokens, groups = tokenizer.tokens(ids), list[list[int]]()
    for index, piece in enumerate(tokens):
        before = tokens[index - 1] if index else None
        if before is None or EOS in ids[index - 1 : index + 1] or _begins(tokenizer.kind, piece, before):
            groups.append([index])
        else:
            groups[-1].append(index)
    return groups


def _begins(kind: str, piece: str, before: str) -> bool:
    """Whether a piece begins a word."""
    if kind == "char":
        return piece.isspace() or (not before.isspace() and not (piece.isalnum() and before.isalnum()))
    if kind != "word" and before == SPACE:
        return False  # a space that is a piece of its own belongs to what follows
    return kind == "word" or piece.startswith(SPACE) or not (_has_letters(piece) and _has_letters(before))


def _has_letters(piece: str) -> bool:
    return any(letter.isalnum() for letter in piece)


def between_words(weights_HQK: Weights, queries: Sequence[Sequence[int]], keys: Sequence[Sequence[int]]) -> Weights:
    """What the tokens of a word give to those of another: summed over keys, a mean over queries. [H, words, words]"""
    summed = np.stack([weights_HQK[:, :, group].sum(axis=2) for group in keys], axis=2)
    return np.stack([summed[:, group].mean(axis=1) for group in queries], axis=1)


def shown(piece: str) -> str:
    """A piece as a person should see it."""
    return piece.replace(SPACE, " ").strip() or "\u2423"  # an open box for a space
