"""The flags of a benchmark, and its results as files: JSON, a table and a plot."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import say
from machine import machine


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="result file: .json, with .md and .svg next to it")


def write(out: Path, result: dict[str, Any], table: str) -> None:
    """Write the result as JSON and as a Markdown table."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**result, "machine": machine()}, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(table, encoding="utf-8")
    say(f"written to {out}")


def draw_lines(
    path: Path,
    lines: dict[str, tuple[Sequence[Any], Sequence[float]]],
    *,
    across: str,
    up: str,
    mark: float | None = None,
) -> None:
    """Draw one line per name, and a dotted vertical line at `mark`."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for name, (x, y) in lines.items():
        axes.plot(x, y, marker="o", label=name)
    if mark is not None:
        axes.axvline(mark, color="grey", linestyle=":")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
