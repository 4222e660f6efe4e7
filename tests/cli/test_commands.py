"""The commands as a user types them, each in its own process; those of `sys.executable` import everything anew."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard import __version__
from regard.cli import app, doctor
from regard.cli.doctor import EXTRAS
from regard.cli.hints import command_after_training
from regard.errors import install_command
from regard.recipe_files import load_recipe, shipped_recipes
from tests.cli.printed import run_printed
from tests.cli.test_bad_input import TINY
from tests.commands import Forked, regard

ROOT = Path(__file__).resolve().parent.parent.parent
FAST = [
    "train.steps=40",
    "train.checkpoint_every=20",
    "train.validate_pairs=20",
    "train.log_every=10",
    "train.threads=1",
    "decode.max_source=100",
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A short run of the copy recipe."""
    folder = tmp_path_factory.mktemp("commands")
    result = regard("train", "copy", *FAST, "--out", "run", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "evaluate run" in result.stderr
    assert result.stdout == ""
    return folder


def test_help_does_not_import_torch():
    code = "import sys; sys.argv = ['regard', '--help']\nfrom regard.cli import app\n" \
        "try: app()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules, 'torch was imported'"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_version_is_that_of_the_package(tmp_path):
    shown = regard("--version", cwd=tmp_path)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"regard {__version__}\n", "")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert declared == __version__


def test_bash_completes_commands_and_options_without_importing_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    script = """
        eval "$(regard --show-completion)"
        complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _regard_completion regard; echo "${COMPREPLY[@]}"; }
        complete_words regard tra
        complete_words regard data ""
        complete_words regard train --a
    """
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}",
    }
    result = subprocess.run(["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout.splitlines() == ["train translate", "prepare check", "--accept"], result.stderr


@pytest.mark.parametrize("verb", ["demo", "train", "translate", "evaluate", "doctor"])
def test_every_command_has_help(verb, tmp_path):
    result = regard(verb, "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "Usage" in result.stdout
    if verb in ("train", "translate", "evaluate"):
        assert "Examples" in result.stdout


def test_the_help_of_train_lists_the_recipes_of_the_package(tmp_path):
    shown = " ".join(regard("train", "--help", cwd=tmp_path).stdout.replace("│", " ").split())
    assert shipped_recipes() and ", ".join(shipped_recipes()) in shown


def test_the_log_is_json_lines_and_the_recipe_is_complete(copied):
    events = [json.loads(line) for line in (copied / "run" / "log.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "progress"] == [1, 10, 20, 30, 40]
    assert [event["step"] for event in events if event["event"] == "saved"] == [20, 40]
    validated = [event for event in events if event["event"] == "validated"]
    assert {"loss", "bleu", "chrf", "exact", "token_errors"} <= validated[-1].keys()
    shown = regard("train", str(copied / "run" / "recipe.toml"), "--show", cwd=copied).stdout
    assert "width = 64" in shown and "steps = 40" in shown


def test_each_line_of_the_input_gives_one_line_of_output(copied):
    lines = "a b c\n\nd\nb b b b\n"
    result = regard("translate", "run", cwd=copied, text=lines)
    assert result.returncode == 0
    assert len(result.stdout.split("\n")) == len(lines.split("\n"))
    assert result.stdout.split("\n")[1] == ""
    (copied / "in.txt").write_text(lines)
    assert regard("translate", "run", "in.txt", cwd=copied).stdout == result.stdout
    best = regard("translate", "run", "in.txt", "--beam", "3", "--nbest", "2", cwd=copied).stdout.splitlines()
    assert [line.split(" ||| ")[0] for line in best] == ["0", "0", "1", "2", "2", "3", "3"]


def test_a_warning_about_an_n_best_list_gives_the_number_that_the_list_has(copied):
    lines = "a b c\n\n" + "a " * 110 + "\n"
    listed = regard("translate", "run", "--beam", "2", "--nbest", "2", cwd=copied, text=lines)
    assert [line.split(" ||| ")[0] for line in listed.stdout.splitlines()] == ["0", "0", "1", "2", "2"]
    sentence = "has 110 tokens; only the first 100 are translated"
    assert listed.stderr == f"warning: line 2 {sentence} (counted from 0, as in the list)\n"
    assert regard("translate", "run", cwd=copied, text=lines).stderr == f"warning: line 3 {sentence}\n"
    help = " ".join(regard("translate", "--help", cwd=copied).stdout.replace("│", " ").split())
    assert "lines count from 0, as in Moses" in help


TRANSLATE = [sys.executable, "-c", "from regard.cli import main; main()", "translate", "run"]


def test_a_line_is_translated_while_the_writer_is_still_there(copied):
    """The process reads from a pipe to which one line is written at a time."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(TRANSLATE, cwd=copied, bufsize=0, **pipes) as process:
        try:
            outputs = []
            for line in (b"a b c\n", b"d\n\n", b"b b\n"):
                process.stdin.write(line)
                for _ in range(line.count(b"\n")):
                    ready, _, _ = select.select([process.stdout], [], [], 60)
                    assert ready, "the line is not translated until more arrive"
                    outputs.append(process.stdout.readline())
            process.stdin.close()
            assert process.wait(60) == 0 and process.stderr.read() == b""
        finally:
            process.kill()
    expected = regard("translate", "run", cwd=copied, text="a b c\nd\n\nb b\n").stdout
    assert b"".join(outputs).decode() == expected


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--beam", "1"], ["--beam", "3", "--nbest", "2", "--json"], ["--sample"]])
def test_whoever_types_slowly_on_a_terminal_gets_each_line_answered_at_once(copied, options):
    ours, its = pty.openpty()
    with subprocess.Popen([*TRANSLATE, *options], cwd=copied, stdin=its, stdout=subprocess.PIPE) as process:
        os.close(its)
        try:
            for line in (b"a b c\n", b"d\n", b"b b\n"):
                # Typed letter by letter; nothing is answered before the end of the line.
                for letter in line[:-1]:
                    os.write(ours, bytes([letter]))
                    time.sleep(0.02)
                assert not select.select([process.stdout], [], [], 0.2)[0]
                os.write(ours, b"\n")
                assert select.select([process.stdout], [], [], 60)[0], "the line waits for the next one"
                assert process.stdout.readline()
            os.write(ours, b"\x04")  # the end of the input
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(ours)


@pytest.mark.slow(unless=["False"])
@pytest.mark.parametrize("redirected", [False, True])
def test_a_terminal_shows_the_progress_on_a_file_and_the_output_is_complete(copied, redirected):
    (copied / "many.txt").write_text("a b c\n" * 50)
    ours, its = pty.openpty()
    with (copied / "many.txt").open("rb") as file, (copied / "out.txt").open("wb") as out:
        command = TRANSLATE if redirected else [*TRANSLATE, "many.txt"]
        source = file if redirected else subprocess.DEVNULL
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
        done = subprocess.run(command, cwd=copied, stdin=source, stdout=out, stderr=its, env=environment, timeout=120)
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a pty
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    assert done.returncode == 0
    assert b"50/50 lines" in shown and b"lines/s" in shown and b"left" in shown
    assert len((copied / "out.txt").read_text().splitlines()) == 50
    quiet = regard("translate", "run", "many.txt", cwd=copied)
    assert quiet.stderr == "", "a short translation without a terminal prints nothing"


@pytest.mark.slow
def test_an_empty_input_gives_no_output_and_a_pipe_is_read_from_its_position(copied):
    assert regard("translate", "run", cwd=copied, text="").stdout == ""
    code = "from regard.cli import main; main()"
    shell = f"{{ read first; {sys.executable} -c '{code}' translate run; }} < in.txt"
    (copied / "in.txt").write_text("a b\nc\nd\n")
    result = subprocess.run(["bash", "-c", shell], cwd=copied, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 2


@pytest.mark.slow
def test_evaluate_finds_text_next_to_the_recipe_from_any_working_directory(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pairs.tsv").write_text("a b\tb a\nc d\td c\n")
    recipe = (
        '[data]\ntrain = { pairs = "pairs.tsv" }\ntest = { t = { pairs = "pairs.tsv" } }\n[tokenizer]\nkind = "word"\n'
    )
    (tmp_path / "here" / "my.toml").write_text(recipe + '[model]\nkind = "transformer"\npreset = "tiny"\n')
    settings = ["train.steps=1", "train.threads=1"]
    assert regard("train", "here/my.toml", *settings, "--out", "run", cwd=tmp_path).returncode == 0
    assert "t (2 examples" in regard("evaluate", "../run", cwd=tmp_path / "here").stdout


def test_the_command_to_try_after_training_works(tmp_path, monkeypatch):
    recipe = '[data]\ntrain = { pairs = "pairs.tsv" }\n[model]\nkind = "transformer"\n'
    test = 'test = { t = { pairs = "pairs.tsv" } }\n[model]'
    for folder in ("data", "recipes", "work"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pairs.tsv").write_text("a b\tb a\nc d\td c\n")
    (tmp_path / "work" / "pairs.tsv").unlink()
    (tmp_path / "recipes" / "plain.toml").write_text(recipe)
    (tmp_path / "recipes" / "tested.toml").write_text(recipe.replace("[model]", test))
    monkeypatch.chdir(tmp_path / "work")
    for arguments, command in [
        (["plain.toml", "--out", "a run"], "regard translate 'a run'"),
        (["tested.toml"], f"regard evaluate runs/tested --data {tmp_path / 'recipes'}"),
        (["tested.toml", "--data", "../data", "--out", "named"], "regard evaluate named --data ../data"),
    ]:
        result = CliRunner().invoke(app, ["train", f"../recipes/{arguments[0]}", *TINY, *arguments[1:]])
        assert result.exit_code == 0, result.output
        printed = result.output.splitlines()[-1].partition("   try: ")[2]
        assert printed.endswith(command)
        run_printed(printed, cwd=Path())


def test_the_command_to_try_for_labels_without_a_test_set_scores_files_of_the_user():
    recipe = load_recipe("runs", ["data.test={}"])
    command = command_after_training(recipe, Path("x"), data=None)
    assert command.endswith("regard evaluate x --source INPUTS --reference OUTPUTS")


def test_train_warns_once_of_dropped_keys_and_of_a_long_warm_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ["model.kind=rnn", "model.width=8", "model.hidden=8", "train.steps=1", "train.threads=1"]
    settings += ["data.train.generate=copy/valid", "train.validate_pairs=1"]
    for rest in (["--show"], []):
        result = CliRunner().invoke(app, ["train", "copy", *settings, *rest])
        assert result.exit_code == 0, result.output
        assert result.output.count("warning: model.kind=rnn drops ") == 1
        assert result.output.count("warning: train.warmup_steps is 50, but train.steps is 1: ") == 1


@pytest.mark.slow
def test_training_writes_tensorboard_files(tmp_path):
    settings = ["train.tensorboard=true", "train.steps=2", "train.log_every=1", "train.threads=1"]
    assert regard("train", "copy", *settings, cwd=tmp_path).returncode == 0
    assert list((tmp_path / "runs" / "copy" / "tensorboard").glob("events*"))


@pytest.mark.slow
def test_evaluate_prints_scores_with_signatures(copied):
    table = regard("evaluate", "run", cwd=copied).stdout
    assert "test (1,000 examples, greedy)" in table
    assert "tok:13a" in table
    [result] = json.loads(regard("evaluate", "run", "--json", cwd=copied).stdout)
    assert [score["name"] for score in result["scores"]] == ["bleu", "chrf", "exact", "token_errors"]


def test_a_finished_run_is_not_trained_again(copied):
    before = (copied / "run" / "final" / "weights.safetensors").stat().st_mtime_ns
    result = regard("train", "copy", *FAST, "--out", "run", cwd=copied)
    assert result.returncode == 0
    assert "is already finished" in result.stderr
    assert (copied / "run" / "final" / "weights.safetensors").stat().st_mtime_ns == before


def test_doctor_describes_this_machine(tmp_path):
    result = regard("doctor", cwd=tmp_path)
    assert result.returncode == 0
    assert "PyTorch" in result.stderr and "CPU" in result.stderr


def test_doctor_recommends_the_extras_of_the_package_that_a_feature_imports():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert set(EXTRAS) == set(declared) - {"dev"} == set(re.findall(r'require\w*\([^)]*extra="(\w+)"', code))
    for name, extra in EXTRAS.items():
        packages = {re.split(r"[^\w-]", requirement)[0] for requirement in declared[name]}
        assert set(extra.packages) <= packages


def test_doctor_says_what_a_missing_extra_is_for(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shown = {finding.name: (finding.value, finding.advice) for finding in doctor._extras()}
    assert shown["extra ray"] == (
        "not installed: ray, pyarrow",
        f"needed for regard translate --ray: {install_command('ray')}",
    )
    assert all(advice.startswith("needed for ") for _, advice in shown.values())


@pytest.mark.slow
def test_doctor_reports_the_engine(tmp_path):
    result = regard("doctor", cwd=tmp_path)
    assert result.returncode == 0
    assert re.search(r"ok +engine +compiled; uses \w+|engine +not compiled.*install gcc or clang", result.stderr)


@pytest.mark.slow
def test_ctrl_c_saves_a_checkpoint_that_can_translate_and_the_same_command_resumes(tmp_path):
    command = [
        "train",
        "copy",
        "train.steps=100000",
        "train.checkpoint_every=100000",
        "train.log_every=5",
        "train.threads=1",
    ]
    process = Forked(command, cwd=tmp_path, stderr=subprocess.PIPE)
    for line in process.stderr:
        if line.startswith("step 10/"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 130
    assert "stopped; resume with: " in rest
    [checkpoint] = (tmp_path / "runs" / "copy" / "checkpoints").iterdir()
    step = int(checkpoint.name.removeprefix("step-"))
    assert step >= 10
    assert regard("translate", "runs/copy", cwd=tmp_path, text="a b\n").returncode == 0
    again = Forked(command, cwd=tmp_path, stderr=subprocess.PIPE)
    for line in again.stderr:
        if "resuming from step" in line:
            assert f"resuming from step {step}" in line
            break
    else:
        pytest.fail("the run did not resume")
    time.sleep(0.5)
    again.send_signal(signal.SIGTERM)
    again.stderr.read()
    assert again.wait(timeout=60) == 143
