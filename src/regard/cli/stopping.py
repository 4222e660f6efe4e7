"""SIGINT (Ctrl-C), SIGTERM and SIGHUP: how a command ends, and with which exit status.

A command that was stopped exits with 128 plus the signal's number, as a shell reports it: 130, 143 or 129. So a scheduler
can tell a run that is unfinished from one that is done.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from regard.cli.say import say


class Terminated(SystemExit):
    """Ends a command that was sent SIGTERM or SIGHUP, with its `finally` blocks."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.status = 128 + number
        self.name = signal.Signals(number).name


def exit_on_signals() -> None:
    """From now on SIGTERM and SIGHUP raise Terminated. One that is ignored stays so: that is what nohup asks for."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    for one in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(one) == signal.SIG_DFL:
            signal.signal(one, end)


class StopRequest:
    """A context in which the signals ask training to stop after its step; calling the object tells whether one has.

    A second Ctrl-C ends it at once.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[signal.Signals, object] = {}

    def __call__(self) -> bool:
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status of a run that was stopped. Without a signal of its own it was stopped by another process's."""
        return 128 + (self.number or signal.SIGTERM)

    def __enter__(self) -> StopRequest:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if one == signal.SIGHUP and signal.getsignal(one) == signal.SIG_IGN:
                continue
            self._before[one] = signal.signal(one, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.number = number
        say("stopping after this step (Ctrl-C again to stop at once) ...")
