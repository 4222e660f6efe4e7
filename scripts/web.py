"""Compile the engine to WebAssembly: src/regard/engine/regard.wasm, which `regard export --to web` puts into its pages.

    python scripts/web.py [OUTPUT]

Needs Debian 12's clang, lld, wasi-libc and libclang-rt-14-dev-wasm32. The same versions give the same bytes: sources are
compiled in the order of their names, and no names or paths are kept. The file imports nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ENGINE = Path(__file__).resolve().parent.parent / "src/regard/engine"
WASM = ENGINE / "regard.wasm"
VERSION = "14.0.6"  # of clang and lld
SLOWEST = 600  # seconds
FLAGS = [
    "--target=wasm32-wasi",
    "-std=c11",
    "-O3",
    "-msimd128",
    "-mbulk-memory",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-DREGARD_NO_THREADS",
    # There is one thread, and this version of clang does not compile all variables of threads.
    "-D_Thread_local=",
    "-DREGARD_SET=wasm",
    "-DREGARD_SETS=SET(wasm)",
]
EXPORTS = [
    "malloc",
    "free",
    "regard_error",
    "regard_force",
    "regard_model_bytes",
    "regard_model_free",
    "regard_model_max_length",
    "regard_model_new",
    "regard_model_ready",
    "regard_model_set",
    "regard_model_silence",
    "regard_processor",
    "regard_result_free",
    "regard_rows_count",
    "regard_rows_expand",
    "regard_rows_free",
    "regard_rows_new",
    "regard_rows_reorder",
    "regard_rows_step",
    "regard_session_add",
    "regard_session_cancel",
    "regard_session_free",
    "regard_session_new",
    "regard_session_next",
]
LINK = [
    "-mexec-model=reactor",
    "-Wl,--strip-all",
    "-Wl,--gc-sections",
    # The stack lies below everything else, so that an overflow is a trap.
    "-Wl,--stack-first",
    "-Wl,-z,stack-size=1048576",
    *(f"-Wl,--export={name}" for name in EXPORTS),
]


class BuildError(RuntimeError):
    """There is no compiler, it is another version, or it failed."""


def find_compiler() -> str:
    """Return clang of the version that the committed file was made with, with its linker and a C library."""
    clang = shutil.which("clang-14") or shutil.which("clang")
    if clang is None or not (shutil.which("wasm-ld-14") or shutil.which("wasm-ld")):
        raise BuildError("clang or lld is missing: apt-get install clang lld wasi-libc libclang-rt-14-dev-wasm32")
    version = subprocess.run([clang, "--version"], capture_output=True, text=True, check=True, timeout=SLOWEST).stdout
    if VERSION not in version:
        raise BuildError(f"{clang} is not version {VERSION}; another one makes a file with other bytes")
    if not Path("/usr/lib/wasm32-wasi/libc.a").exists():
        raise BuildError("the C library is missing: apt-get install wasi-libc libclang-rt-14-dev-wasm32")
    return clang


def build(output: Path = WASM) -> Path:
    """Compile the engine, and return the file."""
    clang = find_compiler()
    sources = [*sorted(ENGINE.glob("*.c")), *sorted((ENGINE / "web").glob("*.c"))]
    with tempfile.TemporaryDirectory() as work:
        objects = []
        for source in sources:
            objects.append(f"{source.stem}.o")
            name = os.path.relpath(source, ENGINE)
            _run([clang, *FLAGS, f"-ffile-prefix-map={ENGINE}=.", "-c", name, "-o", f"{work}/{objects[-1]}"], ENGINE)
        _run([clang, FLAGS[0], *LINK, *objects, "-o", "regard.wasm"], Path(work))
        shutil.copyfile(Path(work, "regard.wasm"), output)
    return output


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SLOWEST)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)


if __name__ == "__main__":
    try:
        made = build(*map(Path, sys.argv[1:2]))
    except BuildError as error:
        sys.exit(str(error))
    print(f"{made}: {made.stat().st_size:,} bytes")
