"""The end of a process that has imported PyTorch."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """End as `sys.exit` does, without the teardown of modules, which takes half a second. The caller flushes streams."""
    if threading.active_count() == 1:
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)
