"""The command line, one file per command. torch is imported when a command runs, so that --help is fast."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Annotated

import typer

import regard
from regard.cli import (
    adapt,
    align,
    bench,
    calibrate,
    card,
    compare,
    data,
    demo,
    distill,
    doctor,
    evaluate,
    export,
    import_model,
    look,
    report,
    score,
    serve,
    train,
    translate,
    verify,
)
from regard.cli.terminal import (
    Terminated,
    console,
    exit_on_signals,
    open_closed_streams,
    print_error,
    redirect_to_null,
    write_utf8,
)
from regard.errors import RegardError

app = typer.Typer(
    name="regard",
    help="Sequence-to-sequence with attention: train, translate, evaluate, explain and serve.\n\nStart with:  regard demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Declare the options that stand before a command; callbacks of the options do the work."""


for module in (
    demo,
    train,
    translate,
    align,
    evaluate,
    compare,
    score,
    calibrate,
    card,
    look,
    report,
    serve,
    adapt,
    distill,
    export,
    verify,
    doctor,
):
    app.command()(getattr(module, module.__name__.rsplit(".", 1)[-1]))
app.command("import")(import_model.import_model)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Run the `regard` command. Exit codes: 1 for an error explained in one sentence, 2 for wrong usage, 128 + signal."""
    # In milliseconds. PyTorch's allocator on Arm returns memory after 10 ms and needs it again in the next step (LOG.md,
    # "On a Neoverse N1"). Torch reads the variable when it is imported, which happens later.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
    open_closed_streams()
    write_utf8()
    exit_on_signals()
    code = _run()
    if threading.active_count() == 1:
        # Skip the teardown of PyTorch, which takes a large part of the time of a short command.
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
        print_error(f"stopped by {end.name}")
        return end.status
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else bool(end.code)
    except RegardError as error:
        print_error(str(error))
        return 1
    except BrokenPipeError:
        # The reader of stdout has ended, as in `regard translate ... | head`.
        redirect_to_null(sys.stdout)
        return 1
    except OSError as error:
        # For a full disk or a read-only folder, the message of the system is the best explanation.
        print_error(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return 1
    except KeyboardInterrupt:
        print_error("stopped")
        return 130
    return 0
