"""Tables of positions as the formula that they come from."""

from __future__ import annotations

from typing import Any, get_args

from torch import Tensor

from regard.config.transformer import SinusoidKind
from regard.nn.positions import sinusoids

CLOSE = 2e-3  # toolkits compute large angles in float32; tables of other formulas differ by about 1
FIRST = (0, 1, 2)  # numbers that a sentence's first position has in some toolkit


def matching_positions(table_PD: Tensor) -> dict[str, Any] | None:
    """Return the options of the formula that gives this table, or None if no known one does."""
    rows, width = table_PD.shape
    if width % 2 or rows < 2:
        return None
    for kind in get_args(SinusoidKind):
        for first in FIRST:
            expected = sinusoids(rows, width, kind=kind, first=first)
            if (table_PD.float() - expected).abs().max() < CLOSE:
                return {"positions": kind, "first_position": first}
    return None
