"""Sequence-to-sequence with attention, from parallel text to a trained, measured and explained model.

import regard
run = regard.train("dates", out="runs/dates")
model = regard.load("runs/dates")
model.translate(["samedi 14 novembre 2026"])
regard.evaluate("runs/dates")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.api import evaluate, load, train
    from regard.evaluation.metrics import Metric, register_metric
    from regard.models import Family, register_model
    from regard.text.tokenizer import TokenizerKind, register_tokenizer

__version__ = "0.1.0"
__all__ = [
    "Family",
    "Metric",
    "RegardError",
    "TokenizerKind",
    "__version__",
    "evaluate",
    "load",
    "register_metric",
    "register_model",
    "register_tokenizer",
    "train",
]

_MODULES = {
    "regard.api": ("evaluate", "load", "train"),
    "regard.evaluation.metrics": ("Metric", "register_metric"),
    "regard.models": ("Family", "register_model"),
    "regard.text.tokenizer": ("TokenizerKind", "register_tokenizer"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import regard` alone does not import torch."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
