"""regard report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message
from regard.errors import ConfigError

BEGINNING = 1000  # bytes that are compared
# What the beginning of our pages, pictures of each kind, numbers of `regard probe`, and scripts for Slurm contains.
MARKS = {
    "html": b"default-src 'none'", "svg": b"<svg", "png": b"\x89PNG", "json": b'"probe": "', "sbatch": b"#SBATCH"
}  # fmt: skip
KINDS = {"html": "a page of regard", "json": "a result of regard probe", "sbatch": "a batch script for Slurm"}


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders. They may still be training.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file. Default: RUN/report.html, or report.html for several.")
    ] = None,
) -> None:
    """Write the report of a run, or of several side by side: curves, scores, examples over training, cost.

    Training keeps RUN/report.html up to date. This command writes it again, with the card if there is one.

    Examples:

      regard report runs/dates

      regard report runs/small runs/large --out both.html
    """
    from regard.explain.report import as_report, write_report
    from regard.run.finding import find_run
    from regard.run.folder import REPORT

    folders = [find_run(run) for run in runs]
    if out is None and len(folders) == 1:
        write_report(folders[0])
        print_message(f"wrote {folders[0].path / REPORT}")
        return
    path = out or Path(REPORT)
    refuse_to_replace(path, "html")
    path.write_text(as_report(folders), encoding="utf-8")
    print_message(f"wrote {path}")


def refuse_to_replace(path: Path, kind: str, *, option: str = "--out") -> None:
    """Raise ConfigError if there is a file that a page, picture or result of this kind would replace, and it is not one."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file with {option}, such as {path / f'regard.{kind}'}")
    if not path.is_file():
        return
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    if beginning and MARKS[kind] not in beginning:
        what = KINDS.get(kind, f"a picture ({kind})")
        raise ConfigError(f"{path} is there already and is not {what}; name another file with {option}, or remove it")
