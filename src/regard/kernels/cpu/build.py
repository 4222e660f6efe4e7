"""Our C functions, compiled by this machine's C compiler at first use and cached for later starts.

The cached library's name is a hash of its source, compiler, flags and processor (`cache.py` says when it is trusted).
Without a compiler or a cache folder there are no compiled functions, and PyTorch does their work. A build that failed is
not tried again for a day, or until one of its inputs changes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from regard.kernels.cpu import cache

SOURCES = [Path(__file__).with_name(name) for name in ("wide.h", "search.c", "product.c")]
FLAGS = ("-O3", "-funroll-loops", "-fno-math-errno", "-ffp-contract=fast", "-shared", "-fPIC")
SLOWEST = 120  # seconds until the compiler is stopped

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
    """The compiled functions, or the reason why there are none."""

    library: ctypes.CDLL | None
    note: str
    failure: Path | None = None  # the file that makes the next start skip the build


_built: Built | None = None
_building = threading.Lock()


def built() -> Built:
    """Return the functions for this machine. The first call compiles them if they are not in the cache."""
    global _built
    if _built is None:
        with _building:
            _built = _built or build(cache_folder())
    return _built


def cache_folder() -> Path | None:
    """Return the user's cache folder, or None if there is none."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return kept / "regard" if kept.is_absolute() else None


def build(folder: Path | None) -> Built:
    """Return the functions, from this folder if they are in it, else compiled."""
    if folder is None:
        return Built(None, "there is no cache folder: set XDG_CACHE_HOME")
    try:
        wanted, *flags = shlex.split(os.environ.get("CC", "cc")) or [""]
        compiler = shutil.which(wanted)
        if compiler is None:
            return Built(None, "no C compiler was found")
        problem = cache.folder_problem(folder)
        if problem:
            return Built(None, problem)
        return _cached_or_compiled(folder, compiler, [*flags, *FLAGS, _tuning()])
    except (OSError, ValueError) as error:
        return Built(None, str(error))


def _cached_or_compiled(folder: Path, compiler: str, flags: list[str]) -> Built:
    path = folder / f"kernels-{_name(compiler, flags)}.so"
    made_by = f"compiled by {Path(compiler).name}"
    library = _try_load(path) if cache.is_intact(path) else None
    if library is not None:
        return Built(library, made_by)
    failed = cache.remembered_failure(path)
    if failed is None:
        try:
            _compile([compiler, *flags], path)
            return Built(_load(path), made_by)
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            failed = _describe(error)
            cache.remember_failure(path, failed)
    return Built(None, failed, cache.failure_file(path))


def _name(compiler: str, flags: list[str]) -> str:
    """Return a hash of everything that the library is made of."""
    sources = [source.read_text(encoding="utf-8") for source in SOURCES]
    made_of = [*sources, compiler, str(os.stat(compiler).st_mtime), *flags, _processor()]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]


def _tuning() -> str:
    return "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"


def _compile(command: list[str], path: Path) -> None:
    """Compile the library and put it into the cache."""
    with cache.workspace(path.parent) as folder:
        made = folder / path.name
        sources = [str(source) for source in SOURCES if source.suffix == ".c"]
        command = [*command, "-o", str(made), *sources, "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=SLOWEST)
        cache.publish(made, path)


def _describe(error: Exception) -> str:
    """Return one line about a failed build."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stderr or "").strip().splitlines()
        return f"{Path(error.cmd[0]).name} failed" + (f": {lines[0]}" if lines else "")
    if isinstance(error, subprocess.TimeoutExpired):
        return f"{Path(error.cmd[0]).name} took longer than {SLOWEST} seconds"
    return " ".join(str(error).split())


def _try_load(path: Path) -> ctypes.CDLL | None:
    try:
        return _load(path)
    except (OSError, AttributeError):
        return None


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, arguments in ARGUMENTS.items():
        function = getattr(library, f"regard_{name}")
        function.argtypes, function.restype = arguments, RESULTS.get(name)
        setattr(library, name, function)
    return library


def _processor() -> str:
    """Return the processor's model and features: a library made for it may not run on another one with the same folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.platform()
    wanted = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
