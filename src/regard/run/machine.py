"""What machine this is, in a few words: for logs and cards."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

import regard


def describe_machine(device: torch.device) -> dict[str, str]:
    """The processor that trains, and the versions of what matters."""
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
