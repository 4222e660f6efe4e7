"""Build the fuzz target of the engine with sanitizers, and run it.

python -m tests.engine.sanitized --seconds 600 --jobs 2
python -m tests.engine.sanitized --seconds 60 --sanitize thread
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regard.engine import build

ENGINE = Path(build.__file__).parent
TARGET = Path(__file__).with_name("fuzz_engine.c")
OPTIONS = {
    # GCC 13 puts variables aligned to 64 bytes at misaligned addresses where it detects uses of the stack after a return.
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def compile_target(work: Path, sanitize: str = "address,undefined", *, jobs: int = 2) -> Path:
    """Return the compiled fuzz target."""
    command = [*build.find_compiler(), "-g", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", f"-I{ENGINE}"]
    steps = build.compile_commands(command, [*sorted(ENGINE.glob("*.c")), TARGET], work)
    steps = [["-O0" if part == "-O3" else part for part in step] for step in steps]  # compiles in a tenth of the time
    with ThreadPoolExecutor(jobs) as pool:
        for step, done in zip(steps, pool.map(run_quietly, steps), strict=True):
            assert done.returncode == 0, (step, done.stderr)
    program = work / "fuzz_engine"
    done = run_quietly([*command, "-pthread", "-o", str(program), *(step[-1] for step in steps), "-lm"])
    assert done.returncode == 0, done.stderr
    return program


def run_quietly(command: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **more)  # type: ignore[call-overload]


def run_target(program: Path, seconds: float, seed: int, cases: int = sys.maxsize) -> subprocess.CompletedProcess[str]:
    """Run the target for some time, or some cases; a finding ends it with a status other than 0 and a report."""
    return run_quietly([str(program), str(seconds), str(seed), str(cases)], env={**os.environ, **OPTIONS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of each job")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the first job")
    parser.add_argument("--sanitize", default="address,undefined", help="what -fsanitize= gets")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        program = compile_target(Path(work), arguments.sanitize, jobs=arguments.jobs)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            seeds = range(arguments.seed, arguments.seed + arguments.jobs)
            runs = list(pool.map(lambda seed: run_target(program, arguments.seconds, seed), seeds))
    for seed, done in zip(seeds, runs, strict=True):
        print(f"seed {seed}: status {done.returncode}, {done.stdout.strip()}")
        if done.returncode:
            print(done.stderr[:6000])
    sys.exit(any(done.returncode for done in runs))


if __name__ == "__main__":
    main()
