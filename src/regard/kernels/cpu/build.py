"""Our C functions, compiled by this machine's C compiler when they are first wanted, and kept for the next time.

They lie in the user's cache folder, under a name that says what they were made of: the source, the compiler, its flags and
the processor. Where there is no compiler, or no place to keep them, there are none, and PyTorch does their work.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

SOURCES = [Path(__file__).with_name(name) for name in ("wide.h", "search.c", "product.c")]
FLAGS = ("-O3", "-funroll-loops", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC")
SLOWEST = 120  # seconds that a compiler may take

POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64
ARGUMENTS = {
    "look": [POINTER, NUMBER] * 3 + [POINTER, NUMBER, NUMBER, NUMBER, POINTER] + [NUMBER] * 6,
    "add_norm": [POINTER] * 4 + [ctypes.c_float, NUMBER, NUMBER],
    "bounds_of_rows": [POINTER, NUMBER, POINTER, POINTER, NUMBER, NUMBER],
    "bounds_of_columns": [POINTER, NUMBER, POINTER, POINTER, NUMBER, NUMBER],
    "best_entries": [POINTER, NUMBER, NUMBER] + [POINTER] * 5 + [NUMBER] * 5,
    "panel": [],
    "group": [],
    "pack": [POINTER, NUMBER, NUMBER, POINTER, NUMBER, NUMBER],
    "times": [POINTER, NUMBER, POINTER, POINTER, NUMBER, POINTER] + [NUMBER] * 3,
    "write": [POINTER, NUMBER, POINTER, NUMBER] + [NUMBER] * 4,
}
RESULTS = {"look": ctypes.c_int, "times": ctypes.c_int, "panel": NUMBER, "group": NUMBER}


@dataclass(frozen=True)
class Built:
    """The functions, or why there are none."""

    library: ctypes.CDLL | None
    note: str


_built: Built | None = None
_building = threading.Lock()


def built() -> Built:
    """The functions of this machine; the first call compiles them, if no one has."""
    global _built
    if _built is None:
        with _building:
            _built = _built or build(cache_folder())
    return _built


def cache_folder() -> Path | None:
    """Where they are kept, if there is such a place."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return kept / "regard" if kept.is_absolute() else None


def build(folder: Path | None) -> Built:
    """The functions, from this folder if they are in it."""
    if folder is None:
        return Built(None, "there is no folder to keep them in: set XDG_CACHE_HOME")
    try:
        wanted, *flags = shlex.split(os.environ.get("CC", "cc")) or [""]
        compiler = shutil.which(wanted)
        if compiler is None:
            return Built(None, "no C compiler was found")
        return _build(folder, compiler, flags)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        return Built(None, f"{Path(error.cmd[0]).name} failed" + (f": {said[0]}" if said else ""))
    except (OSError, ValueError, AttributeError, subprocess.TimeoutExpired) as error:
        return Built(None, str(error))


def _build(folder: Path, compiler: str, flags: list[str]) -> Built:
    on_arm = platform.machine() in ("aarch64", "arm64")
    flags = [*flags, *FLAGS, "-mcpu=native" if on_arm else "-march=native"]
    sources = [source.read_text(encoding="utf-8") for source in SOURCES]
    made_of = [*sources, compiler, str(os.stat(compiler).st_mtime), *flags, _processor()]
    name = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_ours_alone(folder):
        return Built(None, f"others can write into {folder}")
    path = folder / f"kernels-{name}.so"
    if not path.exists() or not _loads(path):
        _compile([compiler, *flags], path)
    return Built(_load(path), f"compiled by {Path(compiler).name}")


def _compile(command: list[str], path: Path) -> None:
    """Puts the library there, whole or not at all, whoever else is doing so."""
    with tempfile.TemporaryDirectory(dir=path.parent) as beside:
        made = Path(beside) / path.name
        sources = [str(source) for source in SOURCES if source.suffix == ".c"]
        command = [*command, "-o", str(made), *sources, "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=SLOWEST)
        os.replace(made, path)


def _loads(path: Path) -> bool:
    try:
        _load(path)
    except (OSError, AttributeError):
        return False
    return True


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, f"regard_{name}")
        function.argtypes, function.restype = arguments, RESULTS.get(name)
        setattr(library, name, function)
    return library


def _is_ours_alone(folder: Path) -> bool:
    """Whether nobody else can put a library there for us to load."""
    state = folder.stat()
    return not hasattr(os, "getuid") or (
        state.st_uid == os.getuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _processor() -> str:
    """What this processor is and can do: a library made for it may not run on another one that shares the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.platform()
    wanted = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
