"""The commands of regard data as a user types them."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from regard.cli import app
from tests.cli.test_bad_input import TINY
from tests.commands import regard

RECIPE = """
[data]
train = { pairs = "train.tsv" }
[model]
kind = "transformer"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my.toml").write_text(RECIPE)
    (tmp_path / "train.tsv").write_text("".join(f"a b {number % 10}\t{number % 10} b a\n" for number in range(300)))
    return tmp_path


def test_text_becomes_a_store_and_a_store_becomes_a_run(folder):
    made = regard("data", "prepare", "my.toml", *TINY, "--out", "ids", cwd=folder)
    assert made.returncode == 0 and made.stdout == "", made.stderr
    assert "ids: 300 pairs, 1,500 source and 1,500 target tokens in 1 shard" in made.stderr
    trained = regard("train", "my.toml", *TINY, "data.train.store=ids", "--out", "run", cwd=folder)
    assert trained.returncode == 0 and "300 examples to train on" in trained.stderr, trained.stderr
    intact = regard("data", "check", "ids", cwd=folder)
    assert intact.returncode == 0 and "ids is intact: 300 pairs in 1 shard" in intact.stderr
    path = folder / "ids" / "shard-00000" / "source.ids"
    path.write_bytes(bytes(path.stat().st_size))
    damaged = regard("data", "check", "ids", cwd=folder)
    assert damaged.returncode == 1
    assert "ids/shard-00000/source.ids is damaged: it is not what was written" in damaged.stderr


def test_one_of_anything_is_counted_in_the_singular(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "train.tsv").write_text("a b\tb a\n")
    (folder / "source.txt").write_text("a\n")
    counts = {
        ("data", "prepare", "my.toml", *TINY, "--out", "ids"): "1 pair, 3 source and 3 target tokens in 1 shard ",
        ("data", "check", "ids"): "1 pair in 1 shard\n",
        ("train", "my.toml", *TINY, "train.steps=1", "train.warmup_steps=1", "--out", "run"): "1 example to train on",
        ("evaluate", "run", "--source", "source.txt", "--reference", "source.txt"): "1 example",
        ("doctor", "run"): "1 checkpoint\n",
    }
    for arguments, count in counts.items():
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0 and count in result.output, result.output
        assert not re.search(r"(?<![\d,.])1 \w+s\b", result.output), result.output


def test_a_stream_is_read_from_standard_input(folder):
    text = (folder / "train.tsv").read_text()
    made = regard("data", "prepare", "my.toml", *TINY, 'data.train={pairs="-"}', "--out", "ids", cwd=folder, text=text)
    assert made.returncode == 0 and "ids: 300 pairs" in made.stderr, made.stderr
    bad = text + "no tab\n"
    refused = regard("data", "prepare", "my.toml", *TINY, 'data.train={pairs="-"}', "--out", "x", cwd=folder, text=bad)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: line 301 of standard input has 1 column; it needs 2")


def test_mistakes_are_one_sentence(folder):
    for arguments, sentence in [
        (["prepare", "my.toml"], "name the folder for the ids, for example: --out ids"),
        (["prepare", "my.toml", "data.train.pairs=no.tsv", "--out", "ids"], "no file 'no.tsv' in"),
        (["prepare", "my.toml", 'data.train={store="ids"}'], "names a store but no text to make it from"),
        (["check", "ids"], "there is no store in ids; make one with: regard data prepare RECIPE --out ids"),
    ]:
        result = regard("data", *arguments, cwd=folder)
        assert result.returncode == 1 and sentence in result.stderr, result.stderr
        assert "Traceback" not in result.stderr


def test_preparing_does_not_import_torch(folder):
    code = "import sys; sys.argv = ['regard', 'data', 'prepare', 'my.toml', 'tokenizer.kind=char', '--out', 'ids']\n" \
        "from regard.cli import app\ntry: app()\nexcept SystemExit as end: assert not end.code\n" \
        "assert 'torch' not in sys.modules, 'torch was imported'"  # fmt: skip
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("verb", ["prepare", "check"])
def test_the_help_of_every_command_has_examples(verb, folder):
    result = regard("data", verb, "--help", cwd=folder)
    assert result.returncode == 0 and "Examples" in result.stdout
