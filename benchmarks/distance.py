"""Measure how far each family carries a token: copy sequences of letters of increasing length, and count the correct ones.

python benchmarks/distance.py --out benchmarks/results/distance.json

In a copy, each letter travels the length of the sequence. Every family has about the same number of parameters, the same
training pairs (1 to `--longest` letters) and the same number of steps. Greedy output is scored letter by letter, per length.
"""

import argparse
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
from harness import say

LETTERS = "abcdefghijklmnopqrst"
STACK = "model.width=64 model.num_layers=2 model.num_heads=4 model.hidden=128 model.norm_order=pre"


@dataclass(frozen=True)
class Family:
    """A model, given as overrides of the recipe `copy`."""

    name: str
    overrides: str


FAMILIES = [
    Family("Transformer", f"model.kind=transformer {STACK}"),
    Family("Transformer, window 4", f"model.kind=transformer {STACK} model.window=4"),
    Family("RNN, additive attention", "model.kind=rnn model.width=64 model.hidden=96"),
    Family("RNN, no attention", "model.kind=rnn model.width=64 model.hidden=128 model.attention=none"),
    Family("ConvS2S", "model.kind=convs2s model.width=64 model.encoder=[[64,3],[64,3]] model.decoder=[[64,3],[64,3]]"),
    Family("ByteNet", "model.kind=bytenet model.width=96 model.sets=1"),
    Family("NAT with fertilities", f"model.kind=nat {STACK}"),
    Family("mask-predict", f"model.kind=cmlm {STACK}"),
    Family("CTC", f"model.kind=ctc {STACK} model.places=2"),
]


def rows(count: int, lengths: range, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(LETTERS, k=draw.choice(lengths))) for _ in range(count)]


def write_pairs(path: Path, texts: list[str]) -> None:
    path.write_text("".join(f"{text}\t{text}\n" for text in texts), encoding="utf-8")


def accuracy(outputs: list[str], references: list[str]) -> float:
    """Return the percentage of letters in the right position."""
    right = total = 0
    for output, reference in zip(outputs, references, strict=True):
        wanted, got = reference.split(), output.split()
        right += sum(a == b for a, b in zip(wanted, got, strict=False))
        total += len(wanted)
    return 100 * right / total


def run_family(family: Family, folder: Path, steps: int, lengths: list[int]) -> dict[str, Any]:
    from regard import api, loading

    overrides = [
        *family.overrides.split(),
        *("model.dropout=0.0", f"train.steps={steps}", "train.tokens=2048", "train.checkpoint_every=100000"),
        *(f"train.validate_every={steps}", "train.validate_pairs=10", "data.max_length=400", "tokenizer.coverage=1.0"),
        'data.test={}',
        *(f'data.{part}={{pairs="{folder / part}.tsv"}}' for part in ("train", "valid")),
    ]  # fmt: skip
    run = folder / "run" / family.name.replace(" ", "-")
    api.train("copy", out=run, overrides=overrides)
    translator = loading.load(run)
    options = translator.options.replace(beam=1, max_extra=10)
    scores = {}
    for length in lengths:
        texts = rows(100, range(length, length + 1), seed=length + 1000)
        scores[length] = round(accuracy(translator.translate(texts, options=options), texts), 1)
    say(f"{family.name}: {scores}")
    return {"parameters": translator.model.num_parameters(), "letters_right": scores}


def as_table(found: dict[str, dict[str, Any]], longest: int) -> str:
    lengths = list(next(iter(found.values()))["letters_right"])
    heads = [f"{length}{'' if length <= longest else ' (never seen)'}" for length in lengths]
    lines = [
        f"| letters right, %, in rows of | {' | '.join(heads)} | parameters |",
        "|---|" + "---:|" * (len(lengths) + 1),
    ]
    for name, one in found.items():
        cells = " | ".join(f"{value:.1f}" for value in one["letters_right"].values())
        lines.append(f"| {name} | {cells} | {one['parameters'] / 1e3:.0f} k |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="result file: .json, with .md and .svg next to it")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--longest", type=int, default=40, help="letters per sequence in training")
    arguments = parser.parse_args()
    longest = arguments.longest
    lengths = sorted({5, 10, 20, longest * 3 // 4, longest, longest * 5 // 4})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_pairs(folder / "train.tsv", rows(50_000, range(1, longest + 1), seed=1))
        write_pairs(folder / "valid.tsv", rows(100, range(1, longest + 1), seed=2))
        found = {family.name: run_family(family, folder, arguments.steps, lengths) for family in FAMILIES}
    result = {"study": "distance", "steps": arguments.steps, "longest": longest, "families": found}
    report.write(arguments.out, result, as_table(found, longest))
    curves = {name: (list(one["letters_right"]), list(one["letters_right"].values())) for name, one in found.items()}
    picture = arguments.out.with_suffix(".svg")
    report.draw_lines(picture, curves, across="letters of a row", up="letters right, %", mark=longest)


if __name__ == "__main__":
    main()
