"""Build wheels for Linux, with the engine in them: for this machine, and for others whose compiler is installed.

    .venv/bin/python scripts/wheels.py dist

Debian's packages gcc-x86-64-linux-gnu and gcc-aarch64-linux-gnu are cross compilers. A library that asks for a newer glibc
than the tag of its wheel promises is refused.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = (2, 34)  # the oldest that the wheels run with; since it, threads belong to libc
MACHINES = ("x86_64", "aarch64")
TIMEOUT = 600


def compiler_for(machine: str) -> str | None:
    """Return the C compiler for a machine, if it is installed."""
    return shutil.which("cc" if machine == platform.machine() else f"{machine}-linux-gnu-gcc")


def newest_glibc(library: Path) -> tuple[int, int]:
    """Return the newest version of glibc that a library asks for."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def build(machine: str, compiler: str, out: Path) -> Path:
    """Build the wheel of a machine."""
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    environment = {**os.environ, "CC": compiler, "REGARD_WHEEL_TAG": tag}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=TIMEOUT)
    asked = newest_glibc(out / tag / "libregard.so")
    if asked > GLIBC:
        raise SystemExit(f"the library for {machine} asks for glibc {asked[0]}.{asked[1]}; the wheel promises {GLIBC}")
    return next(out.glob(f"regard-*-py3-none-{tag}.whl"))


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    for machine in MACHINES:
        compiler = compiler_for(machine)
        if compiler is None:
            print(f"No wheel for {machine}: install gcc-{machine.replace('_', '-')}-linux-gnu")
            continue
        wheel = build(machine, compiler, out)
        print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
