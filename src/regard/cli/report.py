"""regard report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import say


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; they may still be training.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; RUN/report.html, or report.html for several runs.")
    ] = None,
) -> None:
    """Write the report of a run, or of several side by side: curves, scores, examples as they improved, cost.

    Training keeps RUN/report.html up to date by itself; this makes it anew, with the card where there is one.

    Examples:

      regard report runs/dates

      regard report runs/small runs/large --out both.html
    """
    from regard.explain.report import as_report, write_report
    from regard.run.folder import REPORT
    from regard.run.pretrained import find_run

    folders = [find_run(run) for run in runs]
    if out is None and len(folders) == 1:
        write_report(folders[0])
        say(f"written to {folders[0].path / REPORT}")
        return
    path = out or Path(REPORT)
    path.write_text(as_report(folders), encoding="utf-8")
    say(f"written to {path}")
