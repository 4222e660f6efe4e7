"""Take each part of the Transformer away, with three seeds, and write a table: what `regard ablate` shows.

python benchmarks/ablations.py --out benchmarks/results/ablations.json              all nine, one after the other
python benchmarks/ablations.py heads ffn --out benchmarks/results/ablations.json    measure these again, keep the others

Both runs of a seed train at the same time, one core each.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from harness import say
from machine import machine
from regard.learn.ablation_runs import AblationResult, run_ablation
from regard.learn.ablation_text import mean, number
from regard.learn.ablations import ABLATIONS


def table(results: dict[str, AblationResult]) -> list[str]:
    """Return the Markdown table: every seed, and the means in front."""
    rows = [
        "| without | task | dev loss with | without | dev score with | without | seconds |",
        "|---|---|---|---|---|---|---:|",
    ]
    for what, result in results.items():
        cells = []
        for metric in ("loss", result.metric):
            for side in ("with_it", "without_it"):
                values = [getattr(one, side).scores.get(metric) for one in result.seeds]
                cells.append(f"**{number(mean(values))}** ({', '.join(map(number, values))})")
        longest = max(result.seeds, key=lambda one: one.seconds)
        seconds = f"{longest.seconds:.0f} ({longest.cpu_seconds:.0f})"
        rows.append(f"| {what} | `{result.recipe}`, {result.steps} steps | {' | '.join(cells)} | {seconds} |")
    return rows


def write(results: dict[str, AblationResult], facts: dict[str, Any], out: Path) -> None:
    """Write the JSON file, one line per list of numbers, and the table next to it."""
    content = {**facts, "ablations": msgspec.to_builtins(results)}
    out.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace('"with_it"', '\n"with_it"')
                   .replace('"without_it"', '\n"without_it"').replace('{"what"', '\n{"what"') + "\n")  # fmt: skip
    lines = [
        "# Without one part",
        f"`{facts['command']}` on {facts['machine'].get('cpu')} ({facts['machine'].get('cores')} cores, PyTorch "
        f"{facts['machine']['versions']['torch']}). Means over seeds, and each seed in brackets. The score is the share of "
        "dev rows that are completely right, in %. Seconds are those of the slowest seed, from the start of both processes "
        "to their end, and in brackets the CPU seconds of both; other work shared the machine.",
        "",
        *table(results),
        "",
        "What both runs set, and what the run without the part changes:",
        "",
        *(
            f"- {what}: `{one.settings}`; without: `{one.off or 'the model is changed'}`"
            for what, one in results.items()
        ),
    ]
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    results: dict[str, AblationResult] = {}
    if given.out.is_file():
        results = msgspec.convert(json.loads(given.out.read_text())["ablations"], dict[str, AblationResult])
    for what in given.what or ABLATIONS:
        with tempfile.TemporaryDirectory() as folder:
            results[what] = run_ablation(what, out=folder, seeds=list(range(1, given.seeds + 1)))
        last = results[what].seeds[-1]
        say(f"{what}: {number(last.with_it.scores.get(results[what].metric))} with, "
            f"{number(last.without_it.scores.get(results[what].metric))} without")  # fmt: skip
        # The command of this call may name some ablations only, and the file has all.
        here = {name: value for name, value in machine().items() if name != "command"}
        facts = {"command": f"python benchmarks/ablations.py --seeds {given.seeds}", "machine": here}
        write({name: results[name] for name in ABLATIONS if name in results}, facts, given.out)


if __name__ == "__main__":
    main()
