"""Messages to the user, on stderr, since stdout is for data; and standard streams that are closed or broken."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from contextlib import suppress
from typing import IO, Any, TextIO, cast

from rich.console import Console

# C0 except tab and newline, DEL, and C1: characters that control a terminal instead of being displayed.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# No reader, no terminal, no file.
_BROKEN = (errno.EPIPE, errno.EIO, errno.EBADF)

# The rank among the processes that torchrun started. Only rank 0 prints messages.
rank = int(os.environ.get("RANK", "0"))


def printable(text: str) -> str:
    """Return the text with control characters escaped, such as ESC as \\x1b."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def command_name() -> str:
    """Return how a user calls this program: `regard` if it is on the path, else the way this process was called."""
    if shutil.which("regard"):
        return "regard"
    return "python -m regard" if sys.argv[0].endswith("__main__.py") else sys.argv[0]


def format_duration(seconds: float) -> str:
    """Return a duration as 1:02:03, or as 2:03 if it is below an hour."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# Messages


def print_message(text: str) -> None:
    """Print a message, on rank 0 only."""
    if rank:
        return
    console.print(printable(text), markup=False, soft_wrap=True)


def print_warning(text: str) -> None:
    """Print something that the user should know but need not act on."""
    console.print(f"warning: {printable(text)}", style="yellow", markup=False, soft_wrap=True)


def print_error(text: str) -> None:
    """Print what went wrong, and in which process if it is not rank 0."""
    process = f"process {rank}: " if rank else ""
    console.print(f"error: {process}{printable(text)}", style="bold red", markup=False, soft_wrap=True)


# Standard streams


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed when the process started.

    Otherwise the next file to be opened would get the stream's descriptor, and messages would be written into that file.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != number and not _is_open(number):
            os.dup2(null, number)
            os.close(null)
            null = number
        os.set_inheritable(null, True)
        setattr(sys, name, os.fdopen(null, mode, encoding="utf-8", closefd=False))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def redirect_to_null(stream: TextIO) -> None:
    """Send everything that this process still writes to the stream to /dev/null."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class TolerantStderr:
    """The current sys.stderr, except that text that cannot be written is dropped instead of raising an error."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_stderr(), name)

    def write(self, text: str) -> int:
        self._attempt("write", text)
        return len(text)

    def flush(self) -> None:
        self._attempt("flush")

    def _attempt(self, method: str, *arguments: str) -> None:
        stream = _stderr()
        try:
            getattr(stream, method)(*arguments)
        except OSError as error:
            if error.errno in _BROKEN:
                redirect_to_null(stream)
        except RuntimeError:
            # A signal handler prints while the stream is being written to.
            pass


def _stderr() -> TextIO:
    # While a live panel is shown, rich replaces sys.stderr by a proxy.
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)


console = Console(file=cast(IO[str], TolerantStderr()), highlight=False)
