"""Commands that a message tells the user to try, run as they are printed."""

import contextlib
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from regard.cli import app
from regard.cli.terminal import command_name

COMMAND = re.compile(r'(?:echo "(?P<text>[^"]*)" \| )?(?P<program>.*regard) (?P<arguments>.*)')


def run_printed(command: str, *, cwd: Path) -> None:
    """Run a command in this process, because importing torch again takes seconds. What it pipes is read from a file."""
    found = COMMAND.fullmatch(command)
    # The path of the program is relative to the folder in which it is printed.
    with contextlib.chdir(cwd):
        assert found is not None and found["program"] == command_name(), command
    arguments = shlex.split(found["arguments"])
    if found["text"]:
        (cwd / "piped.txt").write_text(found["text"] + "\n")
        arguments.append("piped.txt")
    with contextlib.chdir(cwd):
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (command, result.output, result.exception)
