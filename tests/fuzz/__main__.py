"""python -m tests.fuzz --cases 100000 --seed 1 --out FILE.json [--target NAME ...] [--save FOLDER]"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from tests.fuzz.mutate import TARGETS, Case
from tests.fuzz.pool import fuzz, say


def load_case(path: Path) -> Case:
    return Case(**json.loads(path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Open damaged folders, send damaged requests."
    )
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--out", type=Path, help="where the summary goes, as JSON")
    parser.add_argument(
        "--target", action="append", choices=list(TARGETS), help="run only this target; may be repeated"
    )
    parser.add_argument(
        "--case", action="append", type=Path, default=[], help="run this saved case first; may be repeated"
    )
    parser.add_argument("--save", type=Path, help="folder for one case per finding")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds after which a case hangs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    given = [load_case(path) for path in options.case]
    summary = fuzz(
        options.cases,
        seed=options.seed,
        targets=options.target or list(TARGETS),
        given=given,
        workers=max(1, min(options.workers, len(given) + options.cases)),
        timeout=options.timeout,
    )
    table = {"seed": options.seed, "seconds": round(time.monotonic() - began, 1), **summary.as_table()}
    drawn = {number: found for number, found in summary.by_number.items() if found and number >= len(given)}
    table["drawn"] = {str(number - len(given)): found for number, found in drawn.items()}
    if given:
        table["given"] = {path.name: summary.by_number[number] for number, path in enumerate(options.case)}
    if options.out:
        options.out.write_text(json.dumps(table, indent=1) + "\n")
    if options.save:
        save(table["findings"], options.save)
    report(table)
    sys.exit(1 if table["findings"] else 0)


def save(findings: dict[str, dict[str, Any]], folder: Path) -> None:
    """Write the smallest case of each finding, under a name that describes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for found in findings.values():
        if found["cases"]:
            smallest = min(found["cases"], key=lambda case: len(json.dumps(case)))
            (folder / f"{name_of(smallest)}.json").write_text(json.dumps(smallest, indent=1) + "\n")


def name_of(case: dict[str, Any]) -> str:
    """Return a file name for a case: its target, and its last mutation."""
    last = case["mutations"][-1]
    edits = last.get("edits") or [last.get("edit") or {}]
    steps = [last.get("path"), last.get("action"), last.get("to"), edits[-1].get("action")]
    parts = [case["target"], last["kind"], last.get("file"), *steps, *edits[-1].get("path", []), edits[-1].get("value")]
    words = "-".join(str(part) for part in parts if part is not None)
    return re.sub("[^a-z0-9]+", "-", words.lower()).strip("-")[:90]


def report(table: dict[str, Any]) -> None:
    """Print a summary."""
    say(f"\n{table['cases']:,} cases in {table['seconds']:.0f} s, seed {table['seed']}")
    for name in ("targets", "mutations", "outcomes", "milliseconds_per_case"):
        say(f"{name}: " + ", ".join(f"{key} {count:,}" for key, count in table[name].items()))
    if table["isolated"]:
        say("everything outside the sandbox was read-only; reads of files next to it were detected")
    else:
        say(f"NOT isolated, access to files outside was not detected: {'; '.join(table['not_isolated_because'])}")
    for pid, rows in table["memory_mb_by_worker"].items():
        say(f"worker {pid}: {rows[0][1]} MB at the start, {rows[-1][1]} MB after {rows[-1][0]:,} cases")
    say(f"peak memory {table['peak_mb']} MB, workers restarted: {table['restarts']}")
    say(f"findings: {len(table['findings'])}")
    for signature, found in table["findings"].items():
        say(f"  {found['count']:6,}  {signature}")


if __name__ == "__main__":
    main()
