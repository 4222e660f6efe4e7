"""How many cores this process may use: those of its affinity, and no more than the CPU quota of its control groups."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Return the number of cores that this process may use. A part of a core counts as one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(cgroups, membership)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """Return the CPU time per second that control groups (version 2) leave to this process; None: there is no limit.

    A group is also limited by those above it. Where a container sees its group as the root, the path of `membership` may
    not exist.
    """
    groups = [line.removeprefix("0::") for line in _read(membership).splitlines() if line.startswith("0::")]
    names = [name for group in groups for name in group.split("/") if name not in ("", "..")]
    folders = [cgroups.joinpath(*names[:depth]) for depth in range(len(names) + 1)]
    quotas = [quota for folder in folders if (quota := _quota(_read(folder / "cpu.max"))) is not None]
    return min(quotas, default=None)


def _quota(text: str) -> float | None:
    """Return "QUOTA PERIOD" as a quotient; None for "max PERIOD"."""
    numbers = text.split()
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers) or int(numbers[1]) == 0:
        return None
    return int(numbers[0]) / int(numbers[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
