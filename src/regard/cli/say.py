"""What is said to a person goes to stderr; stdout is for data."""

from __future__ import annotations

from rich.console import Console

console = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """One plain sentence."""
    console.print(text, markup=False, soft_wrap=True)


def say_error(text: str) -> None:
    """What went wrong."""
    console.print(f"error: {text}", style="bold red", markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """What a person should know but need not act on."""
    console.print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)
