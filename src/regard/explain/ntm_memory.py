"""What a Neural Turing Machine did with one sequence, drawn as in its paper (Graves et al. 2014, figures 3 to 6).

Time goes from left to right. One picture has inputs and outputs above what the heads added to the memory and read from it,
and where; the other has only inputs and outputs.

Shapes: T steps, C channels of the input, V bits of the output, L locations of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regard.explain.pictures import Picture

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class MemoryRecord:
    """Inputs, outputs, and what the heads did in each step."""

    inputs: Matrix  # [T, C]
    outputs: Matrix  # the probability that each bit is 1: [T, V]
    wanted: NDArray[np.bool_]  # at which steps there is an output: [T]
    memory: Mapping[str, Matrix]  # by the names of PARTS, each [T, ...]; empty for a model without memory

    PARTS: ClassVar[tuple[str, ...]] = ("adds", "reads", "write_weights", "read_weights")


def memory_pictures(record: MemoryRecord) -> tuple[Picture, ...]:
    """Return the pictures of a sequence, the one that says most first."""
    pictures = (Picture("inputs and outputs", lambda plt: _draw(plt, record, ())),)
    if not record.memory:
        return pictures
    return (Picture("memory", lambda plt: _draw(plt, record, MemoryRecord.PARTS)), *pictures)


TITLES = {
    "adds": "added to the memory",
    "reads": "read from the memory",
    "write_weights": "write weights: location",
    "read_weights": "read weights: location",
}


def _draw(plt: Any, record: MemoryRecord, parts: tuple[str, ...]) -> Any:
    """Draw panels below each other: the input, the output where one is wanted, and parts of what the heads did."""
    outputs = np.where(record.wanted[:, None], record.outputs, np.nan)
    panels = {"input": (record.inputs, "Greys"), "output": (outputs, "Greys")}
    panels |= {TITLES[name]: (record.memory[name], _colours(name)) for name in parts}
    heights = [min(max(values.shape[1], 4), 32) for values, _ in panels.values()]
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(max(5.0, 0.12 * len(record.inputs) + 1.5), 0.09 * sum(heights) + 0.45 * len(panels)),
        gridspec_kw={"height_ratios": heights},
        sharex=True,
        squeeze=False,
    )
    for panel, (title, (values, colours)) in zip(axes[:, 0], panels.items(), strict=True):
        image = {"vmin": 0.0, "vmax": 1.0} if colours == "Greys" else {"vmin": -1.0, "vmax": 1.0}
        panel.imshow(values.T, aspect="auto", interpolation="nearest", cmap=colours, **image)
        panel.set_title(title, fontsize=9, loc="left")
        panel.tick_params(labelsize=7, length=2)
        panel.locator_params(integer=True)
    axes[-1, 0].set_xlabel("step", fontsize=9)
    figure.tight_layout()
    return figure


def _colours(name: str) -> str:
    return "Greys" if name.endswith("weights") else "RdBu_r"
