"""What version 0.1 computed, read from tests/fixtures/run-0.1, and whether this processor computes the same bits."""

import json
import platform
from pathlib import Path

import torch

FIXTURES = Path(__file__).parents[1] / "fixtures" / "run-0.1"


def read(name):
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


def this_processor():
    """Return what decides the bits of float32 arithmetic: products are computed as suits the processor, by this build."""
    fields = ("model name", "CPU implementer", "CPU part", "CPU variant")
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    named = dict(line.split(":", 1) for line in lines if line.startswith(fields))
    return {
        "processor": " ".join([platform.machine(), *(value.strip() for value in named.values())]),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }
