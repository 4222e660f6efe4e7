"""The option --engine, which several commands have."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

EngineOption = Annotated[
    Literal["auto", "engine", "torch"],
    typer.Option(
        help="What computes: the engine in C (Transformers on a CPU), or PyTorch. auto: the engine if it can."
    ),
]
