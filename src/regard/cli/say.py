"""What is said to a person goes to stderr; stdout is for data."""

from __future__ import annotations

import shutil
import sys

from rich.console import Console

console = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """One plain sentence."""
    console.print(text, markup=False, soft_wrap=True)


def say_error(text: str) -> None:
    """What went wrong."""
    console.print(f"error: {text}", style="bold red", markup=False, soft_wrap=True)


def own_name() -> str:
    """What a person types to call us here: our name where it is on the path, else where this process was found."""
    return "regard" if shutil.which("regard") else sys.argv[0]


def warn(text: str) -> None:
    """What a person should know but need not act on."""
    console.print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)
