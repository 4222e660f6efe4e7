"""regard tune"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import UNFINISHED, StopRequest, command_name, print_message, printable


def tune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The search, a .toml file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Its folder. Default: runs/NAME of the file.", show_default=False)
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    at_once: Annotated[
        int | None, typer.Option(help="Trials to train at the same time.", min=1, show_default=False)
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Save and stop after this many seconds; the same command resumes.", min=1, show_default=False
        ),
    ] = None,
) -> None:
    r"""Search for better settings of a recipe, and compare the best with the recipe over several seeds.

    A search is a .toml file:

      recipe = "reverse"             # an included recipe, or a .toml file

      metric = "exact"               # on the dev set

      trials = 20                    # refused ones count

      seeds = \[1, 2, 3]              # of the final comparison

      \[settings]                     # of every trial, as in regard train

      "train.steps" = 400

      \[search]                       # a range, or a list of values

      "train.lr" = { low = 1e-4, high = 1e-2, log = true }

      "model.norm_order" = \["pre", "post"]

    Optuna proposes the trials; if it is not installed, the command says how to install it. Each trial is a row of the study
    FOLDER/study.toml. The best one on the dev set is then trained with all seeds, as the recipe is, and both are compared on
    the test sets: FOLDER/best.toml.

    Examples:

      regard tune search.toml

      regard tune search.toml --data ~/data --out runs/search --at-once 4

      # all trials
      regard study show runs/search/study.toml --out runs/search

    A trial that the recipe refuses counts as one without a score: FOLDER/refused.toml says why. No settings are tried twice.
    The same command resumes a search that was stopped, or whose file has more trials now.

    Exit status: 0 if the search has ended; 1 if no trial has a score, or if a cell of the comparison failed; 3 if the
    time limit --seconds was reached first; if stopped, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """
    from regard.study.tuning.tuning_file import read_tuning

    found = read_tuning(file)  # refuses mistakes before the import of torch, which takes seconds
    from regard.cli.display import StatusLine
    from regard.study.result.collected import collect
    from regard.study.result.table_formats import as_text
    from regard.study.study_file import read_study
    from regard.study.tuning.search import BEST_STUDY, TRIALS_STUDY
    from regard.study.tuning.search import tune as run_tune

    folder = out or Path("runs") / file.stem
    with StopRequest() as stop, StatusLine("starting ...") as status:
        done = run_tune(
            found,
            out=folder,
            data=data,
            at_once=at_once,
            seconds=seconds,
            show=status.show,
            tell=print_message,
            stop=stop,
        )
    if not done.ended:
        print_message(f"resume with: {command_name()} {shlex.join(sys.argv[1:])}")
        raise typer.Exit(stop.status if stop() else UNFINISHED)
    shown = read_study(folder / TRIALS_STUDY) if done.best is None else done.best
    print(printable(as_text(collect(shown, folder, data=data).result())), end="")
    for record in done.failed:
        print_message(f"failed: {record.row}, seed {record.seed}: {record.problem}")

    def show(study: str) -> str:
        """Return the command that shows a study of this folder."""
        options = ["--out", str(folder), *([] if data is None else ["--data", str(data)])]
        return f"{command_name()} {shlex.join(['study', 'show', str(folder / study), *options])}"

    print_message(
        f"files of these tables, and a bundle: {show(TRIALS_STUDY if done.best is None else BEST_STUDY)} --bundle NEW_FOLDER"
    )
    if done.best is not None:
        print_message(f"all trials, in place of these files: {show(TRIALS_STUDY)}")
    if done.failed:
        raise typer.Exit(1)
