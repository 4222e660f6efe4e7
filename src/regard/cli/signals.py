"""How SIGINT (Ctrl-C), SIGTERM and SIGHUP end a command, and its exit status.

A stopped command exits with 128 plus the number of the signal, as shells do: 130, 143 or 129. A scheduler can therefore
tell an unfinished run from a finished one.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from regard.cli.terminal import print_message


class Terminated(SystemExit):
    """Raised by SIGTERM and SIGHUP, so that `finally` blocks run before the command ends."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.status = 128 + number
        self.name = signal.Signals(number).name


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise Terminated. A signal that is ignored stays ignored, which nohup relies on."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    for one in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(one) == signal.SIG_DFL:
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
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if one == signal.SIGHUP and signal.getsignal(one) == signal.SIG_IGN:
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
