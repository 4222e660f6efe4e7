"""regard ablate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message, printable
from regard.errors import ConfigError


def ablate(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RECIPE] WHAT",
            help="What to take away: mask, positions, scale, residual, heads, warmup, smoothing, ffn or norm; before it, "
            "the recipe to take it from, by name or as a .toml file.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs and the pages. Default: runs/ablate-WHAT.", show_default=False),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed of the weights, the order of the examples, and dropout.", min=0)
    ] = 1,
    seeds: Annotated[int, typer.Option(help="Number of seeds, starting at --seed.", min=1, max=100)] = 1,
    steps: Annotated[
        int | None, typer.Option(help="Steps of training. Default: those of the task.", min=1, show_default=False)
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
) -> None:
    """Take one part of the Transformer away, and see what it was for.

    Trains a recipe with and without the part: at the same time, in two processes of one core each, with the same seed and
    the same first weights. Prints both curves, both scores and both outputs, and writes them as a page. Make a prediction
    before you read the result.

    mask         the decoder sees later tokens in training: can it cheat?

    positions    no positions are added to the embeddings: does order matter?

    scale        no division by the root of the head width: what does softmax do?

    residual     a sub-layer gives f(x), not x + f(x): does a deep stack learn?

    heads        one head, as wide as all four: can it look at two things at once?

    warmup       the learning rate begins at its peak: does training survive that?

    smoothing    the target gets all probability: how sure is the model then?

    ffn          layers of attention alone: what can a weighted mean not compute?

    norm         no LayerNorm: does a deep stack still learn?

    Without RECIPE each has a task of its own that shows it within a minute on two cores. A RECIPE has to be a Transformer;
    it is trained for at most 250 steps unless --steps says more.

    Examples:

      regard ablate mask

      regard ablate heads --seeds 3

      regard ablate sort positions --steps 400

      regard ablate my.toml smoothing --data ~/data --out runs/smoothing

    After Ctrl-C both runs are saved, and the same command resumes them. Runs that are finished are not trained again.
    """
    recipe, what = split_words(words)
    from regard.learn.ablations import make_sides

    make_sides(what, recipe)  # refuses what cannot be taken away, before the import of torch, which takes seconds
    from regard.cli.display import StatusLine
    from regard.learn.ablation_runs import PAGE, run_ablation
    from regard.learn.ablation_text import as_text

    stem = what if recipe is None else f"{Path(recipe).stem}-{what}"
    folder = out or Path("runs") / f"ablate-{stem}"
    with StatusLine("starting ...") as status:
        result = run_ablation(
            what,
            recipe,
            out=folder,
            seeds=list(range(seed, seed + seeds)),
            steps=steps,
            data=data,
            show=status.show,
        )
    print(printable(as_text(result)))
    print_message(f"wrote {folder / PAGE}")


def split_words(words: list[str]) -> tuple[str | None, str]:
    """Return the recipe, if there is one, and what to take away."""
    if len(words) > 2:
        raise ConfigError(f"{len(words)} words were given; write regard ablate [RECIPE] WHAT, as in regard ablate mask")
    return (words[0] if len(words) == 2 else None), words[-1]
