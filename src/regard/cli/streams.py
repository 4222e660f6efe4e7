"""The standard streams: a reader that is gone must not end a run, and foreign text must not control a terminal."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from typing import Any, TextIO

# C0 without tab and newline, DEL, and C1: what a terminal obeys instead of showing it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # no reader, no terminal, no file


def printable(text: str) -> str:
    """Return the text with control characters escaped, such as ESC as \\x1b."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def open_closed_streams() -> None:
    """Open /dev/null for each standard stream that was closed when the process started.

    Otherwise the next file that is opened would get its descriptor, and whatever is printed would be written into it.
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


def discard(stream: TextIO) -> None:
    """Send what is still written to the stream, by anybody in this process, to /dev/null."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class TolerantStderr:
    """The current sys.stderr, except that what cannot be written is dropped instead of raising."""

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
            if error.errno in _GONE:
                discard(stream)
        except RuntimeError:
            # A signal handler prints while the stream is being written to.
            pass


def _stderr() -> TextIO:
    # While a live panel is shown, rich puts a proxy of its own in the place of sys.stderr.
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)
