"""Ctrl-C and SIGTERM: the first one asks training to stop after its step, a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from regard.cli.say import say


class StopRequest:
    """A context in which calling the object tells whether a stop was asked for."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, object] = {}

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> StopRequest:
        for name in (signal.SIGINT, signal.SIGTERM):
            self._before[name] = signal.signal(name, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True
        say("stopping after this step (Ctrl-C again to stop at once) ...")
