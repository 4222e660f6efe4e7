"""regard translate --ray: the options that only it has, what it shows, and what it says at the end."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

from rich.markup import escape

from regard.cli.say import console, own_name, say, warn
from regard.cli.stopping import Terminated
from regard.cli.streams import printable
from regard.errors import ConfigError

SAY_SECONDS = 5.0  # between two lines of progress where there is no terminal


def refuse_without_ray(**given: object) -> None:
    """An option that nobody would hear is a mistake."""
    for name, value in given.items():
        if value is not None:
            shown = "OUTPUT" if name == "output" else "--" + name.replace("_", "-")
            raise ConfigError(f"{shown} goes with --ray; without it translations go to the standard output")


def translate_with_ray(run: Path, source: str, output: Path | None, search: dict[str, Any], **others: Any) -> None:
    """Translates into a folder, and shows how far it is."""
    if output is None or source == "-":
        raise ConfigError(
            "--ray needs an INPUT (a file, a folder or a pattern) and an OUTPUT folder: "
            f"{own_name()} translate {run} INPUT OUTPUT --ray"
        )
    from regard.cluster.corpus import translate_corpus
    from regard.decoding.translator import search_options
    from regard.run.pretrained import find_run

    options = search_options(find_run(run).recipe().decode, **search)
    given = {name: value for name, value in others.items() if value is not None}
    try:
        with Display() as display:
            outcome = translate_corpus(run, source, output, options=options, on_event=display, warn=warn, **given)
    except (KeyboardInterrupt, Terminated):
        say(f"finished shards are kept; go on with: {own_name()} {shlex.join(sys.argv[1:])}")
        raise
    done = f"{outcome.translated} of {outcome.shards} shards translated" if outcome.translated else "nothing to do"
    join = f"cat {outcome.pattern}" if outcome.pattern.endswith(".txt") else f"read {outcome.pattern} in order of names"
    say(f"{done}, {outcome.lines:,} lines are in {output}   to join them: {join}")


class Display:
    """Lines, rate and time left: on a terminal one line that changes, elsewhere a line now and then."""

    def __init__(self) -> None:
        self.status = console.status("looking at the text and the cluster ...")
        self.workers = 0
        self.said = 0.0

    def __enter__(self) -> Display:
        if console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.status.stop()

    def __call__(self, event: Any) -> None:
        from regard.cli.clock import clock
        from regard.cluster.corpus import ShardDone, WorkerReady

        if isinstance(event, WorkerReady):
            self.workers += 1
            self._show(f"worker {self.workers} is ready: process {event.process} on {event.machine}")
        elif isinstance(event, ShardDone):
            rate = event.translated / max(event.seconds, 1e-9)
            total = event.translated + event.left
            left = clock(event.left / rate)
            self._show(f"{event.translated:,}/{total:,} lines  {rate:,.0f} lines/s  {left} left", last=not event.left)

    def _show(self, text: str, *, last: bool = False) -> None:
        if console.is_terminal:
            self.status.update(escape(printable(text)))
        elif last or time.monotonic() - self.said >= SAY_SECONDS:
            self.said = time.monotonic()
            say(text)
