"""The memory that this process can still allocate. The only module that knows how a system limits memory."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

resource: Any = import_module("resource") if find_spec("resource") else None  # Windows has none


def memory_left() -> float:
    """Return the bytes that this process can still allocate; infinity where the system does not say.

    That is the minimum over machine, container and process limits, divided by the processes on this machine.
    """
    left = [float("inf")]
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                left.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        left.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    limit = address_space_limit()
    if limit is not None:
        with suppress(OSError):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            left.append(limit - pages * os.sysconf("SC_PAGE_SIZE"))
    return min(left) / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def address_space_limit() -> int | None:
    """Return the limit on the addresses of this process in bytes; None if there is none."""
    if resource is None:
        return None
    limit: int = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def limit_memory(most: int) -> None:
    """Limit the bytes of this process, and of those that it starts, where the system can; a lower limit stays."""
    if resource is None:
        return
    _, limit = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY or limit > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
