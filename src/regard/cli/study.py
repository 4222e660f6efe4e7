"""regard study"""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.paths import refuse_to_replace
from regard.cli.terminal import (
    UNFINISHED,
    StopRequest,
    command_name,
    print_error,
    print_message,
    print_warning,
    printable,
)
from regard.errors import ConfigError
from regard.messages import counted

if TYPE_CHECKING:
    from regard.study.study_file import Study

app = typer.Typer(
    help="Answer a question by training: rows of settings, several seeds, significance against a baseline.",
    no_args_is_help=True,
)


@app.callback()
def study() -> None:
    """Answer a question by training: rows of settings, several seeds, significance against a baseline."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study, a .toml file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Its folder. Default: runs/NAME of the file.", show_default=False)
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    at_once: Annotated[
        int | None,
        typer.Option(help="Cells to train at the same time. Default: one per GPU.", min=1, show_default=False),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Save and stop after this many seconds; the same command resumes.", min=1, show_default=False
        ),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry/--no-retry", help="Whether to train cells again that failed in an earlier call.")
    ] = True,
    slurm: Annotated[
        Path | None,
        typer.Option(metavar="SCRIPT", help="Write a batch script for Slurm, and train nothing.", show_default=False),
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Train on a Ray cluster that shares the folder and the data.")
    ] = False,
) -> None:
    r"""Train and score all cells of a study that are missing: every row with every seed.

    A study is a .toml file:

      question = "Do more layers help?"

      recipe = "reverse"             # an included recipe, or a .toml file

      metric = "exact"               # what is tested; others are reported

      seeds = \[1, 2, 3]

      \[settings]                     # of every row, as in regard train

      "train.steps" = 400

      \[choose]                       # tried for each row with one seed

      "train.lr" = \[1e-3, 3e-3]      # the best on the dev set is kept

      \[rows.base]                    # the first row is the baseline

      \[rows."1 layer"]

      settings = { "model.num_layers" = 1 }

    In place of rows, \[grid] lists values, and every combination is a row. More keys: docs/study.md.

    Each cell is trained in a process of its own, resumed where it was stopped, scored on the dev set and all test sets, and
    never trained again once it has finished. A cell that diverges or fails does not stop the others. Any number of these
    commands may share a folder, also on several machines. FOLDER/study.html shows the grid while it fills.

    Examples:

      regard study run layers.toml

      regard study run table3.toml --data ~/data --out runs/table3 --at-once 4

      # in parts of nine minutes
      regard study run layers.toml --seconds 540

      # as an array of jobs
      regard study run layers.toml --slurm job.sh && sbatch job.sh

      # two cells per GPU of a cluster
      regard study run layers.toml --ray --at-once 2

    Exit status: 0 if all cells have ended, diverged ones included; 1 if some failed; 3 if the time limit
    --seconds was reached first; if stopped, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """
    from regard.study.study_file import read_study

    found = read_study(file)  # refuses mistakes before the import of torch, which takes seconds
    folder = out or Path("runs") / file.stem
    if slurm is not None:
        if ray or seconds is not None:
            raise ConfigError("--slurm only writes a script; leave out --ray and --seconds")
        write_script(slurm, found, file, folder, data, at_once)
        return
    from regard.cli.display import StatusLine
    from regard.study.running.grid_page import PAGE
    from regard.study.running.runner import run_study
    from regard.study.study_file import describe_settings

    with ExitStack() as stack:
        start = None
        if ray:
            from regard.cluster.pool import connected
            from regard.study.running.ray_cells import ray_start

            start, at_once = ray_start(stack.enter_context(connected()), per_gpu=at_once or 1)
        # After Ray, which has handlers of its own.
        stop, status = stack.enter_context(StopRequest()), stack.enter_context(StatusLine("starting ..."))
        state = run_study(
            found,
            out=folder,
            data=data,
            at_once=at_once,
            seconds=seconds,
            show=status.show,
            warn=print_warning,
            stop=stop,
            start=start,
            retry_failed=retry,
        )
    for record in state.records:
        if record.state != "finished":
            candidate = f" with {describe_settings(record.candidate)}" if record.candidate else ""
            print_message(f"{record.state}: {record.row}{candidate}, seed {record.seed}: {record.problem}")
    remaining = len(state.open_cells())
    if remaining:
        again = f"{command_name()} {shlex.join(sys.argv[1:])}"
        print_message(f"{len(state.records)} of {state.total} cells have ended; resume with: {again}")
        raise typer.Exit(stop.status if stop() else UNFINISHED)
    print_message(f"all cells have ended: {folder / PAGE}")
    if state.count("failed"):
        raise typer.Exit(1)


def write_script(path: Path, study: Study, file: Path, out: Path, data: Path | None, at_once: int | None) -> None:
    """Write a batch script for Slurm, after all that it would refuse has been checked."""
    from regard.study.checks import check_study
    from regard.study.running.slurm import slurm_script

    refuse_to_replace(path, "sbatch", option="--slurm")
    check_study(study, data=data, warn=print_warning)
    path.write_text(slurm_script(study, file, out=out, data=data, at_once=at_once), encoding="utf-8")
    print_message(f"wrote {path}; adapt its first lines to your cluster, then: sbatch {path}")


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study, a .toml file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Its folder. Default: runs/NAME of the file.", show_default=False)
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Write a bundle to this new folder, which others can check.", show_default=False),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(help="Random exchanges of the test over sentences: more give finer p-values.", min=1),
    ] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what a study has found so far: scores of all rows over seeds, and which of them differ from the baseline.

    Writes the same as study.json, table.md, table.tex, table.txt, figure.svg and figure.pdf into the folder of the study.

    There are two tests: over seeds, and, for metrics with per-sentence statistics, over sentences. A row is better or worse
    if all of them find a difference, and unclear if only one of two does. p-values are corrected for the number of rows.

    A bundle contains these results and everything they were derived from, except the test sets: records, outputs, statistics
    of each sentence, run cards, and the hash of every file. It is small enough to publish; regard study check recomputes its
    numbers.

    Examples:

      regard study show layers.toml

      regard study show table3.toml --out runs/table3 --bundle table3
    """
    from regard.metrics.significance import Sampling
    from regard.study.bundle.bundle_writing import refuse_full, write_bundle
    from regard.study.result.collected import collect
    from regard.study.result.deriving import check_sampling
    from regard.study.result.result_files import result_files, save_result
    from regard.study.result.table_formats import as_text
    from regard.study.study_file import read_study

    sampling = Sampling(trials=trials)
    check_sampling(sampling)
    if bundle is not None:
        refuse_full(bundle)
    folder = out or Path("runs") / file.stem
    collected = collect(read_study(file), folder, data=data, tell=print_message)
    if not collected.records:
        raise ConfigError(f"no cell has ended in {folder}; train with: regard study run {file} --out {folder}")
    print_message("deriving the result ...")
    result = collected.result(sampling)
    files = result_files(result, print_warning)
    save_result(folder, files)
    print(files["study.json"].decode() if as_json else printable(as_text(result)), end="")
    print_message(f"wrote {', '.join(files)} to {folder}")
    if not result.complete:
        print_warning("the study is not complete: some cells are missing, diverged or failed")
    if bundle is not None:
        hashes = write_bundle(bundle, collected, folder, files)
        print_message(
            f"wrote {len(hashes):,} files and MANIFEST to {bundle}; check them with: regard study check {bundle}"
        )


@app.command()
def check(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder of a bundle.", show_default=False)],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the test sets: scores are computed again from outputs too.", show_default=False),
    ] = None,
) -> None:
    """Derive the scores of the tested metric, the tests and the tables of a bundle again, and name each value that differs.

    Checks the hash of every file, the records against the outputs and the statistics of each sentence, and the result and
    the tables against the records; nothing is trained. With --data also all scores of outputs against the references.
    Other metrics (without --data), perplexity, times and sizes are taken from the records.

    Examples:

      regard study check table3

      regard study check table3 --data ~/data

    Exit status: 0 if nothing differs, 1 if something differs.
    """
    from regard.study.bundle.bundle_check import check_bundle

    found = check_bundle(bundle, data=data, tell=print_message)
    for note in found.notes:
        print_message(f"note: {note}")
    for problem in found.problems:
        print_error(problem)
    if found.problems:
        raise typer.Exit(1)
    print(
        f"{bundle} is correct: {counted(found.files, 'file')} match their hashes; {counted(len(found.derived), 'file')} "
        f"with {counted(found.values, 'value')} were recomputed from {counted(found.cells, 'cell')}"
    )
