"""When no step has been taken for too long, what every thread is doing is written to a file."""

from __future__ import annotations

import faulthandler
import time
from pathlib import Path
from types import TracebackType
from typing import TextIO


class Watchdog:
    """A context in which `step` must be called now and then. Python's own watchdog, so it works while Python is stuck."""

    def __init__(self, path: Path, *, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self._file: TextIO | None = None
        self._armed = 0.0

    def __enter__(self) -> Watchdog:
        if self.seconds:
            self._file = self.path.open("a", encoding="utf-8")
            self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
            if self.path.exists() and not self.path.stat().st_size:
                self.path.unlink()

    def step(self) -> None:
        """Says that training is alive."""
        if self._file is not None and time.monotonic() - self._armed > min(1.0, self.seconds / 4):
            self._arm()

    def _arm(self) -> None:
        assert self._file is not None
        self._armed = time.monotonic()
        faulthandler.dump_traceback_later(self.seconds, repeat=True, file=self._file)
