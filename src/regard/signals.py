"""The signals that ask a process to end."""

from __future__ import annotations

import signal

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # when a terminal is closed; Windows has none
STOPPING = (signal.SIGINT, signal.SIGTERM, *([] if HANGUP is None else [HANGUP]))
