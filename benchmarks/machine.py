"""Describe the machine, its load, and the memory of a process, with the standard library only."""

import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ARM_PARTS = {
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
}  # /proc/cpuinfo has no names for these


def resident_bytes() -> int:
    """Return the memory that the process holds now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def peak_bytes() -> int:
    """Return the maximum memory of the process since it started its own program."""
    try:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(status["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError):
        pass  # getrusage can include what the parent held when it started this process
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def cuda_peak_bytes() -> int:
    """Return the maximum GPU memory that torch has allocated in this process; 0 if torch is not in use."""
    torch = sys.modules.get("torch")
    return torch.cuda.max_memory_allocated() if torch is not None and torch.cuda.is_available() else 0


def memory() -> dict[str, int]:
    return {"resident": resident_bytes(), "peak": peak_bytes(), "cuda_peak": cuda_peak_bytes()}


def machine_seconds() -> float:
    """Return the CPU seconds of all processes since the machine started; 0 if the system does not report them."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, IndexError):
        return 0.0
    user, nice, system, _idle, _waiting, irq, softirq, stolen = ticks
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


def process_seconds(pid: int) -> float:
    """Return the CPU seconds of one process, over all its threads."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    known = dict(line.split(":", 1) for line in lines if ":" in line)  # of the last core
    fields = {key.strip(): value.strip() for key, value in known.items()}
    unnamed = ARM_PARTS.get(fields.get("CPU part", ""), platform.processor() or platform.machine())
    return fields.get("model name", unnamed)


def gpu_model() -> str:
    """Return the GPU's name from the driver's tool, because the parent does not import torch."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, IndexError, subprocess.CalledProcessError):
        return ""


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "gpu": gpu_model(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "transformers", "ctranslate2", "numpy", "regard")},
        "command": " ".join(Path(word).name if Path(word).is_absolute() else word for word in sys.argv),
    }
