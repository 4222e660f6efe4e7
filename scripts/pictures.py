"""Train small models on a CPU, and draw the pictures of docs/pictures with `regard look`: make pictures.

A model that is trained already, in runs/pictures, is not trained again. Names on the command line draw only those pictures.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.text.generators import generate

RUNS, OUT = Path("runs/pictures"), Path("docs/pictures")
SHAPES = {"size": 16, "colours": 3, "kinds": 2}


@dataclass(frozen=True)
class Look:
    """A model, what it is shown, and what is drawn of it."""

    model: str  # a recipe to train, or a pretrained model
    text: str
    overrides: tuple[str, ...] = ()  # of the recipe
    options: tuple[str, ...] = ()  # of regard look
    pretrained: bool = False


def shapes(split: str, count: int) -> str:
    """Return the table of a data set of pictures as an override has it."""
    options = ", ".join(f"{name} = {value}" for name, value in (SHAPES | {"count": count}).items())
    return f'{{ generate = "shapes/{split}", options = {{ {options} }} }}'


CAPTIONER = (
    *(f"data.train={shapes('train', 12000)}", f"data.valid={shapes('valid', 200)}"),
    f"data.test={{ seen = {shapes('seen', 200)} }}",
    *("model.width=64", "model.num_layers=2", "model.decoder_layers=1", "model.num_heads=4", "model.hidden=128"),
    *("model.dropout=0.0", "train.tokens=1024", "train.warmup_steps=50", "train.lr=1e-2", "train.steps=800"),
    *("train.validate_every=200", "train.checkpoint_every=800"),
)
STORY = (
    "Mary went to the office. | John moved to the garden. | Sandra went back to the kitchen. | "
    "Mary journeyed to the bathroom. | John travelled to the office. | Where is Mary?"
)
REVIEW = (
    "my aunt called the tea dull | you asked me about the soup | i found the museum lovely | "
    "they said that we hated the wine | we paid for the cake again"
)


def example(corpus: str, number: int, options: dict[str, Any]) -> str:
    """Return an input of a generated corpus, counted from 0."""
    return list(generate(corpus, options | {"count": number + 1}))[number].source


PICTURES = {
    "pronoun": Look(
        "en-de",
        "My sister says that she likes the dog because it is friendly.",
        options=("--attention", "encoder", "--layer", "6", "--head", "3", "--word", "it"),
        pretrained=True,
    ),
    "dates": Look("dates", "Donnerstag, 9. November 1989", ("train.threads=2",)),
    "pointing": Look(
        "hull-10", example("hull/test", 10, {**dict.fromkeys(("min_points", "max_points"), 20), "start": "lowest"})
    ),
    "copying": Look("names", "my name is Zorbak and i come from Quuxland"),
    "summarization": Look("names", "please call Totisi under 274852"),
    "rooms": Look("rooms", STORY),
    "ntm-copy": Look("ntm-copy-small", "0101 0011 0110 0111 0010 0001 1000 . . . . . .", ("train.seed=2",)),
    "documents": Look("documents", REVIEW),
    "tagging": Look("runs", "a a b p p", ("model.crf=true",)),
    "masked-lm": Look("repeats", "a b c a [MASK] c a b c", options=("--layer", "1", "--head", "1", "--word", "[MASK]")),
    "parsing": Look("expressions", "a + b * c ^ d * e + f"),
    "captioning": Look("shapes", example("shapes/seen", 12, SHAPES), CAPTIONER),
    "language-modelling": Look("counting", "7 8", options=("--layer", "2", "--head", "1", "--heatmap")),
}


def run(*words: str) -> None:
    """Run a command of regard, and print it as one could type it."""
    print("$ regard " + shlex.join(words), flush=True)
    subprocess.run([sys.executable, "-m", "regard", *words], check=True)


def main() -> None:
    """Draw the pictures that are named, or all."""
    for name in sys.argv[1:] or PICTURES:
        one = PICTURES[name]
        model = one.model if one.pretrained else str(RUNS / one.model)
        if not one.pretrained:
            # One thread, unless a recipe is large: which head does what depends on the order of sums.
            run("train", one.model, "--out", model, "train.device=cpu", "train.threads=1", *one.overrides)
        run("look", model, one.text, "--png", "--device", "cpu", "--out", str(OUT / f"{name}.png"), *one.options)


if __name__ == "__main__":
    main()
