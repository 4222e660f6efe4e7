"""A wheel in an environment with the packages of requirements/deploy.txt alone: without PyTorch (docs/deploy.md)."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.engine_models import needs_engine
from tests.exchange.engine_environments import install_wheel, make_environment, run

pytestmark = [needs_engine, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SCRIPT = "import sys; from regard.cli import main; sys.exit(main())"
TEXT = "Wo ist der Bahnhof?"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """Python of an environment with a wheel and what it needs to translate and serve."""
    folder = tmp_path_factory.mktemp("deployed")
    names = re.findall(r"^([\w.-]+)==", (ROOT / "requirements/deploy.txt").read_text(encoding="utf-8"), flags=re.M)
    assert "torch" not in names and "numpy" in names
    python = make_environment(folder / "env", *(name for name in names if name not in ("colorama", "tzdata")))
    names = install_wheel(python, folder / "dist")
    kinds = {Path(name).suffix for name in names if name.startswith("regard/engine/")}
    assert ".c" not in kinds and ".h" not in kinds
    assert "No module named 'torch'" in run(python, "-c", "import torch").stderr
    return python


def test_translate(deployed):
    said = run(deployed, "-c", SCRIPT, "translate", "de-en", "--int8", input=TEXT + "\n")
    assert (said.returncode, said.stdout) == (0, "Where is the train station?\n"), said.stderr


def test_python(deployed):
    code = f"import regard; print(regard.load('de-en').translate([{TEXT!r}]))"
    said = run(deployed, "-c", code)
    assert (said.returncode, said.stdout) == (0, "['Where is the train station?']\n"), said.stderr


def test_what_needs_pytorch_says_so(deployed, tmp_path):
    for words in (["train", "copy", "--out", "run"], ["translate", "de-en", "--engine", "torch"]):
        said = run(deployed, "-c", SCRIPT, *words, cwd=tmp_path, input="")
        assert said.returncode == 1 and "Traceback" not in said.stderr, said.stderr
        assert "PyTorch" in said.stderr, said.stderr


def test_serve(deployed):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(deployed), "-c", SCRIPT, "serve", "de-en", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stderr is not None
        lines = []
        for line in server.stderr:
            lines.append(line)
            if found := re.search(r"at (http://\S+)", line):
                break
        assert lines and found, lines
        for path in ("translate", "look"):
            request = urllib.request.Request(
                f"{found[1]}/v1/{path}",
                json.dumps({"text": TEXT}).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert "train station" in json.dumps(json.load(answer))
    finally:
        server.send_signal(signal.SIGTERM)
        ends = time.monotonic() + 30
        while server.poll() is None and time.monotonic() < ends:
            time.sleep(0.1)
        server.kill()
