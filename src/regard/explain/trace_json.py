"""A trace as JSON, for pages; without torch."""

from __future__ import annotations

import base64
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np

from regard.explain.attention import Attention, AttentionWeights, axis_labels
from regard.explain.trace import Alternative, Trace, moses_pairs


def trace_as_json(trace: Trace, *, products: bool = False) -> dict[str, Any]:
    """Return the trace as a JSON object: each axis under its name, weights in steps of 1/65535 and compressed.

    With `products`, attention has its queries and keys, if they were recorded.
    """
    fields = {
        "model": trace.model,
        "attentions": [_pack_attention(trace, one, products=products) for one in trace.attentions],
        "probabilities": trace.probabilities,
        "alternatives": [[_alternative(one, trace) for one in found] for found in trace.alternatives],
        "pairs": moses_pairs(trace),
    }
    assert not fields.keys() & trace.axes.keys(), (fields.keys(), trace.axes.keys())
    return fields | {name: asdict(axis) for name, axis in trace.axes.items()}


def _alternative(one: Alternative, trace: Trace) -> dict[str, Any]:
    """Return an alternative, with what differs between its trace, if it has one, and `trace`."""
    fields = {"id": one.id, "piece": one.token, "probability": one.probability, "text": one.text}
    if one.trace is None:
        return fields
    axes = {name: axis for name, axis in one.trace.axes.items() if axis != trace.axes.get(name)}
    changed = [packed for packed in one.trace.attentions if {packed.queries, packed.keys} & axes.keys()]
    return fields | {
        "trace": {
            "probabilities": one.trace.probabilities,
            "attentions": [_pack_attention(one.trace, packed) for packed in changed],
            **{name: asdict(axis) for name, axis in axes.items()},
        }
    }


def _pack_attention(trace: Trace, attention: Attention, *, products: bool = False) -> dict[str, Any]:
    steps = np.rint(attention.weights * 65535).astype("<u2")
    vectors = attention.vectors if products else None
    return ({} if vectors is None else {"vectors": list(map(_pack_vectors, vectors))}) | {
        "name": attention.name,
        "layer": attention.layer,
        "queries": attention.queries,
        "keys": attention.keys,
        "labels": axis_labels(*trace.axes_of(attention)),
        "self_attention": attention.self_attention,
        "shape": list(attention.weights.shape),
        "weights": _compress(steps),
    }


def _pack_vectors(vectors: AttentionWeights) -> dict[str, Any]:
    """Return vectors, [H, tokens, width], as 16-bit integers and the number that one of them stands for."""
    step = float(np.abs(vectors).max(initial=1e-12)) / 32767
    return {"shape": list(vectors.shape), "step": step, "values": _compress(np.rint(vectors / step).astype("<i2"))}


def _compress(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 9)).decode()
