"""What commands say where a newcomer would wonder: empty outputs, missing extras, misspelt kinds, files in the way."""

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.cli import doctor as doctor_module
from regard.errors import ConfigError


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
    assert [text.split(":")[0] for text in found] == ([] if output else ["all outputs are empty"])


def test_translate_names_characters_that_the_model_has_never_seen(tmp_path):
    small = ["model.width=16", "model.num_layers=1", "model.num_heads=2", "model.hidden=16", "train.steps=1"]
    small += ["tokenizer.kind=char", "train.threads=1", "train.device=cpu"]
    regard.train("copy", out=tmp_path / "run", overrides=small, listen=lambda event: None)
    (tmp_path / "in.txt").write_text("a b\nA 😀\n")
    found = call("translate", tmp_path / "run", tmp_path / "in.txt", "--beam", 1)
    assert found.stderr.count("line 2 has characters that the model does not know (A 😀)") == 1
    (tmp_path / "in.txt").write_text("a b\n")
    assert "does not know" not in call("translate", tmp_path / "run", tmp_path / "in.txt", "--beam", 1).stderr


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
