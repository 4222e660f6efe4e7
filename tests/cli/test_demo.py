"""What the demo prints when it has trained: commands that work as they are printed."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard import api, errors, evaluating
from regard.cli import app
from regard.cli.demo import next_steps
from regard.metrics import Score
from regard.text.dates import EXAMPLES
from tests.cli.printed import run_printed

TINY = [
    *("data.train.generate=copy/valid", "data.valid.generate=copy/valid", "data.test.test.generate=copy/valid"),
    *("train.steps=1", "train.warmup_steps=1", "train.threads=1", "train.validate_pairs=1"),
    *("model.width=8", "model.num_layers=1", "model.num_heads=1", "model.hidden=8", "decode.max_extra=0"),
]
SCORE = [Score("exact", 99.4, "")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def printed(folder):
    """The output of a demo that trains one step on a toy corpus, as lines."""
    train = api.train
    scores = [evaluating.Evaluation("test", 2000, "greedy", SCORE, "0" * 64)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "train", lambda name, **options: train(name, overrides=TINY, **options))
        patch.setattr(evaluating, "evaluate", lambda run, **options: scores)
        patch.chdir(folder)
        result = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_the_commands_work_as_they_are_printed(printed, folder):
    commands = [line.strip() for line in printed[printed.index("The run is in runs/dates. Next, try:") + 1 :][:3]]
    verbs = ["translate", "look", "evaluate"]
    assert all(f"regard {verb} runs/dates" in command for verb, command in zip(verbs, commands, strict=True))
    for command in commands:
        run_printed(command, cwd=folder)
    assert (folder / "look.html").is_file()


def test_a_second_demo_says_how_to_train_again(printed, folder, monkeypatch):
    monkeypatch.setattr(
        evaluating, "evaluate", lambda run, **options: [evaluating.Evaluation("test", 1, "", SCORE, "")]
    )
    train = api.train
    monkeypatch.setattr(api, "train", lambda name, **options: train(name, overrides=TINY, **options))
    monkeypatch.chdir(folder)
    lines = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "500"}).output.splitlines()
    assert lines[0].startswith("runs/dates is trained already. To train again, remove it, or name another folder: ")
    assert lines[0].endswith("demo --out runs/dates-2") and not any("Training" in line for line in lines)
    assert "already finished" not in "".join(lines) and lines[-4:] == printed[-4:]


def test_the_report_is_pointed_at(printed, folder):
    assert "Open runs/dates/report.html in a browser to see how training went." in printed
    assert (folder / "runs" / "dates" / "report.html").is_file()


def test_the_demo_says_in_what_it_differs_from_the_paper(printed):
    [line] = [line for line in printed if "the paper" in line]
    recipe = api.load_recipe("dates")
    assert (recipe.model["positions"], recipe.model["norm_order"], recipe.train.schedule) == ("rotary", "pre", "wsd")
    assert all(word in line for word in ("does not use", "rotary positions", "pre-norm", "warm-up-stable-decay"))


def test_an_environment_that_is_not_active_is_named_with_how_to_activate_it(tmp_path, monkeypatch):
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "regard", "activate"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setattr(errors, "CHECKOUT", tmp_path)
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    monkeypatch.setattr("sys.argv", [".venv/bin/regard", "demo"])
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    lines = next_steps(Path("runs/dates"))
    assert '  .venv/bin/regard look runs/dates "Donnerstag, 9. November 1989"' in lines
    assert lines[-1] == "To type only regard from now on: source .venv/bin/activate"


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_readme_shows_all_examples_of_the_demo_and_the_commands_that_it_names(name, monkeypatch):
    monkeypatch.setattr("regard.cli.demo.command_name", lambda: ".venv/bin/regard")
    page = (Path(__file__).parent.parent.parent / name).read_text(encoding="utf-8")
    [shown] = [block for block in page.split("```text\n") if block.startswith("trained in")]
    lines = shown.split("```")[0].splitlines()
    assert [line.split("  →  ")[0].strip() for line in lines if "→" in line] == list(EXAMPLES)
    steps = next_steps(Path("runs/dates"))
    at = lines.index(steps[0])
    assert lines[at : at + 5] == steps[:5]
