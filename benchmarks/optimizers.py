"""Compare Adam, AdamW and Muon on encoder-decoder translation: dev BLEU over training time, three seeds each.

python benchmarks/optimizers.py --data ~/data --out benchmarks/results/optimizers.json

Every optimizer trains for the same number of seconds: its number of steps follows from its speed, which is measured first.
Each uses the best of a few learning rates, selected on the dev set with the first seed.
"""

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import studies
from studies import Job

MEASURED_STEPS = 600
POINTS = 8  # per curve


@dataclass(frozen=True)
class Contender:
    """An optimizer, its schedule, and its candidate learning rates."""

    name: str
    overrides: str
    rates: tuple[float, ...]


WSD = "train.schedule=wsd train.decay=0.5 train.warmup_steps=500 train.average=1"
CONTENDERS = [
    Contender(
        "Adam, inverse square root",
        "train.optimizer=adam train.schedule=inverse-sqrt train.warmup_steps=1000 train.average=1",
        (2e-3, 5e-3),
    ),
    Contender(
        "AdamW, warm-up stable decay", f"train.optimizer=adamw train.weight_decay=0.01 {WSD}", (1e-3, 2e-3, 4e-3)
    ),
    Contender("Muon, warm-up stable decay", f"train.optimizer=muon {WSD}", (2e-3, 4e-3, 8e-3)),
]


def overrides_of(contender: Contender, rate: float, steps: int, seed: int) -> tuple[str, ...]:
    every = max(1, steps // POINTS)
    return (
        *contender.overrides.split(),
        "tokenizer.sampling=0.0",  # removes one source of noise
        f"train.lr={rate}",
        f"train.steps={steps}",
        f"train.validate_every={every}",
        "train.checkpoint_every=100000",
        "train.log_every=50",
        f"train.seed={seed}",
    )


def study(recipe: str, data: Path, out: Path, seconds: float, seeds: int, at_once: int) -> dict[str, Any]:
    """Return the curves of all contenders on one recipe."""
    steps = {}
    for contender in CONTENDERS:  # one at a time, so that speeds are independent
        job = Job(
            f"{recipe} {contender.name} speed", recipe, overrides_of(contender, contender.rates[0], MEASURED_STEPS, 1)
        )
        speed = studies.run_jobs([job], data, out, beam=1, at_once=1)[job.name]
        steps[contender.name] = round(seconds * speed["tokens_per_second"] / speed["tokens_per_step"])
    jobs = [
        Job(f"{contender.name} / {rate} / 1", recipe, overrides_of(contender, rate, steps[contender.name], 1))
        for contender in CONTENDERS
        for rate in contender.rates
    ]
    found = studies.run_jobs(jobs, data, out, beam=4, at_once=at_once)
    best = {
        contender.name: max(contender.rates, key=lambda rate: found[f"{contender.name} / {rate} / 1"]["bleu"])
        for contender in CONTENDERS
    }
    more = [
        Job(
            f"{contender.name} / {best[contender.name]} / {seed}",
            recipe,
            overrides_of(contender, best[contender.name], steps[contender.name], seed),
        )
        for contender in CONTENDERS
        for seed in range(2, seeds + 1)
    ]
    found |= studies.run_jobs(more, data, out, beam=4, at_once=at_once)
    return {
        "seconds": seconds,
        "contenders": {
            contender.name: {
                "rate": best[contender.name],
                "steps": steps[contender.name],
                "bleus": [
                    found[f"{contender.name} / {best[contender.name]} / {seed}"]["bleu"] for seed in range(1, seeds + 1)
                ],
                "curves": [
                    [
                        [step / steps[contender.name] * seconds, bleu]
                        for step, _, bleu in found[f"{contender.name} / {best[contender.name]} / {seed}"]["curve"]
                    ]
                    for seed in range(1, seeds + 1)
                ],
            }
            for contender in CONTENDERS
        },
        "runs": found,
    }


def as_table(results: dict[str, Any]) -> str:
    lines = ["| data | optimizer | rate | steps | dev BLEU, beam 4 | of each seed |", "|---|---|---:|---:|---:|---|"]
    for recipe, result in results.items():
        for name, one in result["contenders"].items():
            each = ", ".join(f"{bleu:.2f}" for bleu in one["bleus"])
            lines.append(
                f"| {recipe} | {name} | {one['rate']:g} | {one['steps']:,} | {statistics.mean(one['bleus']):.2f} | {each} |"
            )
        lines.append(f"| | all in {result['seconds']:g} s of training | | | | |")
    return "\n".join([*lines, ""])


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw dev BLEU over seconds of training, with one line per seed."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(1, len(results), figsize=(6 * len(results), 4.5), squeeze=False)
    for axes, (recipe, result) in zip(all_axes[0], results.items(), strict=True):
        for number, (name, one) in enumerate(result["contenders"].items()):
            for seed, curve in enumerate(one["curves"]):
                label = name if seed == 0 else None
                axes.plot([x for x, _ in curve], [y for _, y in curve], color=f"C{number}", alpha=0.7, label=label)
        axes.set_xlabel("seconds of training")
        axes.set_ylabel("dev BLEU (greedy)")
        axes.set_title(recipe)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies.add_flags(parser)
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time")
    parser.add_argument("--recipes", default="multi30k-en-de,tatoeba-de-en")
    parser.add_argument("--seconds", type=float, default=15.0, help="of training per run")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    results = {
        recipe: study(recipe, arguments.data, arguments.out, arguments.seconds, arguments.seeds, arguments.at_once)
        for recipe in arguments.recipes.split(",")
    }
    studies.write(arguments.out, {"study": "optimizers", "results": results}, as_table(results))
    draw(results, arguments.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
