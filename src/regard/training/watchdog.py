"""Writes the stack of every thread to a file when no step has been taken for too long."""

from __future__ import annotations

import faulthandler
import os
import time
from io import BufferedWriter
from types import TracebackType

from regard.storage.folder import Folder


class Watchdog:
    """A context in which `step` must be called regularly. Uses `faulthandler`, which works while the interpreter hangs."""

    def __init__(self, folder: Folder, name: str, *, seconds: float) -> None:
        self.folder, self.name, self.seconds = folder, name, seconds
        self._file: BufferedWriter | None = None
        self._armed = 0.0

    def __enter__(self) -> Watchdog:
        if self.seconds:
            self._file = self.folder.append_file(self.name)
            self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
            empty = not os.fstat(self._file.fileno()).st_size
            self._file.close()
            if empty and self.folder.has_file(self.name):
                self.folder.remove(self.name)

    def step(self) -> None:
        """Report that training makes progress."""
        if self._file is not None and time.monotonic() - self._armed > min(1.0, self.seconds / 4):
            self._arm()

    def _arm(self) -> None:
        assert self._file is not None
        self._armed = time.monotonic()
        faulthandler.dump_traceback_later(self.seconds, repeat=True, file=self._file)
