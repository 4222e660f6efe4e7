"""The command line. What a command needs is imported when it runs, so that the first translation is there at once."""

from __future__ import annotations

import os
import sys
from typing import Any

from regard.cli.quick import run_quickly
from regard.cli.terminal import (
    Terminated,
    exit_on_signals,
    flush_messages,
    open_closed_streams,
    print_error,
    redirect_to_null,
    write_utf8,
)
from regard.errors import RegardError, pip_install
from regard.process_end import end_process


def __getattr__(name: str) -> Any:
    if name == "app":
        from regard.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run the `regard` command. Exit codes: 1 for an error explained in one sentence, 2 for wrong usage, 128 + signal."""
    # In milliseconds. PyTorch's allocator on Arm returns memory after 10 ms and needs it again in the next step (LOG.md,
    # "On a Neoverse N1"). Torch reads the variable when it is imported, which happens later.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
    open_closed_streams()
    write_utf8()
    exit_on_signals()
    end_process(_run(sys.argv[1:]))


def _run(words: list[str]) -> int:
    try:
        try:
            if not run_quickly(words):
                from regard.cli.commands import app

                app()
        finally:
            flush_messages()
            sys.stdout.flush()
    except Terminated as end:
        print_error(f"stopped by {end.name}")
        return end.status
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else bool(end.code)
    except RegardError as error:
        print_error(str(error))
        return 1
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        # A deployment without it translates with the engine (docs/deploy.md).
        print_error(f"this needs PyTorch, which is not installed: {pip_install('torch')}")
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
