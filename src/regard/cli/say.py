"""What is said to a person goes to stderr; stdout is for data."""

from __future__ import annotations

import os
import shutil
import sys
from typing import IO, cast

from rich.console import Console

from regard.cli.streams import TolerantStderr, printable

console = Console(file=cast(IO[str], TolerantStderr()), highlight=False)
rank = int(os.environ.get("RANK", "0"))  # among the processes that torchrun started; the first one speaks for all


def say(text: str) -> None:
    """One plain sentence."""
    if rank:
        return
    console.print(printable(text), markup=False, soft_wrap=True)


def say_error(text: str) -> None:
    """What went wrong."""
    who = f"process {rank}: " if rank else ""
    console.print(f"error: {who}{printable(text)}", style="bold red", markup=False, soft_wrap=True)


def own_name() -> str:
    """What a person types to call us here: our name where it is on the path, else how this process was called."""
    if shutil.which("regard"):
        return "regard"
    return "python -m regard" if sys.argv[0].endswith("__main__.py") else sys.argv[0]


def warn(text: str) -> None:
    """What a person should know but need not act on."""
    console.print(f"warning: {printable(text)}", style="yellow", markup=False, soft_wrap=True)
