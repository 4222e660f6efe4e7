"""What commands say where a newcomer would wonder: empty outputs, missing extras, misspelt kinds, files in the way."""

import re
import shutil
import socket
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.cli import doctor as doctor_module
from regard.errors import ConfigError
from regard.run.folder import RunFolder

ROOT = Path(__file__).parent.parent.parent


def call(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model that has learned nothing."""
    out = tmp_path_factory.mktemp("small") / "run"
    small = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.steps=1"]
    regard.train("copy", out=out, overrides=[*small, "train.threads=1", "train.device=cpu"], listen=lambda event: None)
    return out


def test_evaluate_takes_one_file_of_pairs(run, tmp_path):
    (tmp_path / "test.tsv").write_text("a b\ta b\nc\tc\n")
    result = call("evaluate", run, "--pairs", tmp_path / "test.tsv", "--beam", 1)
    assert result.exit_code == 0 and result.stdout.startswith("test.tsv (2 examples")
    with pytest.raises(ConfigError, match="give --pairs, or --source and --reference, not both"):
        regard.evaluate(run, pairs="a.tsv", source="a", reference="b")


@pytest.mark.parametrize("output", ["", "x"])
def test_outputs_that_are_all_empty_are_reported_once(run, tmp_path, monkeypatch, output):
    (tmp_path / "test.tsv").write_text("a b\ta b\nc\tc\n")
    (tmp_path / "in.txt").write_text("a b\n\nc\n")
    monkeypatch.setattr("regard.text.symbols.SymbolTokenizer.decode", lambda self, ids: output)
    translated = call("translate", run, tmp_path / "in.txt", "--beam", 1)
    assert translated.stderr.count("all translations are empty") == (not output)
    found = []
    regard.evaluate(run, pairs=tmp_path / "test.tsv", device="cpu", warn=found.append)
    expected = ["no BLEU"] if output else ["all outputs are empty", "no BLEU"]
    assert [text.split(":")[0] for text in found] == expected


def test_commands_that_use_an_unfinished_run_say_how_far_it_is(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    unfinished = RunFolder(tmp_path / "run")
    unfinished.reopen()
    unfinished.change_recipe(with_steps(unfinished.recipe(), 1_000))
    note = f"{tmp_path / 'run'} is at step 1 of 1,000"
    (tmp_path / "test.tsv").write_text("a b\ta b\nc\tc\n")
    (tmp_path / "in.txt").write_text("a b\n")
    commands = {
        "translate": [tmp_path / "run", tmp_path / "in.txt", "--beam", 1],
        "look": [tmp_path / "run", "a b", "--out", tmp_path / "look.html", "--beam", 1],
        "score": [tmp_path / "run", "--pairs", tmp_path / "test.tsv"],
        "evaluate": [tmp_path / "run", "--pairs", tmp_path / "test.tsv", "--beam", 1],
    }
    for verb, arguments in commands.items():
        found = call(verb, *arguments)
        assert found.exit_code == 0 and found.stderr.splitlines().count(note) == 1, (verb, found.output)
    page = call("card", tmp_path / "run", "--no-evaluate").stdout
    assert "| training | step 1 of 1,000, unfinished, seed 1, " in page
    assert "is at step" not in call("translate", run, tmp_path / "in.txt", "--beam", 1).stderr
    assert "| training | 1 step, seed 1, " in call("card", run, "--no-evaluate").stdout


def with_steps(recipe, steps):
    return msgspec.structs.replace(recipe, train=msgspec.structs.replace(recipe.train, steps=steps))


def test_translate_names_characters_that_the_model_has_never_seen(tmp_path):
    small = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.steps=1"]
    small += ["tokenizer.kind=char", "train.threads=1", "train.device=cpu"]
    regard.train("copy", out=tmp_path / "run", overrides=small, listen=lambda event: None)
    (tmp_path / "in.txt").write_text("a b\nA 😀\n")
    found = call("translate", tmp_path / "run", tmp_path / "in.txt", "--beam", 1)
    assert found.stderr.count("line 2 has characters that the model does not know (A 😀)") == 1
    (tmp_path / "in.txt").write_text("a b\n")
    assert "does not know" not in call("translate", tmp_path / "run", tmp_path / "in.txt", "--beam", 1).stderr


def test_translate_names_what_the_model_does_not_know_of_words_and_of_bytes(run, tmp_path):
    (tmp_path / "in.txt").write_text("a b\na forty-twoo\n")
    found = call("translate", run, tmp_path / "in.txt", "--beam", 1)
    assert "line 2 has a word that the model does not know (forty-twoo)" in found.stderr
    (tmp_path / "in.txt").write_text("семьдесят\n😀 https://example.org/привет\n")
    found = call("translate", "de-en", tmp_path / "in.txt", "--beam", 1)
    assert "line 1 has characters that the model does not know (д е м с т ь я)" in found.stderr


def test_doctor_does_not_call_a_missing_extra_ok(monkeypatch):
    monkeypatch.setitem(doctor_module.EXTRAS, "ghosts", doctor_module.Extra(("no_such_package",), "ghosts"))
    lines = call("doctor").output.splitlines()
    (line,) = [line for line in lines if "no_such_package" in line]
    assert line.startswith("-     extra ghosts") and "not installed: no_such_package" in line


def test_a_misspelt_kind_gives_its_error_without_a_warning(tmp_path):
    result = call("train", "copy", "model.kind=transfomer", "--out", tmp_path / "run")
    assert isinstance(result.exception, ConfigError) and "did you mean 'transformer'" in str(result.exception)
    assert "warning" not in result.output
    found = []
    with pytest.raises(ConfigError):
        regard.train("copy", out=tmp_path / "run", overrides=["model.kind=transfomer"], warn=found.append)
    assert found == []


def test_look_and_report_replace_their_own_pages_and_nothing_else(run, tmp_path):
    other, page = tmp_path / "notes.html", tmp_path / "page.html"
    other.write_text("<html>my notes</html>")
    for arguments in (["look", run, "a b", "--beam", 1, "--alternatives", 0], ["report", run]):
        result = call(*arguments, "--out", other)
        assert isinstance(result.exception, ConfigError) and "is not a page of regard" in str(result.exception)
        results = [call(*arguments, "--out", page) for _ in range(2)]
        assert [result.exit_code for result in results] == [0, 0]
        if arguments[0] == "look":
            assert [result.stderr.split()[-2] for result in results] == ["wrote", "replaced"]
    result = call("look", run, "a b", "--png", "--beam", 1, "--out", other)
    assert "is not a picture (png)" in str(result.exception) and other.read_text() == "<html>my notes</html>"


def test_a_folder_as_the_output_file_of_a_report_is_named(run):
    result = call("report", run, "--out", run)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == f"{run} is a folder; name a file with --out, such as {run}/regard.html"


def test_a_port_in_use_is_answered_with_the_option_that_chooses_another():
    pytest.importorskip("fastapi")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = call("serve", "de-en", "--port", port)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"port {port} of 127.0.0.1 is in use; choose another with --port")


def test_training_refuses_a_folder_with_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "train.log").write_text("what the shell writes may be there")
    with pytest.raises(ConfigError, match=r"is not a run, and other files are there \(notes\.txt\); name a new folder"):
        regard.train("copy", out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "train.log"]


def test_training_with_other_settings_into_an_export_says_that_it_is_one(run, tmp_path):
    regard.export(run, tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"mine is an export, .*train\.init=.*mine to begin with its weights"):
        regard.train("copy", out=tmp_path / "mine", overrides=["train.steps=2"])


@pytest.mark.parametrize("option", [["--out", "out.txt"], ["--output=out.txt"], ["-o", "out.txt"]], ids=" ".join)
def test_an_option_for_the_translated_file_is_answered_with_its_place(option):
    result = call("translate", "de-en", "in.txt", *option)
    assert result.exit_code == 2
    assert "name the output file after the input: RUN INPUT OUTPUT" in " ".join(result.output.replace("│", " ").split())


def test_training_says_how_long_it_took(tmp_path):
    small = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.steps=1"]
    small += ["train.threads=1", "train.device=cpu", "train.validate_pairs=1", "decode.max_extra=0"]
    result = call("train", "copy", "--out", tmp_path / "run", *small)
    *_, before, last = result.stderr.splitlines()
    assert re.fullmatch(r"trained in \d+:\d\d", before) and last.startswith("done: ")


def test_the_card_and_evaluate_use_the_terms_of_the_report(run, tmp_path):
    (tmp_path / "test.tsv").write_text("a b\ta b\n")
    assert "target tokens per second" in regard.card(run, evaluated=False).read_text()
    result = call("evaluate", run, "--pairs", tmp_path / "test.tsv", "--beam", 1)
    assert "exact match " in result.stdout and "token errors" in result.stdout


def test_the_targets_of_make_are_listed_in_columns():
    lines = re.findall(r'@echo "(make \S+ +)', (ROOT / "Makefile").read_text())
    assert len(lines) > 10 and len(set(map(len, lines))) == 1, lines
