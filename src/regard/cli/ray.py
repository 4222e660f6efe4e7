"""regard translate --ray: many workers, which write shards into a folder."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from regard.cli.terminal import Terminated, command_name, print_message, print_warning
from regard.config import SearchOptions
from regard.errors import ConfigError
from regard.messages import counted


def translate_with_ray(run: Path, source: str, output: Path | None, search: dict[str, Any], **others: Any) -> None:
    """Translate into a folder, and show the progress."""
    if output is None or source == "-":
        raise ConfigError(
            "--ray needs an INPUT (a file, a folder or a pattern) and an OUTPUT folder: "
            f"{command_name()} translate {run} INPUT OUTPUT --ray"
        )
    from regard.cluster.corpus import translate_corpus

    options = SearchOptions().replace(**search)
    given = {name: value for name, value in others.items() if value is not None}
    try:
        with RayDisplay() as display:
            outcome = translate_corpus(
                run, source, output, options=options, on_event=display, warn=print_warning, **given
            )
    except (KeyboardInterrupt, Terminated):
        print_message(f"finished shards are kept; resume with: {command_name()} {shlex.join(sys.argv[1:])}")
        raise
    shards = counted(outcome.shards, "shard")
    done = f"translated {outcome.translated} of {shards}" if outcome.translated else "nothing to do"
    join = f"cat {outcome.pattern}" if outcome.pattern.endswith(".txt") else f"read {outcome.pattern} in order of names"
    print_message(f"{done}; {output} holds {counted(outcome.lines, 'line')}   to join them: {join}")


class RayDisplay:
    """Shows workers, lines, rate and time left."""

    def __init__(self) -> None:
        from regard.cli.display import StatusLine

        self.status = StatusLine("reading the text and connecting to the cluster ...")
        self.workers = 0

    def __enter__(self) -> RayDisplay:
        self.status.__enter__()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.status.__exit__(*exit_details)

    def __call__(self, event: Any) -> None:
        from regard.cli.display import describe_lines
        from regard.cluster.corpus import ShardDone, WorkerReady

        if isinstance(event, WorkerReady):
            self.workers += 1
            self.status.show(f"worker {self.workers} is ready: process {event.process} on {event.machine}")
        elif isinstance(event, ShardDone):
            text = describe_lines(event.translated, event.translated + event.left, event.seconds)
            self.status.show(text, last=not event.left)
