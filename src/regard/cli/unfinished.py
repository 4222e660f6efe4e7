"""What a command prints if the run that it uses is still training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.cli.terminal import print_message
from regard.run.finding import find_run


def note_unfinished(runs: Sequence[Path]) -> None:
    """Print how far each of these runs is, unless it is finished."""
    for run in runs:
        if unfinished := find_run(run).unfinished():
            print_message(unfinished)
