"""Registries of named entries, and plug-ins: what they add, and what a broken one does."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from regard.errors import CheckpointError, ConfigError
from regard.registry import Registry
from regard.storage.folder import Folder
from regard.text.tokenizer import TOKENIZERS, TokenizerKind, register_tokenizer
from regard.text.tokenizer_pair import load_tokenizers, train_tokenizers
from tests.shared import make_once


@pytest.fixture
def colours():
    registry = Registry("colour")
    registry.register("red", 1)
    registry.register("green", 2)
    return registry


def test_names_are_listed_in_the_order_of_registration(colours):
    assert colours.names() == ("red", "green")
    assert colours.get("green", where="paint") == 2


def test_an_unknown_name_answers_with_its_nearest_neighbour(colours):
    with pytest.raises(ConfigError, match=r"^paint\.kind is 'gren'; did you mean 'green'\?$"):
        colours.get("gren", where="paint.kind")
    with pytest.raises(ConfigError, match=r"^paint\.kind is 7; known: green, red$"):
        colours.get(7, where="paint.kind")


def test_a_name_is_registered_once_unless_it_is_to_be_replaced(colours):
    with pytest.raises(ConfigError, match="a colour called 'red' is registered already"):
        colours.register("red", 3)
    colours.register("red", 3, replace=True)
    assert colours.get("red", where="paint") == 3


def test_a_tokenizer_must_have_the_kind_it_is_registered_under(monkeypatch):
    monkeypatch.setattr(TOKENIZERS, "_entries", dict(TOKENIZERS._entries))
    words = TOKENIZERS.get("word", where="kind")
    register_tokenizer(
        "mine", TokenizerKind(lambda texts, kind, **rest: words.train(texts, kind="word", **rest), words.load)
    )
    with pytest.raises(ConfigError, match="the tokenizer registered as 'mine' has the kind 'word'; they must be equal"):
        train_tokenizers([("a", "b")], kind="mine", size=10, joint=True)


# Plug-ins. Each test writes a distribution as pip leaves it in site-packages, and asks in a process of its own.


def install(folder, module, entry_point, code):
    """Write a distribution `regard-MODULE` with one module and one entry point."""
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"regard_{module}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: regard-{module}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[regard.plugins]\n{module} = {entry_point}\n")


def answers(folder, code):
    """Run code with the folder on the path; return what it prints, and what it prints to stderr."""
    path = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    ran = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, check=True)
    return ran.stdout.split(), ran.stderr


REGISTERS = """
    print("loaded")
    def register():
        from regard.text.tokenizer import TokenizerKind, TOKENIZERS, register_tokenizer
        print(len(TOKENIZERS.names()))
        register_tokenizer("reversed", TokenizerKind(None, None))
"""
ASK = "from regard.text.tokenizer import TOKENIZERS\n"


def test_a_plug_in_is_loaded_once_when_a_name_is_missing(tmp_path):
    install(tmp_path, "good", "good:register", REGISTERS)
    ask = "print(TOKENIZERS.get('reversed', where='kind') is not None, *TOKENIZERS.names())"
    found, errors = answers(tmp_path, ASK + ask)
    assert found == ["loaded", "5", "True", "bpe", "unigram", "char", "word", "sentencepiece", "reversed"]
    assert errors == ""


def test_importing_and_asking_for_what_is_built_in_load_no_plug_in(tmp_path):
    install(tmp_path, "good", "good:register", REGISTERS)
    ask = "import regard, regard.text.tokenizer\nTOKENIZERS.get('bpe', where='kind')"
    assert answers(tmp_path, ASK + ask) == ([], "")


@pytest.mark.parametrize(
    ("entry_point", "code", "reason"),
    [
        ("bad:register", "import absent_package", "ModuleNotFoundError: No module named 'absent_package'"),
        ("bad:register", "def register(): 1 / 0", "ZeroDivisionError: division by zero"),
        ("bad:register", "raise SystemExit(3)", "SystemExit: 3"),
        ("bad:enrol", "def register(): pass", "AttributeError: module 'bad' has no attribute 'enrol'"),
        ("bad", "", "'bad' is not a function; name one, as in 'my_package:register'"),
        (
            "bad:register",
            "from regard.text.tokenizer import register_tokenizer\ndef register(): register_tokenizer('bpe', None)",
            "a tokenizer called 'bpe' is registered already; choose another name",
        ),
    ],
)
def test_a_plug_in_that_fails_is_reported_in_one_sentence_and_breaks_nothing_else(tmp_path, entry_point, code, reason):
    install(tmp_path, "bad", entry_point, code)
    install(tmp_path, "good", "good:register", REGISTERS)
    found, errors = answers(tmp_path, ASK + "print(*TOKENIZERS.names(), *TOKENIZERS.names())")
    assert found[2:] == ["bpe", "unigram", "char", "word", "sentencepiece", "reversed"] * 2
    assert errors == f"the plug-in 'bad' of regard-bad 1.5 could not be loaded: {reason}\n"


def test_a_missing_name_says_which_plug_in_could_not_be_loaded(tmp_path):
    install(tmp_path, "bad", "bad:register", "import absent_package")
    ask = """
from regard.errors import ConfigError
try:
    TOKENIZERS.get('mine', where='tokenizer.kind')
except ConfigError as error:
    print(error)
"""
    found, _ = answers(tmp_path, ASK + ask)
    sentence = " ".join(found)
    assert sentence.startswith(
        "tokenizer.kind is 'mine'; known: bpe, char, sentencepiece, unigram, word (the plug-in 'bad' of "
    )


# The example: a package of its own, installed as pip installs it


PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
RECIPE = """
[data]
train = { pairs = "pairs.tsv" }
valid = { pairs = "pairs.tsv" }
test = { easy = { pairs = "pairs.tsv" } }

[model]
kind = "transformer"
width = 16
num_heads = 2
num_layers = 1

[tokenizer]
kind = "bytes"

[train]
steps = 4
checkpoint_every = 2
tokens = 256
metric = "char_errors"
final = "best"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder that holds a recipe for the plug-in, and the environment of a process that has it installed."""

    def make(folder):
        shutil.copytree(PLUGIN, folder / "source")
        options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site")]
        subprocess.run([*command, str(folder / "source")], check=True, capture_output=True)
        (folder / "mine.toml").write_text(RECIPE)
        (folder / "pairs.tsv").write_text("".join(f"Größe {n}\tsize {n}\n" for n in range(40)), encoding="utf-8")

    folder = make_once(tmp_path_factory, "plug-in", make)
    path = os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])
    return folder, {**os.environ, "PYTHONPATH": path}


@pytest.fixture(scope="module")
def trained(installed, tmp_path_factory):
    folder, environment = installed

    def make(made):
        command = [sys.executable, "-m", "regard", "train", "mine.toml", "--out", str(made / "run")]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)

    return make_once(tmp_path_factory, "plug-in-run", make) / "run"


@pytest.mark.slow
def test_a_run_trains_with_the_tokenizer_and_the_metric_of_a_plug_in(trained):
    log = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    validated = [event for event in log if event["event"] == "validated"]
    assert len(validated) == 2
    assert all(event["char_errors"] >= 0 for event in validated)
    counters = json.loads((trained / "final" / "counters.json").read_text())
    assert counters["best"] == min(event["char_errors"] for event in validated)
    assert json.loads((trained / "tokenizer" / "tokenizer.json").read_text())["kind"] == "bytes"


@pytest.mark.slow
def test_evaluation_scores_by_the_metric_of_a_plug_in(installed, trained):
    folder, environment = installed
    command = [sys.executable, "-m", "regard", "evaluate", str(trained), "--json"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, env=environment)
    [result] = json.loads(ran.stdout)
    scores = {score["name"]: score for score in result["scores"]}
    assert scores["char_errors"]["signature"] == "Levenshtein over characters"
    assert ran.stderr == "warning: no BLEU: no reference has 4 tokens, and BLEU compares as many in a row\n"


@pytest.mark.slow
def test_a_worker_of_the_server_loads_plug_ins_too(installed, trained):
    folder, environment = installed
    command = [sys.executable, "-m", "regard.serve.worker", "cpu", "auto", "auto", "1", "1", "auto", str(trained), ""]
    task = {"id": 1, "kind": "translate", "model": 0, "seconds": 60, "options": {"beam": 1}, "sentences": ["Größe 3"]}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
    ) as worker:
        worker.stdin.write(json.dumps(task) + "\n")
        worker.stdin.flush()
        messages = (json.loads(line) for line in worker.stdout)
        answer = next(message for message in messages if "ready" in message or "end" in message)
        worker.stdin.close()
    assert [place for place, _ in answer["ready"]] == [0]


@pytest.mark.slow
def test_without_the_plug_in_its_run_is_refused_in_one_sentence(trained):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is 'bytes'; .* install the plug-in\)$"):
        load_tokenizers(Folder(trained / "tokenizer"))


@pytest.mark.slow
def test_an_unknown_byte_is_shown_and_bytes_come_back_as_text(installed):
    _, environment = installed
    code = """
from regard_plugin_example import train_bytes
tokenizer = train_bytes(["größe"], kind="bytes", size=99, coverage=1.0)
print(tokenizer.size, tokenizer.decode([1, *tokenizer.encode("größe"), 2]), tokenizer.decode(tokenizer.encode("gx")))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment, encoding="utf-8"
    )
    assert ran.stdout.split() == ["9", "größe", "g⁇"]  # g, r, e, the 3 bytes of ö and ß, and 3 reserved ids
