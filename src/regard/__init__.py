"""Sequence-to-sequence with attention, from parallel text to a trained, measured and explained model.

import regard
run = regard.train("dates", out="runs/dates")
model = regard.load("runs/dates")
model.translate(["samedi 14 novembre 2026"])
regard.evaluate("runs/dates")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.api import evaluate, load, train

__version__ = "0.1.0"
__all__ = ["RegardError", "__version__", "evaluate", "load", "train"]


def __getattr__(name: str) -> Any:
    """The verbs, imported when first used: `import regard` alone does not import torch."""
    if name in ("evaluate", "load", "train"):
        from regard import api

        return getattr(api, name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
