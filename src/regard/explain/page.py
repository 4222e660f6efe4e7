"""A sight as one HTML file that needs nothing else: no network, no server."""

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


def as_page(sight: Trace) -> str:
    """The file."""
    hint = "The redder a word, the less sure the model was of it. Choose one for what else could have stood there."
    pairs = " ".join(f"{source}-{target}" for source, target in moses_pairs(sight))
    return Template(asset("look.html")).substitute(
        title=html.escape(sight.source.text[:80]),
        model=html.escape(sight.model),
        style=asset("look.css"),
        source=html.escape(sight.source.text),
        hint=hint if any(sight.alternatives) else "",
        pairs=pairs or "none: this model does not look at its source",
        sight=inside_a_script(json.dumps(packed(sight), ensure_ascii=False)),
        script=as_one_script("attention.js", "look.js"),
    )


def packed(sight: Trace) -> dict[str, Any]:
    """The sight as JSON can hold it; weights in steps of 1/65535, compressed."""
    return {
        "model": sight.model,
        "source": vars(sight.source),
        "target": vars(sight.target),
        "read": vars(sight.read),
        "attentions": [_pack(one) for one in sight.attentions],
        "probabilities": sight.probabilities,
        "alternatives": [[vars(one) for one in found] for found in sight.alternatives],
        "pairs": moses_pairs(sight),
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
