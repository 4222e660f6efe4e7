"""The command, the library and a worker of the server translate where torch cannot be imported."""

import json
import re
import subprocess
import sys
from inspect import signature

import msgspec
import pytest

from regard.cli import commands
from regard.cli.quick import parse_quickly
from regard.cli.translate_run import translate_run
from regard.config import SearchOptions
from regard.engine.bindings import library
from regard.errors import pip_install
from regard.run.finding import find_run
from regard.serve.worker_process import WorkerCommand, WorkerProcess

pytestmark = pytest.mark.skipif(library() is None, reason="the engine has not been compiled")

# Importing torch fails, as if it were not installed.
REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name=name)
sys.meta_path.insert(0, Refuse())
"""
MAIN = REFUSE + "from regard.cli import main\nmain()\n"
WORKER = REFUSE + "import runpy\nrunpy.run_module('regard.serve.worker', run_name='__main__', alter_sys=True)\n"


def python(code, *arguments, text=""):
    return subprocess.run([sys.executable, "-c", code, *arguments], input=text, capture_output=True, encoding="utf-8")


def test_the_command_translates():
    said = python(MAIN, "translate", "de-en", text="Wo ist der Bahnhof?\n\nDas Haus ist alt.\n")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines() == ["Where is the train station?", "", "The house is old."]


def test_the_command_translates_with_options_that_the_host_searches_with():
    more = ["--no-repeat-ngram", "3", "--beam", "4", "--nbest", "2", "--json"]
    said = python(MAIN, "translate", "de-en", *more, text="Siehe <b>hier</b>: https://example.org/a\n")
    assert (said.returncode, said.stderr) == (0, "")
    found = json.loads(said.stdout)["translations"]
    assert len(found) == 2 and "<b>here</b>" in found[0]["text"] and "https://example.org/a" in found[0]["text"]


def test_the_library_loads_translates_and_scores_without_importing_torch():
    code = (
        "import regard, sys\n"
        "translator = regard.load('de-en')\n"
        "print(translator.translate(['Wo ist der Bahnhof?'])[0])\n"
        "print(round(translator.score(['Danke.'], ['Thanks.'])[0].score) <= 0)\n"
        "print(any(name.partition('.')[0] == 'torch' for name in sys.modules))\n"
    )
    for before in (REFUSE, ""):
        said = python(before + code)
        assert (said.stdout.splitlines(), said.stderr) == (["Where is the train station?", "True", "False"], "")


def test_what_needs_torch_says_so_in_one_sentence():
    said = python(MAIN, "translate", "de-en", "--engine", "torch", text="Hallo\n")
    assert said.returncode == 1
    why = "de-en needs PyTorch (PyTorch was asked for), which is not installed"
    assert said.stderr == f"error: {why}: {pip_install('torch')}\n"
    said = python(REFUSE + "import regard\nregard.load('de-en').model")
    why = "this needs PyTorch, unlike translations, scores and traces; it is not installed"
    assert said.stderr.endswith(f"{why}: {pip_install('torch')}\n")


@pytest.mark.parametrize("words", [["train", "copy"], ["look", "--mask"], ["evaluate", "de-en"]], ids=" ".join)
def test_a_command_that_needs_torch_says_so_in_one_sentence(words):
    said = python(MAIN, *words)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == f"error: this needs PyTorch, which is not installed: {pip_install('torch')}\n"


def test_doctor_reports_that_torch_is_missing_and_that_the_engine_is_compiled():
    said = python(MAIN, "doctor")
    assert (said.returncode, said.stdout) == (0, "")
    assert re.search(r"^- +PyTorch +not installed\n +the engine translates without it", said.stderr, re.MULTILINE)
    assert pip_install("torch") in said.stderr
    assert re.search(r"^ok +engine +compiled; uses \w+", said.stderr, re.MULTILINE)


def test_given_translations_are_scored(tmp_path):
    for side, text in (("de", "Das Haus ist alt.\n"), ("en", "The house is old.\n")):
        (tmp_path / side).write_text(text)
    said = python(MAIN, "score", "de-en", "--source", str(tmp_path / "de"), "--target", str(tmp_path / "en"))
    assert (said.returncode, said.stdout) == (0, "-0.4215\n")


def test_a_worker_of_the_server_translates_streams_and_looks():
    command = WorkerCommand.for_runs([find_run("de-en").path], device="cpu", int8=False, threads=1)
    worker = WorkerProcess(WorkerCommand([sys.executable, "-c", WORKER, *command.arguments[3:]], command.environment))
    options = msgspec.structs.asdict(SearchOptions(beam=2))
    try:
        for number, kind in enumerate(("translate", "stream", "look")):
            task = {"id": number, "kind": kind, "model": 0, "sentences": ["Das Haus ist alt."], "seconds": 60}
            worker.send({**task, "options": options, "arguments": {}})
        found, ends = {}, []
        while len(ends) < 3:
            message = worker.receive(60) or {}
            if "end" in message:
                ends.append(message["end"])
            if "ready" in message:
                found[message["id"]] = message["ready"][0][1]
        assert ends == [None, None, None]
        assert found[0][0][0] == found[1] == found[2]["target"]["text"] == "The house is old."
    finally:
        worker.close()


def test_the_command_writes_a_page_and_draws_a_picture_of_a_translation(tmp_path):
    said = python(MAIN, "look", "de-en", "Das Haus ist alt.", "--out", str(tmp_path / "look.html"))
    assert (said.returncode, said.stdout) == (0, "The house is old.\n"), said.stderr
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    assert '"encoder-decoder"' in page and '"probabilities": [0.' in page
    pytest.importorskip("matplotlib")
    said = python(MAIN, "look", "de-en", "Das Haus ist alt.", "--png", "--out", str(tmp_path / "look.png"))
    assert said.returncode == 0 and (tmp_path / "look.png").stat().st_size > 0, said.stderr


def test_the_library_traces_a_translation_without_importing_torch():
    code = (
        "import json, regard, sys\n"
        "from regard.explain.trace_json import trace_as_json\n"
        "trace = regard.look('de-en', 'Das Haus ist alt.', beam=2, alternatives=1)\n"
        "found = json.loads(json.dumps(trace_as_json(trace)))\n"
        "print(found['target']['text'], len(found['probabilities']) == len(found['target']['tokens']))\n"
        "print(any(name.partition('.')[0] == 'torch' for name in sys.modules))\n"
    )
    for before in (REFUSE, ""):
        said = python(before + code)
        assert (said.stdout.splitlines(), said.stderr) == (["The house is old. True", "False"], "")


def test_the_server_can_be_imported():
    pytest.importorskip("fastapi")
    said = python(REFUSE + "import regard.serve.server, regard.serve.models\nprint('fine')")
    assert (said.stdout, said.stderr) == ("fine\n", "")


CALLS = [
    ["translate", "de-en"],
    ["translate", "de-en", "in.txt"],
    ["translate", "--beam", "3", "de-en", "--nbest=2", "--int8"],
    ["translate", "de-en", "--json", "--threads", "2", "--engine", "torch", "--device", "cpu", "--to", "en"],
]
OTHERS = [
    [],
    ["train", "copy"],
    ["translate"],
    ["translate", "--help"],
    ["translate", "de-en", "in.txt", "out.txt"],
    ["translate", "de-en", "--beam"],
    ["translate", "de-en", "--beam", "many"],
    ["translate", "de-en", "--beam", "-1"],
    ["translate", "de-en", "--int8=yes"],
    ["translate", "de-en", "--engine", "steam"],
    ["translate", "de-en", "--sample"],
    ["translate", "de-en", ""],
]


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_quick_call_means_what_the_command_line_means(words, monkeypatch):
    calls = []
    defaults = {name: one.default for name, one in signature(translate_run).parameters.items()}
    monkeypatch.setattr("regard.cli.translate_run.translate_run", lambda *given, **more: calls.append((given, more)))
    commands.app(words, standalone_mode=False)
    quick = parse_quickly(words)
    (run, file, search), more = calls[0]
    assert (quick.run, quick.file, quick.beam, quick.nbest) == (run, file, search["beam"], search["nbest"])
    names = ("to", "device", "engine", "int8", "threads", "as_json")
    assert {name: getattr(quick, name) for name in names} == {name: more[name] for name in names}
    assert (search["token_scores"] or False) is quick.as_json
    changed = {name for name, value in search.items() if value is not None} - {"beam", "nbest", "token_scores"}
    assert not changed and not {name for name in more if name not in names and more[name] != defaults[name]}


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_other_calls_are_left_to_the_command_line(words):
    assert parse_quickly(words) is None
