"""Messages to the user, on stderr, since stdout is for data; closed or broken streams; and signals that end a command.

A command stopped by SIGINT (Ctrl-C), SIGTERM or SIGHUP exits with 128 plus the number of the signal, as shells do: 130, 143
or 129. A scheduler can therefore tell an unfinished run from a finished one.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import shutil
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from regard.errors import python_command
from regard.messages import format_duration as format_duration
from regard.messages import printable as printable
from regard.signals import HANGUP, STOPPING

if TYPE_CHECKING:
    from rich.console import Console

UNFINISHED = 3  # exit status: the time limit was reached, and the same command resumes
AGAIN_SECONDS = 0.1  # until a signal that was dropped is sent again
# No reader, no terminal, no file.
_BROKEN = (errno.EPIPE, errno.EIO, errno.EBADF)
# The rank among the processes that torchrun started. Only rank 0 prints messages.
rank = int(os.environ.get("RANK", "0"))


class Terminated(SystemExit):
    """Raised by SIGTERM and SIGHUP, so that `finally` blocks run before the command ends."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.status = 128 + number
        self.name = signal.Signals(number).name


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise Terminated, and SIGINT KeyboardInterrupt.

    A signal that is ignored stays ignored, which nohup relies on.
    """

    def end(number: int, frame: FrameType | None) -> None:
        def drop_consequences(unraisable: sys.UnraisableHookArgs) -> None:
            # An object whose constructor was interrupted is incomplete, and its finalizer may complain of that. But if the
            # signal itself came in a finalizer, where Python drops exceptions, it is sent again.
            if isinstance(unraisable.exc_value, Terminated | KeyboardInterrupt):
                threading.Timer(AGAIN_SECONDS, os.kill, [os.getpid(), number]).start()

        sys.unraisablehook = drop_consequences
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)

    for one in STOPPING:
        if signal.getsignal(one) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(one, end)


class StopRequest:
    """A context in which a signal asks training to stop after the current step. Call it to ask whether one arrived.

    A second Ctrl-C stops at once.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[signal.Signals, object] = {}

    def __call__(self) -> bool:
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status of a stopped run. Without a signal here, another process of the run received one."""
        return 128 + (self.number or signal.SIGTERM)

    def __enter__(self) -> StopRequest:
        for one in STOPPING:
            if one == HANGUP and signal.getsignal(one) == signal.SIG_IGN:
                continue
            self._before[one] = signal.signal(one, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.number = number
        print_message("stopping after this step (press Ctrl-C again to stop at once) ...")


def command_name() -> str:
    """Return how a user calls this program: `regard` if the path leads to it, else the way this process was called."""
    script, found = sys.argv[0], shutil.which("regard")
    if os.path.basename(script) != "regard" or not os.path.exists(script):
        return f"{python_command()} -m regard"
    return "regard" if found is not None and os.path.samefile(found, script) else shlex.quote(script)


# Messages


def print_message(text: str) -> None:
    """Print a message, on rank 0 only."""
    if rank:
        return
    _console().print(printable(text), markup=False, soft_wrap=True)


def print_warning(text: str) -> None:
    """Print something that the user should know but need not act on, on rank 0 only."""
    if rank:
        return
    _console().print(f"warning: {printable(text)}", style="yellow", markup=False, soft_wrap=True)


def print_error(text: str) -> None:
    """Print what went wrong, and in which process if it is not rank 0."""
    process = f"process {rank}: " if rank else ""
    _console().print(f"error: {process}{printable(text)}", style="bold red", markup=False, soft_wrap=True)


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


def write_utf8() -> None:
    """Write UTF-8 with Unix line ends to stdout and stderr, also on Windows, where a pipe would get another encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and os.name == "nt":
            stream.reconfigure(encoding="utf-8", newline="\n")


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


def flush_messages() -> None:
    """Write out what has been printed."""
    TolerantStderr().flush()


def _console() -> Console:
    """Return the console of all messages. rich is imported when there is something to say."""
    found: Console | None = globals().get("console")
    if found is None:
        from rich.console import Console

        found = globals()["console"] = Console(file=cast(IO[str], TolerantStderr()), highlight=False)
    return found


def __getattr__(name: str) -> Any:
    if name == "console":
        return _console()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
