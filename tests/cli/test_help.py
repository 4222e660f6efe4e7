"""What every command prints for --help on a terminal of 80 columns."""

import pytest
import typer
from typer.testing import CliRunner

from regard.cli import app


def all_commands(command, words=()):
    """Yield the words of every command, and the command."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner, (*words, name))


COMMANDS = dict(all_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_line_of_an_example_is_wider_than_a_terminal_of_80_columns(words):
    # Examples, and listings of files or settings, are indented, or have columns.
    text = COMMANDS[words].help.replace("\\[", "[")
    examples = [line.strip() for line in text.splitlines() if line.startswith("  ") or "   " in line]
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}).output
    assert [line for line in examples if line not in [line.strip() for line in shown.splitlines()]] == []


def test_every_comment_of_an_example_stands_above_its_command():
    for words, command in COMMANDS.items():
        lines = [line.strip() for line in command.help.split("Examples:")[-1].splitlines() if line.startswith("  ")]
        assert [line for line in lines if line.startswith("regard ") and "   " in line] == [], words
