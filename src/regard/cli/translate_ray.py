"""regard translate --ray: its options, its progress display, and its final message."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

from rich.markup import escape

from regard.cli.signals import Terminated
from regard.cli.terminal import command_name, console, format_duration, print_message, print_warning, printable
from regard.errors import ConfigError

LINE_SECONDS = 5.0  # between two lines of progress without a terminal


def refuse_without_ray(**given: object) -> None:
    """Raise ConfigError if an option is given that has an effect only with --ray."""
    for name, value in given.items():
        if value is not None:
            shown = "OUTPUT" if name == "output" else "--" + name.replace("_", "-")
            raise ConfigError(f"{shown} needs --ray; without --ray, translations are printed to standard output")


def translate_with_ray(run: Path, source: str, output: Path | None, search: dict[str, Any], **others: Any) -> None:
    """Translate into a folder, and show the progress."""
    if output is None or source == "-":
        raise ConfigError(
            "--ray needs an INPUT (a file, a folder or a pattern) and an OUTPUT folder: "
            f"{command_name()} translate {run} INPUT OUTPUT --ray"
        )
    from regard.cluster.corpus import translate_corpus
    from regard.run.pretrained import find_run

    options = find_run(run).recipe().decode.replace(**search)
    given = {name: value for name, value in others.items() if value is not None}
    try:
        with RayDisplay() as display:
            outcome = translate_corpus(
                run, source, output, options=options, on_event=display, warn=print_warning, **given
            )
    except (KeyboardInterrupt, Terminated):
        print_message(f"finished shards are kept; resume with: {command_name()} {shlex.join(sys.argv[1:])}")
        raise
    done = f"translated {outcome.translated} of {outcome.shards} shards" if outcome.translated else "nothing to do"
    join = f"cat {outcome.pattern}" if outcome.pattern.endswith(".txt") else f"read {outcome.pattern} in order of names"
    print_message(f"{done}; {outcome.lines:,} lines are in {output}   to join them: {join}")


class RayDisplay:
    """Shows lines, rate and time left: on a terminal one line that is updated, elsewhere one line every few seconds."""

    def __init__(self) -> None:
        self.status = console.status("reading the text and connecting to the cluster ...")
        self.workers = 0
        self.last_line = 0.0

    def __enter__(self) -> RayDisplay:
        if console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.status.stop()

    def __call__(self, event: Any) -> None:
        from regard.cluster.corpus import ShardDone, WorkerReady

        if isinstance(event, WorkerReady):
            self.workers += 1
            self._show(f"worker {self.workers} is ready: process {event.process} on {event.machine}")
        elif isinstance(event, ShardDone):
            rate = event.translated / max(event.seconds, 1e-9)
            total = event.translated + event.left
            left = format_duration(event.left / rate)
            self._show(f"{event.translated:,}/{total:,} lines  {rate:,.0f} lines/s  {left} left", last=not event.left)

    def _show(self, text: str, *, last: bool = False) -> None:
        if console.is_terminal:
            self.status.update(escape(printable(text)))
        elif last or time.monotonic() - self.last_line >= LINE_SECONDS:
            self.last_line = time.monotonic()
            print_message(text)
