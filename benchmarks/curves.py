"""Train one run in three ways with the same seed: as a CUDA graph, with the same kernels step by step, and in plain PyTorch.

python benchmarks/curves.py --data ~/data --out benchmarks/results/curves.json

The first two have the same batches and dropout masks, so their loss curves coincide. Plain PyTorch has its own dropout
masks, and its batches have other numbers of pairs, so its curve is only close.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import report

WAYS = {
    "CUDA graph": [],
    "same kernels, step by step": ["train.graph=false"],
    "plain PyTorch": ["train.graph=false", "train.kernels=false"],
}


def losses(recipe: str, data: Path, overrides: list[str]) -> dict[str, Any]:
    """Return the mean training loss of every ten steps, the speed, and the configuration that the run reported."""
    from regard import api
    from regard.training.events import Progress, Started

    curve: list[tuple[int, float]] = []
    speeds: list[float] = []
    how = ""

    def listen(event: object) -> None:
        nonlocal how
        if isinstance(event, Started):
            how = event.how
        elif isinstance(event, Progress):
            curve.append((event.step, event.loss))
            speeds.append(event.tokens_per_second)

    with tempfile.TemporaryDirectory() as folder:
        api.train(recipe, out=Path(folder) / "run", overrides=overrides, data=data, listen=listen)
    return {"how": how, "tokens_per_second": sorted(speeds)[len(speeds) // 2], "curve": curve}


def distances(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the largest and the mean difference of every curve to the first one, in nats per token."""
    first, *others = runs
    found = {}
    for name in others:
        differences = [
            abs(mine - theirs) for (_, mine), (_, theirs) in zip(runs[first]["curve"], runs[name]["curve"], strict=True)
        ]
        found[name] = {"largest": max(differences), "mean": sum(differences) / len(differences)}
    return found


def as_table(runs: dict[str, dict[str, Any]], apart: dict[str, dict[str, float]]) -> str:
    lines = [
        "| | target tokens/s | last loss | largest difference | mean difference |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, run in runs.items():
        gap = apart.get(name)
        shown = f"{gap['largest']:.2g} | {gap['mean']:.2g}" if gap else "|"
        lines.append(f"| {name} | {run['tokens_per_second']:,.0f} | {run['curve'][-1][1]:.4f} | {shown} |")
    return "\n".join([*lines, ""])


def draw(runs: dict[str, dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for (name, run), style in zip(runs.items(), ("-", "--", ":"), strict=True):
        axes.plot([x for x, _ in run["curve"]], [y for _, y in run["curve"]], style, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss, nats a token")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_flags(parser)
    parser.add_argument("--recipe", default="multi30k-en-de")
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    common = [f"train.steps={arguments.steps}", "train.log_every=10", "train.validate_every=100000"]
    common += ["tokenizer.sampling=0.0"]  # removes one source of noise
    runs = {}
    for name, overrides in WAYS.items():
        runs[name] = losses(arguments.recipe, arguments.data, [*common, *overrides])
        report.say(f"{name}: {runs[name]['how']}, {runs[name]['tokens_per_second']:,.0f} tokens/s")
    apart = distances(runs)
    report.write(
        arguments.out,
        {"study": "curves", "recipe": arguments.recipe, "differences": apart, "runs": runs},
        as_table(runs, apart),
    )
    draw(runs, arguments.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
