"""Translate a large file with `regard translate`, with and without `--ray` on this machine; compare output and speed.

python benchmarks/cluster.py --out benchmarks/results/ray.json

The commands take turns. In the last round a worker is killed, and then the same command runs once more, with nothing left
to do. Times are for the complete command, including the import of PyTorch, and starting and stopping Ray.
"""

import argparse
import filecmp
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import say
from machine import machine, machine_seconds, version

REGARD = [sys.executable, "-m", "regard"]


def others() -> float:
    """Return the share of the machine that is in use while this program is idle."""
    before = machine_seconds()
    time.sleep(2)
    return round((machine_seconds() - before) / 2 / (os.cpu_count() or 1), 3)


def write_lines(path: Path, count: int) -> None:
    """Write sequences of letters as in the copy recipe; one in a hundred is empty."""
    generator = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            length = 0 if generator.random() < 0.01 else generator.randint(1, 10)
            file.write(" ".join(generator.choices("abcdefghijklmnop", k=length)) + "\n")


def plain(folder: Path) -> float:
    """Run the plain command and return its seconds."""
    began = time.monotonic()
    with (folder / "plain.txt").open("wb") as output:
        subprocess.run([*REGARD, "translate", "run", "in.txt"], cwd=folder, stdout=output, check=True)
    return time.monotonic() - began


def with_ray(folder: Path, *, kill_after: int | None = None) -> tuple[float, int | None]:
    """Run the command on Ray. Return its seconds, and the worker that was killed after `kill_after` shards, if any."""
    began = time.monotonic()
    command = [*REGARD, "translate", "run", "in.txt", "out", "--ray"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    killed = None
    for line in process.stderr:
        say(line.rstrip())
        ready = re.search(r"is ready: process (\d+)", line)
        if ready and killed is None and kill_after is not None:
            while len(list((folder / "out").glob("part-*"))) < kill_after and process.poll() is None:
                time.sleep(0.05)
            killed = int(ready[1])
            os.kill(killed, signal.SIGKILL)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} failed")
    return time.monotonic() - began, killed


def join(folder: Path) -> Path:
    with (folder / "ray.txt").open("wb") as output:
        for part in sorted((folder / "out").glob("part-*.txt")):
            output.write(part.read_bytes())
    return folder / "ray.txt"


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    turns: dict[str, list[float]] = {"plain": [], "ray": []}
    found: dict[str, Any] = {"equal": True, "others": []}
    for number in range(rounds + 1):
        last = number == rounds
        found["others"].append(others())
        if not last:
            turns["plain"].append(plain(folder))
        shutil.rmtree(folder / "out", ignore_errors=True)
        seconds, killed = with_ray(folder, kill_after=2 if last else None)
        found["equal"] &= filecmp.cmp(folder / "plain.txt", join(folder), shallow=False)
        if last:
            assert killed is not None, "no worker was killed"
            found |= {"with_a_worker_killed": round(seconds, 1), "second_run": round(with_ray(folder)[0], 1)}
        else:
            turns["ray"].append(seconds)
        say(f"round {number + 1}: {seconds:.1f} s on Ray, {turns['plain'][-1]:.1f} s plain, equal: {found['equal']}")
    return {**found, "seconds": {name: [round(one, 1) for one in all_] for name, all_ in turns.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="also write the result here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = ["train.steps=300", "train.validate_every=300", "train.checkpoint_every=300", "train.threads=1"]
        subprocess.run([*REGARD, "train", "copy", "--out", "run", *settings], cwd=folder, check=True)
        write_lines(folder / "in.txt", arguments.lines)
        found = measure(folder, arguments.rounds)
    median = {system: statistics.median(all_) for system, all_ in found["seconds"].items()}
    result = {
        "benchmark": "cluster",
        **machine(),
        "ray": version("ray"),
        "lines": arguments.lines,
        **found,
        "lines_per_second": {system: round(arguments.lines / seconds) for system, seconds in median.items()},
        "ray_over_plain_seconds": round(median["ray"] / median["plain"], 2),
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    sys.exit(not found["equal"])


if __name__ == "__main__":
    main()
