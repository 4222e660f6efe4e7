"""A mistake of the user gives one sentence that says what to do, exit code 1 or 2, no traceback, and leaves no files."""

import gzip

import pytest

from regard.errors import CheckpointError
from regard.run.finding import find_run
from tests.commands import regard

TINY = [
    *("train.steps=2", "train.checkpoint_every=2", "train.threads=1", "tokenizer.kind=char", "tokenizer.size=100"),
    *("model.width=8", "model.num_layers=1", "model.num_heads=1", "model.hidden=8"),
]
RECIPE = """
[data]
train = { source = "train.en", target = "train.de" }
[model]
kind = "transformer"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my.toml").write_text(RECIPE)
    (tmp_path / "train.en").write_text("a b\nc d\n")
    (tmp_path / "train.de").write_text("b a\nd c\n")
    return tmp_path


MISTAKES = {
    "a misspelt key": (
        ["my.toml", "train.warmup=5"],
        None,
        "train has no field 'warmup'; did you mean 'warmup_steps'?",
    ),
    "a misspelt table": (["my.toml", "trian.steps=5"], None, "did you mean 'train'?"),
    "a wrong type": (["my.toml", "train.steps=many"], None, "train.steps is 'many': expected a whole number"),
    "an unknown recipe": (["multi30k-en-da"], None, "did you mean 'multi30k-en-de'?"),
    "a missing recipe file": (["none.toml"], None, "no recipe file 'none.toml'"),
    "a file one line short": (["my.toml"], ("train.de", b"b a\n"), "has 2 lines but"),
    "an empty file": (["my.toml"], ("train.en", b""), "is empty"),
    "a binary file": (["my.toml"], ("train.en", bytes(range(256)) * 9), "line 1 of"),
    "a broken gzip file": (["my.toml"], ("train.en", gzip.compress(b"a b\nc d\n" * 999)[:-20]), "damaged gzip"),
    "a line of a megabyte": (["my.toml"], ("train.en", b"a b\n" + b"x" * 1_000_000 + b"\n"), "line 2 of"),
    "a file in Latin-1": (["my.toml"], ("train.en", b"a b\nc \xe9\n"), "data.on_error=skip leaves such text out"),
    "an empty side": (["my.toml"], ("train.en", b"a b\n\n"), "line 2 of"),
    "a missing file": (["my.toml", "data.train.source=gone.en"], None, "no file 'gone.en'"),
    "a missing GPU": (["my.toml", "train.device=cuda:7"], None, "use device=cpu or auto"),
    "a device that does not exist": (["my.toml", "train.device=abacus"], None, "no kind of device called 'abacus'"),
    "a vocabulary too small": (["my.toml", "tokenizer.size=4"], None, "tokenizer.size"),
    "a width no head fits": (["my.toml", "model.width=10", "model.num_heads=4"], None, "try 8"),
    "no peak for a schedule": (["my.toml", "train.schedule=cosine"], None, "set train.lr"),
    "a negative number of steps": (["my.toml", "train.steps=-5"], None, "steps is -5; it must be from 1 to"),
    "sampling from characters": (["my.toml", "tokenizer.sampling=0.1"], None, "char"),
    "patience with no dev pairs": (["my.toml", "train.patience=3"], None, "name them in data.valid"),
    "pairs that are all too long": (["my.toml", "data.max_length=1"], None, "raise data.max_length"),
    "packed attention on a CPU": (
        ["my.toml", "model.attention=varlen", "train.device=cpu"],
        None,
        "use attention=auto",
    ),
    "no heads": (["my.toml", "model.num_heads=0"], None, "num_heads is 0; it must be from 1 to"),
    "a value that is not one of a few": (
        ["my.toml", "model.norm=batch"],
        None,
        "model.norm is 'batch'; known: layer, rms",
    ),
    "a beam too wide": (["my.toml", "decode.beam=2000"], None, "beam is 2000"),
    "a seed below zero": (["my.toml", "train.seed=-1"], None, "seed is -1"),
    "more tokens than positions": (
        ["my.toml", "model.positions=learned", "model.max_positions=9"],
        None,
        "max_length=8",
    ),
    "a folder that is a file": (["my.toml", "--out", "train.de"], None, "train.de"),
    "a data folder that is none": (["my.toml", "--data", "nowhere"], None, "'nowhere' does not exist"),
}


@pytest.mark.slow(unless=["a missing file", "a width no head fits", "an empty side"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_training_is_one_sentence(name, folder):
    arguments, file, sentence = MISTAKES[name]
    if file is not None:
        (folder / file[0]).write_bytes(file[1])
    before = sorted(folder.rglob("*"))
    own = [word for word in arguments if "=" in word]
    rest = [word for word in TINY if word.split("=")[0] not in {one.split("=")[0] for one in own}]
    result = regard("train", arguments[0], *rest, *arguments[1:], cwd=folder)
    assert result.returncode == 1, result.stderr
    assert sentence in result.stderr
    assert result.stderr.count("error: ") == 1 and len(result.stderr.splitlines()) <= 3, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert sorted(folder.rglob("*")) == before


def test_wrong_usage_is_exit_code_two(folder):
    for arguments in (["train"], ["transalte"], ["train", "my.toml", "--depth", "3"]):
        result = regard(*arguments, cwd=folder)
        assert result.returncode == 2, arguments
        assert "Traceback" not in result.stderr


@pytest.mark.slow(unless=["translate-rest0"])
@pytest.mark.parametrize(("verb", "rest"), [("translate", []), ("evaluate", [])])
def test_a_folder_that_is_not_a_run_is_refused(verb, rest, folder):
    result = regard(verb, str(folder), *rest, cwd=folder, text="a\n")
    assert result.returncode == 1
    assert "is not a run folder (it has no recipe.toml)" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_that_does_not_exist_is_said_not_to():
    with pytest.raises(
        CheckpointError, match="runs/mien is not a run folder: it does not exist, and no pretrained model"
    ):
        find_run("runs/mien")


@pytest.mark.slow
def test_mistakes_after_training_are_one_sentence_each(folder):
    assert regard("train", "my.toml", *TINY, "--out", "run", cwd=folder).returncode == 0
    (folder / "bad.txt").write_bytes(b"fine\n\xff\xfe\n")
    result = regard("translate", "run", "bad.txt", cwd=folder)
    assert result.returncode == 1
    assert "line 2 of bad.txt is not UTF-8" in result.stderr
    result = regard("translate", "run", "gone.txt", cwd=folder)
    assert "there is no file gone.txt" in result.stderr
    result = regard("translate", "run", "--beam", "0", cwd=folder, text="a\n")
    assert result.returncode == 1
    assert "beam is 0; it must be from 1 to 1,000" in result.stderr
    result = regard("train", "my.toml", *TINY, "model.width=16", "--out", "run", cwd=folder)
    assert result.returncode == 1
    assert "model.width: 8 -> 16" in result.stderr
    result = regard("evaluate", "run", cwd=folder)
    assert result.returncode == 1
    assert "no test set" in result.stderr
