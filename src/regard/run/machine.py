"""A description of this machine for logs and cards, and its free memory."""

from __future__ import annotations

import os
import platform
import resource
from contextlib import suppress
from pathlib import Path

import torch

import regard


def describe_machine(device: torch.device) -> dict[str, str]:
    """Return the names of the processor and the system, and the versions of Python, torch and regard."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "regard": regard.__version__,
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory_left() -> float:
    """Return the bytes that this process can still allocate: the minimum over machine, container and process limits."""
    left = [float("inf")]
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                left.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        left.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        if limit != resource.RLIM_INFINITY:
            left.append(limit - pages * os.sysconf("SC_PAGE_SIZE"))
    return min(left) / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
