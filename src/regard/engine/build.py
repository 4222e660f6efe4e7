"""Compile the engine into one shared library.

Files of PER_SET are compiled once per set of instructions, the others once; the library chooses a set when it is loaded.
Only the standard library is used, so that a build hook can import this file without the package.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FLAGS = [
    "-std=c11",
    "-O3",
    "-fno-math-errno",
    "-fwrapv",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fPIC",
    "-pthread",
    "-Wall",
    "-Wextra",
]
PER_SET = ("attention.c", "kernels.c", "product_f32.c", "products.c", "vocabulary.c")
AVX512 = [
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mavx512vnni",
    "-mavx2",
    "-mfma",
    "-mprefer-vector-width=512",
]
# GCC's first scheduling makes more values live than there are registers. Clang does not know it, and warns.
UNSCHEDULED = ["-fno-schedule-insns", "-Wno-ignored-optimization-argument"]
SETS = {  # the fastest first
    "x86_64": {
        "avx512vnni": AVX512,
        "avxvnni": ["-mavx2", "-mfma", "-mavxvnni"],
        "avx2": ["-mavx2", "-mfma"],
        "scalar": [],
    },
    "aarch64": {"neon_dotprod": ["-march=armv8.2-a+dotprod", *UNSCHEDULED], "neon": UNSCHEDULED},
    "wasm32": {"wasm": ["-msimd128"]},
}
SLOWEST = 300  # seconds until a compiler is stopped


class BuildError(RuntimeError):
    """There is no compiler, or it failed."""


def library_name() -> str:
    """Return the file name of the library on this system."""
    return "libregard.dylib" if sys.platform == "darwin" else "libregard.so"


def build(folder: Path | str, compiler: str | None = None, *, output: Path | str | None = None, jobs: int = 2) -> Path:
    """Compile the sources of a folder into a library, by default next to them, unless it is up to date."""
    folder = Path(folder)
    library = Path(output) if output else folder / library_name()
    sources = sorted(folder.glob("*.c"))
    inputs = [*sources, *folder.glob("*.h"), Path(__file__)]
    if library.exists() and library.stat().st_mtime > max(path.stat().st_mtime for path in inputs):
        return library
    command = find_compiler(compiler)
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        steps = compile_commands(command, sources, Path(work))
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(_run, steps))
        linked = Path(work) / library.name
        _run([*command, "-shared", "-pthread", "-o", str(linked), *(step[-1] for step in steps), "-lm"])
        os.replace(linked, library)
    return library


def find_compiler(compiler: str | None = None) -> list[str]:
    """Return the command of the C compiler: the given one, $CC, or cc."""
    command = shlex.split(compiler or os.environ.get("CC") or "cc")
    path = shutil.which(command[0]) if command else None
    if path is None:
        raise BuildError(
            f"no C compiler: {compiler or os.environ.get('CC') or 'cc'} was not found; install gcc or clang, or set CC"
        )
    return [path, *command[1:]]


def compile_commands(command: list[str], sources: list[Path], work: Path) -> list[list[str]]:
    """Return the compiler's calls; the last argument of each is the object file that it makes."""
    sets = _sets(command)
    names = " ".join(f"SET({name})" for name in sets)
    steps = []
    for source in sources:
        if source.name in PER_SET:
            for name, flags in sets.items():
                steps.append(
                    [
                        *command,
                        *FLAGS,
                        *flags,
                        f"-DREGARD_SET={name}",
                        "-c",
                        str(source),
                        "-o",
                        str(work / f"{source.stem}-{name}.o"),
                    ]
                )
        else:
            steps.append(
                [*command, *FLAGS, f"-DREGARD_SETS={names}", "-c", str(source), "-o", str(work / f"{source.stem}.o")]
            )
    return steps


def _sets(command: list[str]) -> dict[str, list[str]]:
    """Return the sets whose flags the compiler knows; the last one needs none."""
    sets = SETS.get(_machine(command), {"scalar": []})

    def known(flags: list[str]) -> bool:
        check = [*command, *flags, "-fsyntax-only", "-x", "c", os.devnull]
        return not flags or subprocess.run(check, capture_output=True, check=False, timeout=SLOWEST).returncode == 0

    return {name: flags for name, flags in sets.items() if known(flags)}


def _machine(command: list[str]) -> str:
    """Return the processor that a compiler compiles for."""
    target = subprocess.run(
        [*command, "-dumpmachine"], capture_output=True, text=True, check=False, timeout=SLOWEST
    ).stdout
    machine = target.split("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=SLOWEST)
    if done.stderr:
        print(done.stderr, file=sys.stderr)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr}")


if __name__ == "__main__":
    print(build(Path(__file__).resolve().parent, *sys.argv[1:2]))
