"""A trace as one HTML file that loads nothing else: no network, no server."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from dataclasses import asdict
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from regard.explain.attention import Attention, axis_labels
from regard.explain.trace import Trace, moses_pairs

ASSETS = resources.files("regard.explain") / "assets"
HINT = "The redder a word, the less certain the model was. Choose a word to see alternatives."


def as_page(trace: Trace) -> str:
    """Return the content of the HTML file."""
    pairs = " ".join(f"{source}-{target}" for source, target in moses_pairs(trace))
    return Template(asset("look.html")).substitute(
        title=html.escape(trace.source.text[:80]),
        model=html.escape(trace.model),
        style=asset("look.css"),
        source=html.escape(trace.source.text),
        hint=HINT if any(trace.alternatives) else "",
        alignment="" if pairs else "hidden",
        pairs=pairs,
        trace=escape_json(json.dumps(packed(trace), ensure_ascii=False)),
        script=bundle("attention.js", "look.js"),
    )


def packed(trace: Trace) -> dict[str, Any]:
    """Return the trace as a JSON object: each axis under its name, weights in steps of 1/65535 and compressed."""
    fields = {
        "model": trace.model,
        "attentions": [_pack_attention(trace, one) for one in trace.attentions],
        "probabilities": trace.probabilities,
        "alternatives": [
            [{"id": one.id, "piece": one.token, "probability": one.probability, "text": one.text} for one in found]
            for found in trace.alternatives
        ],
        "pairs": moses_pairs(trace),
    }
    assert not fields.keys() & trace.axes.keys(), (fields.keys(), trace.axes.keys())
    return fields | {name: asdict(axis) for name, axis in trace.axes.items()}


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


def asset(name: str) -> str:
    """Return the text of a file in the package's assets folder."""
    return (ASSETS / name).read_text(encoding="utf-8")


def bundle(*names: str) -> str:
    """Return several JavaScript modules as one script without imports and exports."""
    text = "\n".join(asset(name) for name in names)
    text = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE).replace("</script", "<\\/script")


def escape_json(text: str) -> str:
    """Return JSON in which nothing can end the script element around it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
