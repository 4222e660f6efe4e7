"""regard report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.paths import refuse_to_replace
from regard.cli.terminal import print_message


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
