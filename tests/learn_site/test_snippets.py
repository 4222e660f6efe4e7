"""The code of the chapters runs: commands (`sh`), and Python (`run`), which prints what the page shows (`output`)."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.learn.sources import PAGES
from tests.commands import folder_of_command

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(run|output)\n(.*?)^```", flags=re.M | re.S)
CHAPTERS = [path for path in sorted((PAGES / "en").glob("*.md")) if "```run\n" in path.read_text(encoding="utf-8")]
SHELL = re.compile(r"^```sh\n(.*?)^```", flags=re.M | re.S)
COMMANDS = [path for path in sorted((PAGES / "en").glob("*.md")) if SHELL.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_snippets_print_what_the_page_shows(path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where a reader who types them would be: `examples` is there
    monkeypatch.syspath_prepend(str(ROOT))
    names, printed = {"__name__": path.stem}, ""
    with torch.random.fork_rng():
        for kind, text in FENCED.findall(path.read_text(encoding="utf-8")):
            if kind == "run":
                written = io.StringIO()
                with contextlib.redirect_stdout(written):
                    exec(compile(text, f"{path.name}", "exec"), names)
                printed = written.getvalue()
            else:
                assert text == printed


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_commands_run(path, tmp_path):
    places = f"{folder_of_command()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": places, "OMP_NUM_THREADS": "1"}
    for text in SHELL.findall(path.read_text(encoding="utf-8")):
        command = ["bash", "-euo", "pipefail", "-c", text]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"
