"""Train every row of the paper's Table 3, scaled down for a small corpus, and compare with the paper's numbers.

python benchmarks/table3.py --data ~/data --at-once 3 --out benchmarks/results/table3.json

The base model has a quarter of the paper's width: d_model 128, d_ff 512, 8 heads of 16, 6 layers. Each row changes what the
paper's row changes, in the same proportion. The learning rate follows the paper's formula, including d_model^-0.5, with
2,000 steps of warm-up. All scores are on the dev set with beam 4, as in the paper.
"""

import argparse
import math
from dataclasses import dataclass
from typing import Any

import studies
from studies import Job

WIDTH, WARMUP = 128, 2000
BASE = [
    *("model.width=128", "model.hidden=512", "model.num_heads=8", "model.num_layers=6", "model.decoder_layers=6"),
    *("model.dropout=0.1", "train.label_smoothing=0.1", "train.tokens=8192"),
    *("train.optimizer=adam", "train.schedule=inverse-sqrt", f"train.warmup_steps={WARMUP}"),
    *("train.validate_pairs=1", "train.checkpoint_every=100000"),
]


@dataclass(frozen=True)
class Row:
    """A row of the paper's table, and our overrides for it."""

    group: str
    change: str  # in the paper's notation
    overrides: str
    perplexity: float  # the paper's, per word piece, on newstest2013
    bleu: float  # the paper's, on newstest2013
    width: int = WIDTH
    steps: float = 1.0  # as a share of the base's

    @property
    def rate(self) -> float:
        """Return the peak of the paper's learning rate (section 5.3)."""
        return (self.width * WARMUP) ** -0.5


ROWS = [
    Row("base", "", "", 4.92, 25.8),
    Row("A", "h 1, d_k 512", "model.num_heads=1", 5.29, 24.9),
    Row("A", "h 4, d_k 128", "model.num_heads=4", 5.00, 25.5),
    Row("A", "h 16, d_k 32", "model.num_heads=16", 4.91, 25.8),
    Row("A", "h 32, d_k 16", "model.num_heads=32", 5.01, 25.4),
    Row("B", "d_k 16", "model.key_width=4", 5.16, 25.1),
    Row("B", "d_k 32", "model.key_width=8", 5.01, 25.4),
    Row("C", "N 2", "model.num_layers=2 model.decoder_layers=2", 6.11, 23.7),
    Row("C", "N 4", "model.num_layers=4 model.decoder_layers=4", 5.19, 25.3),
    Row("C", "N 8", "model.num_layers=8 model.decoder_layers=8", 4.88, 25.5),
    Row("C", "d_model 256", "model.width=64", 5.75, 24.5, width=64),
    Row("C", "d_model 1024", "model.width=256", 4.66, 26.0, width=256),
    Row("C", "d_ff 1024", "model.hidden=256", 5.12, 25.4),
    Row("C", "d_ff 4096", "model.hidden=1024", 4.75, 26.2),
    Row("D", "P_drop 0.0", "model.dropout=0.0", 5.77, 24.6),
    Row("D", "P_drop 0.2", "model.dropout=0.2", 4.95, 25.5),
    Row("D", "e_ls 0.0", "train.label_smoothing=0.0", 4.67, 25.3),
    Row("D", "e_ls 0.2", "train.label_smoothing=0.2", 5.47, 25.7),
    Row("E", "learned positions", "model.positions=learned", 4.92, 25.7),
    Row(
        *("big", "", "model.width=256 model.hidden=1024 model.num_heads=16 model.dropout=0.3", 4.33, 26.4),
        width=256,
        steps=3.0,
    ),
]


def name_of(row: Row) -> str:
    return f"{row.group} {row.change}".strip()


def jobs_of(recipe: str, steps: int, seeds: int) -> list[Job]:
    return [
        Job(
            f"{name_of(row)} / {seed}",
            recipe,
            (
                *BASE,
                *row.overrides.split(),
                f"train.lr={row.rate:.6f}",
                f"train.steps={round(steps * row.steps)}",
                f"train.validate_every={round(steps * row.steps)}",
                f"train.seed={seed}",
            ),
        )
        for row in sorted(ROWS, key=lambda row: -row.steps)  # longest first, so that it does not run alone at the end
        for seed in range(1, seeds + 1)
    ]


def summarize(found: dict[str, dict[str, Any]], seeds: int) -> list[dict[str, Any]]:
    """Return one line per row: our means over seeds, the paper's numbers, and whether both change in the same direction."""
    lines = []
    for row in ROWS:
        results = [found[f"{name_of(row)} / {seed}"] for seed in range(1, seeds + 1)]
        lines.append(
            {
                "group": row.group,
                "change": row.change,
                "overrides": row.overrides,
                "parameters": results[0]["parameters"],
                "perplexity": math.exp(sum(one["loss"] for one in results) / seeds),
                "bleu": sum(one["bleu"] for one in results) / seeds,
                "bleus": [one["bleu"] for one in results],
                "paper_perplexity": row.perplexity,
                "paper_bleu": row.bleu,
            }
        )
    for line in lines:
        ours, paper = line["bleu"] - lines[0]["bleu"], line["paper_bleu"] - lines[0]["paper_bleu"]
        line["agrees"] = None if line is lines[0] or paper == 0 else (ours > 0) == (paper > 0)
    return lines


def as_table(lines: list[dict[str, Any]]) -> str:
    rows = [
        "| | the paper's change | ours | parameters | PPL | BLEU | paper's PPL | paper's BLEU | same direction |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for line in lines:
        agrees = {None: "", True: "yes", False: "no"}[line["agrees"]]
        rows.append(
            f"| {line['group']} | {line['change']} | {line['overrides']} | {line['parameters'] / 1e6:.1f} M "
            f"| {line['perplexity']:.2f} | {line['bleu']:.2f} "
            f"| {line['paper_perplexity']:.2f} | {line['paper_bleu']:.1f} | {agrees} |"
        )
    judged = [line["agrees"] for line in lines if line["agrees"] is not None]
    return "\n".join([*rows, "", f"{sum(judged)} of {len(judged)} changes move BLEU as in the paper.", ""])


def draw(lines: list[dict[str, Any]], path: Any) -> None:
    """Draw our BLEU over the paper's, both relative to the base."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 6))
    for line in lines[1:]:
        x, y = line["paper_bleu"] - lines[0]["paper_bleu"], line["bleu"] - lines[0]["bleu"]
        axes.plot(x, y, "o", color="C" + str("ABCDEbig".index(line["group"][0])))
        axes.annotate(
            f"{line['group']} {line['change']}", (x, y), fontsize=7, xytext=(4, 3), textcoords="offset points"
        )
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.set_xlabel("paper: BLEU above base (newstest2013)")
    axes.set_ylabel("ours: BLEU above base (dev)")
    axes.set_title("Table 3, at two sizes")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies.add_flags(parser)
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time")
    parser.add_argument("--recipe", default="tatoeba-de-en")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    jobs = jobs_of(arguments.recipe, arguments.steps, arguments.seeds)
    found = studies.run_jobs(jobs, arguments.data, arguments.out, beam=4, at_once=arguments.at_once)
    lines = summarize(found, arguments.seeds)
    studies.write(
        arguments.out,
        {"study": "table3", "recipe": arguments.recipe, "base": BASE, "rows": lines, "runs": found},
        as_table(lines),
    )
    draw(lines, arguments.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
