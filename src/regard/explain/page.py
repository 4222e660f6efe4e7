"""A trace as one HTML file that needs nothing else: no network, no server."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from regard.explain.flow import moses_pairs
from regard.explain.trace_types import Attention, Trace

ASSETS = resources.files("regard.explain") / "assets"


def as_page(trace: Trace) -> str:
    """The file."""
    hint = "The redder a word, the less sure the model was of it. Choose one for what else could have stood there."
    pairs = " ".join(f"{source}-{target}" for source, target in moses_pairs(trace))
    return Template(asset("look.html")).substitute(
        title=html.escape(trace.source.text[:80]),
        model=html.escape(trace.model),
        style=asset("look.css"),
        source=html.escape(trace.source.text),
        hint=hint if any(trace.alternatives) else "",
        pairs=pairs or "none: this model does not look at its source",
        trace=inside_a_script(json.dumps(packed(trace), ensure_ascii=False)),
        script=as_one_script("attention.js", "look.js"),
    )


def packed(trace: Trace) -> dict[str, Any]:
    """The trace as JSON can hold it; weights in steps of 1/65535, compressed."""
    return {
        "model": trace.model,
        "source": vars(trace.source),
        "target": vars(trace.target),
        "read": vars(trace.read),
        "attentions": [_pack(one) for one in trace.attentions],
        "probabilities": trace.probabilities,
        "alternatives": [[vars(one) for one in found] for found in trace.alternatives],
        "pairs": moses_pairs(trace),
    }


def _pack(attention: Attention) -> dict[str, Any]:
    steps = np.rint(attention.weights * 65535).astype("<u2")
    return {
        "name": attention.name,
        "layer": attention.layer,
        "queries": attention.queries,
        "keys": attention.keys,
        "shape": list(attention.weights.shape),
        "weights": base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode(),
    }


def asset(name: str) -> str:
    """A file that comes with us."""
    return (ASSETS / name).read_text(encoding="utf-8")


def as_one_script(*names: str) -> str:
    """Modules one behind the other, for a file that can import nothing."""
    text = "\n".join(asset(name) for name in names)
    text = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE).replace("</script", "<\\/script")


def inside_a_script(text: str) -> str:
    """JSON in which nothing can end the script it stands in."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
