"""A trace as JSON, for pages; without torch."""

from __future__ import annotations

import base64
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np

from regard.explain.attention import Attention, axis_labels
from regard.explain.trace import Alternative, Trace, moses_pairs


def trace_as_json(trace: Trace) -> dict[str, Any]:
    """Return the trace as a JSON object: each axis under its name, weights in steps of 1/65535 and compressed."""
    fields = {
        "model": trace.model,
        "attentions": [_pack_attention(trace, one) for one in trace.attentions],
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


def _pack_attention(trace: Trace, attention: Attention) -> dict[str, Any]:
    steps = np.rint(attention.weights * 65535).astype("<u2")
    return {
        "name": attention.name,
        "layer": attention.layer,
        "queries": attention.queries,
        "keys": attention.keys,
        "labels": axis_labels(*trace.axes_of(attention)),
        "self_attention": attention.self_attention,
        "shape": list(attention.weights.shape),
        "weights": base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode(),
    }
