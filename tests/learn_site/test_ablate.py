"""`regard ablate`: both recipes, both runs at the same time, text, page and JSON; stopping and resuming; mistakes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import ConfigError, TrainingError
from regard.learn import ablation_runs
from regard.learn.ablated_models import CHANGES
from regard.learn.ablation_runs import AblationResult, ExampleOutput, SeedResult, Side, run_ablation
from regard.learn.ablation_text import as_text, mean, rows_over_seeds
from regard.learn.ablations import ABLATIONS, KIND, make_sides
from regard.recipe_files import differences, load_recipe
from regard.run.folder import RunFolder
from tests.commands import Forked, forking_python, regard

TINY = """base = "copy"
[model]
width = 16
num_layers = 1
num_heads = 2
hidden = 16
[train]
tokens = 128
validate_pairs = 20
"""


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path / "tiny.toml"


def call(*words):
    return CliRunner().invoke(app, ["ablate", *map(str, words)])


@pytest.mark.parametrize("what", ABLATIONS)
def test_the_two_recipes_differ_in_the_part_alone(what):
    sides = make_sides(what, seed=7)
    changed = differences(sides.with_it, sides.without_it)
    assert len(changed) == 1 and sides.with_it.train.seed == sides.without_it.train.seed == 7
    off = ABLATIONS[what].off or f"model.kind={KIND}{what}"
    key, _, value = off.partition("=")
    assert changed[0].startswith(f"{key}: ") and changed[0].endswith(value)
    assert bool(ABLATIONS[what].off) != (what in ("mask", *CHANGES))


def test_a_recipe_that_is_named_keeps_its_settings_except_its_length():
    sides = make_sides("positions", "sort")
    assert sides.with_it.train.steps == 250 < load_recipe("sort").train.steps
    assert sides.with_it.model == load_recipe("sort").model
    assert make_sides("positions", "sort", steps=400).with_it.train.steps == 400


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["maks"], "there is no ablation 'maks'; did you mean 'mask'?"),
        (["revers", "mask"], "no recipe is called 'revers'; did you mean 'reverse'?"),
        (["counting", "mask"], "counting has model.kind=decoder"),
        (["reverse", "smoothing"], "reverse has train.label_smoothing=0.0 already, so there is nothing to take away"),
        (["a", "b", "mask"], "3 words were given; write regard ablate [RECIPE] WHAT"),
    ],
)
def test_mistakes_are_explained(words, message):
    result = call(*words)
    assert isinstance(result.exception, ConfigError) and message in str(result.exception)


@pytest.mark.slow
def test_both_runs_are_trained_drawn_and_written(tiny, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = call(tiny, "norm", "--steps", 4, "--seed", 3, "--out", out)
    assert first.exit_code == 0, first.output
    monkeypatch.setattr(sys, "executable", forking_python())  # the processes of the first seed were started anew
    result = call(tiny, "norm", "--steps", 4, "--seeds", 2, "--seed", 3, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Take away the norms" in result.stdout and "seeds 3, 4" in result.stdout
    for name in ("with-norm-seed-3", "without-norm-seed-3", "with-norm-seed-4", "without-norm-seed-4"):
        assert RunFolder(out / name).finished
    assert RunFolder(out / "without-norm-seed-3").recipe().model["kind"] == "transformer-without-norm"
    written = json.loads((out / "ablation.json").read_text())
    assert [one["seed"] for one in written["seeds"]] == [3, 4]
    # The first loss is that of the same weights and examples, up to what the part changes.
    assert [step for step, _ in written["seeds"][0]["with_it"]["losses"]] == [1, 2, 3, 4]
    page = (out / "ablation.html").read_text()
    assert "default-src 'none'" in page and "without-norm-seed-4" in page
    before = (out / "with-norm-seed-3" / "log.jsonl").read_bytes()
    again = call(tiny, "norm", "--steps", 4, "--seeds", 2, "--seed", 3, "--out", out)
    assert again.exit_code == 0 and again.stdout == result.stdout
    assert (out / "with-norm-seed-3" / "log.jsonl").read_bytes() == before
    # Seconds are those of training, not of finding it done.
    assert json.loads((out / "ablation.json").read_text()) == written


class Ended(subprocess.Popen):
    """A process that has ended before anything is written to it."""

    def __init__(self, command, **options):
        program = "import sys; sys.exit('no such thing')"
        super().__init__([sys.executable, "-c", program], **options)
        self.wait()


def test_a_process_that_ends_at_once_is_reported(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(ablation_runs.subprocess, "Popen", Ended)
    with pytest.raises(TrainingError, match="with-mask-seed-1 could not be trained: no such thing"):
        run_ablation("mask", str(tiny), out=tmp_path / "out", seeds=[1])


def test_the_first_process_is_ended_if_the_second_cannot_be_started(tiny, tmp_path, monkeypatch):
    started = []

    def start(*_):
        if started:
            raise OSError("no more processes")
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[0]

    monkeypatch.setattr(ablation_runs, "_start", start)
    with pytest.raises(OSError, match="no more processes"):
        run_ablation("mask", str(tiny), out=tmp_path / "out", seeds=[1])
    assert started[0].poll() is not None


@pytest.mark.slow
def test_a_stopped_ablation_resumes(tiny, tmp_path):
    command = ["ablate", tiny, "mask", "--steps", "200", "--out", tmp_path / "out"]
    process = Forked(command, executable=forking_python())
    runs = [RunFolder(tmp_path / "out" / name) for name in ("with-mask-seed-1", "without-mask-seed-1")]
    while not all(run.exists and run.steps() for run in runs):
        os.kill(process.pid, 0)  # it has not ended
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    stopped = [max(run.steps()) for run in runs]
    assert not all(run.finished for run in runs)
    done = regard(*command, executable=forking_python())
    assert done.returncode == 0, done.stderr
    for run, step in zip(runs, stopped, strict=True):
        started = [event["step"] for event in run.read_log() if event["event"] == "started"]
        assert run.finished and step in (*started, 200)


def side(name, losses, score, output):
    return Side(
        name=name,
        parameters=1000,
        seconds=2.0,
        scores={"loss": losses[-1], "exact": score},
        losses=list(enumerate(losses, 1)),
        dev=[(len(losses), {"loss": losses[-1], "exact": score})],
        examples=[ExampleOutput("a b", output, "b a")],
    )


def result(*seeds):
    pairs = [
        SeedResult(seed, 3.0, 5.0, side("mask", [2.0, 1.0], a, "b a"), side("none", [2.0, b], 0.0, ""))
        for seed, a, b in seeds
    ]
    return AblationResult("mask", "reverse", 2, "exact", "", "", pairs)


def test_the_text_has_curves_scores_and_outputs():
    text = as_text(result((1, 60.0, 0.01)))
    assert "*" in text  # both begin at the same loss
    assert text.count("o") > 1 and "b a   (right)" in text and "(empty)" in text
    assert any(
        line.split() == ["dev", "exact", "match", "at", "the", "end", "60.0", "0.000"] for line in text.splitlines()
    )


def test_means_are_over_seeds_and_unknown_where_a_run_has_no_number():
    rows = rows_over_seeds(result((1, 60.0, 0.5), (2, 80.0, None)))
    assert rows[-1] == ["mean", "1.000", "-", "70.0", "0.000"]
    assert mean([1.0, 2.0, 6.0]) == 3.0 and mean([]) is None
