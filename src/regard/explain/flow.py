"""Attention over several heads and layers at once: means, and what flows through all layers up to one.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.explain.trace_types import Trace, Weights
from regard.explain.words import between_words


def mean_of_heads(weights_HQK: Weights) -> Weights:
    return weights_HQK.mean(axis=0)


def rollout(layers_QQ: Sequence[Weights]) -> Weights:
    """What each place holds of each input after all these layers of self-attention (Abnar and Zuidema 2020): [Q, Q].

    Half of what leaves a layer came in by its residual connection.
    """
    flow = np.eye(layers_QQ[0].shape[0], dtype=np.float32)
    for weights in layers_QQ:
        flow = (0.5 * weights + 0.5 * np.eye(len(weights), dtype=np.float32)) @ flow
    return flow


def soft_alignment(trace: Trace) -> Weights:
    """How much each target token drew on each source token: the mean over all layers and heads that look across. [Q, K]"""
    across = [mean_of_heads(one.weights) for one in trace.of("encoder-decoder")]
    if not across:
        return np.zeros((len(trace.target.tokens), len(trace.source.tokens)), dtype=np.float32)
    return np.mean(across, axis=0, dtype=np.float32)


def moses_pairs(trace: Trace) -> list[tuple[int, int]]:
    """Source word and target word, i-j as Moses writes them: each target word with the source word it drew on most."""
    source, target = _without_end(trace.source.words), _without_end(trace.target.words)
    weights = soft_alignment(trace)
    if not source or not target or not weights.any():
        return []
    among = between_words(weights[None], target, source)[0]
    return sorted((int(row.argmax()), number) for number, row in enumerate(among))


def _without_end(words: Sequence[list[int]]) -> list[list[int]]:
    return list(words[:-1])  # EOS is a word of its own, the last
