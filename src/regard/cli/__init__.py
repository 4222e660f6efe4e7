"""The command line: one short file a verb. Nothing here imports torch until a verb runs, so that --help is quick."""

from __future__ import annotations

import atexit
import os
import sys
import threading

import typer

from regard.cli import bench, card, data, demo, distill, doctor, evaluate, export, look, report, serve, train, translate
from regard.cli.say import console, say_error
from regard.cli.stopping import Terminated, exit_on_signals
from regard.cli.streams import discard, open_closed_streams
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Sequence-to-sequence with attention: train, translate, evaluate.\n\nBegin with:  regard demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (demo, train, translate, evaluate, card, look, report, serve, distill, export, doctor):
    app.command()(getattr(verb, verb.__name__.rsplit(".", 1)[-1]))
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """The `regard` command: our errors are one sentence and exit code 1; wrong usage is 2; a signal 128 plus its number."""
    # In milliseconds. PyTorch's allocator on Arm returns memory after 10 ms and needs it again in the next step (LOG.md,
    # "On a Neoverse N1"). Torch reads the variable when it is imported, which happens later.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
    open_closed_streams()
    exit_on_signals()
    code = _run()
    if threading.active_count() == 1:
        # Python would now take all of PyTorch apart, which is a good part of what a short command takes.
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


def _run() -> int:
    try:
        try:
            app()
        finally:
            console.file.flush()
            sys.stdout.flush()
    except Terminated as end:
        say_error(f"stopped by {end.name}")
        return end.status
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else bool(end.code)
    except RegardError as error:
        say_error(str(error))
        return 1
    except BrokenPipeError:  # the reader of our output has gone, as in `regard translate ... | head`
        discard(sys.stdout)
        return 1
    except OSError as error:  # a full disk, a folder that may not be written: the system's words are the best there are
        say_error(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return 1
    except KeyboardInterrupt:
        say_error("stopped")
        return 130
    return 0
