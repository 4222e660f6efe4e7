"""Searches: files, proposals, and trials as rows of a study."""

import importlib.util
import math
import shlex
from types import SimpleNamespace

import msgspec
import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import CheckpointError, ConfigError, MissingExtra, TrainingError
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.study.cells import recipe_of_cell, settings_digest, settings_of
from regard.study.checks import check_study
from regard.study.choices import by_key, cells_of, read_records
from regard.study.records import CellRecord, SetScores
from regard.study.running.job import ENDED, REFUSED
from regard.study.running.record_from_log import make_record
from regard.study.study_file import read_study
from regard.study.tuning.proposals import propose
from regard.study.tuning.search import tune
from regard.study.tuning.trials import best_study, scored_trials
from regard.study.tuning.tuning_file import read_tuning
from tests.study.synthetic import write_study
from tests.study.test_running import Finished

SEARCH = """
recipe = "toy.toml"
metric = "bleu"
trials = 8
seeds = [1, 2]
[search]
"train.lr" = { low = 1e-4, high = 1e-2, log = true }
"model.num_layers" = { low = 1, high = 4 }
"model.norm_order" = ["pre", "post"]
"""
needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("optuna") is None, reason="optuna is not installed (pip install 'regard[tune]')"
)


@pytest.fixture
def tuning(tmp_path):
    write_study(tmp_path)
    (tmp_path / "search.toml").write_text(SEARCH, encoding="utf-8")
    return read_tuning(tmp_path / "search.toml")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("trials = 8", "trials = 0", "trials must be"),
        ("low = 1e-4", "low = 1", "tune.search.train.lr: low must be below high"),
        ("log = true", "logarithmic = true", "logarithmic"),
        ('["pre", "post"]', '["pre"]', "2 to 100 values"),
        ('["pre", "post"]', '["pre", "pre"]', "each once"),
        ("seeds = [1, 2]", "seeds = [1, 1]", "each once"),
        ("seeds = [1, 2]", "seeds = [-1]", "none below 0"),
        ("seeds = [1, 2]", "seeds = []", "1 to 100 seeds"),
        ('recipe = "toy.toml"', 'recipe = "none.toml"', "no such file"),
    ],
)
def test_mistakes_in_the_file_are_one_sentence(tmp_path, old, new, expected):
    write_study(tmp_path)
    assert old in SEARCH
    (tmp_path / "search.toml").write_text(SEARCH.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=expected):
        read_tuning(tmp_path / "search.toml")


def test_without_optuna_the_extra_is_named(tuning, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtra, match="tune"):
        tune(tuning, out=tmp_path / "out")


def test_a_trial_without_a_score_counts_as_the_worst(tuning):
    def record(row, score):
        tests = [SetScores("valid", 1, "", "", {"bleu": score}, {}, "")] if score is not None else []
        state = "diverged" if score is None else "finished"
        return CellRecord(row=row, candidate={}, seed=1, state=state, settings={}, settings_sha256="", tests=tests)

    trials = {f"trial {number}": {"train.lr": number / 10} for number in (1, 2, 3)}
    records = [record("recipe", 50.0), record("trial 1", 20.0), record("trial 2", None), record("trial 3", 60.0)]
    assert [score for _, score in scored_trials(tuning, trials, records)] == [20.0, 20.0, 60.0]
    final = best_study(tuning, trials, records)
    assert list(final.rows) == ["recipe", "trial 3"]
    assert final.seeds == (1, 2)
    assert best_study(tuning, trials, [record("recipe", 99.0), *records[1:]]) is None


@needs_optuna
def test_proposals_are_in_their_ranges_and_follow_from_the_trials_alone(tuning):
    ended = []
    for _ in range(15):
        [settings] = propose(tuning, ended, 1)
        assert propose(tuning, ended, 1) == [settings]
        assert 1e-4 <= settings["train.lr"] <= 1e-2
        assert settings["model.num_layers"] in (1, 2, 3, 4)
        assert settings["model.norm_order"] in ("pre", "post")
        ended.append((settings, 0.0))


def quality(settings):
    """A score that is best for a rate of 0.001."""
    return 50 - 10 * abs(math.log10(settings.get("train.lr", 0.01)) + 3)


class Trainer:
    """Writes records of cells in place of training them, at most `most` of them. `failing` are rows that fail."""

    def __init__(self, most=10**9, failing=()):
        self.most, self.failing, self.trained = most, failing, []

    def __call__(self, study, *, out, retry_failed, **others):
        again = {one.row for one in read_records(study, out) if one.state == "failed" and retry_failed}

        def missing():
            known = {(one.row, one.seed) for one in read_records(study, out) if one.row not in again}
            return [
                cell for cell in cells_of(study, by_key(read_records(study, out))) if (cell.row, cell.seed) not in known
            ]

        for cell in missing():
            if len(self.trained) >= self.most:
                break
            settings = settings_of(study, cell)
            self.trained.append((cell.row, cell.seed, settings))
            sets = [
                SetScores(name, 1, "", "", {"bleu": quality(settings) + cell.seed}, {}, "")
                for name in ("valid", "test")
            ]
            fails = cell.row in self.failing
            again.discard(cell.row)
            record = CellRecord(
                row=cell.row,
                candidate={},
                seed=cell.seed,
                state="failed" if fails else "finished",
                problem="out of memory" if fails else "",
                settings=settings,
                settings_sha256=settings_digest(recipe_of_cell(study, cell)),
                tests=[] if fails else sets,
            )
            cell.folder(out).make().save_bytes("cell.json", msgspec.json.encode(record))
        return SimpleNamespace(open_cells=missing)


@needs_optuna
def test_a_search_trains_its_trials_then_the_best_with_all_seeds_and_writes_studies(tuning, tmp_path):
    trainer = Trainer()
    done = tune(tuning, out=tmp_path / "out", train=trainer)
    assert done.ended
    # The recipe and 8 trials, then the recipe and the best with seeds that decided nothing.
    assert [seed for _, seed, _ in trainer.trained] == [0] * 9 + [1, 2] * 2
    scores = {row: quality(settings) for row, seed, settings in trainer.trained if seed == 0}
    best = max(scores, key=scores.get)
    assert list(done.best.rows) == ["recipe", best]
    assert scores[best] > 46  # within a factor of 2.5 of the best rate
    assert len(read_study(tmp_path / "out" / "study.toml").rows) == 9
    assert read_study(tmp_path / "out" / "best.toml").seeds == (1, 2)


@needs_optuna
def test_a_search_that_was_stopped_resumes_to_the_same_trials(tuning, tmp_path):
    complete, parts = Trainer(), []
    tune(tuning, out=tmp_path / "complete", train=complete, at_once=2)
    for _ in range(20):
        trainer = Trainer(most=1)
        done = tune(tuning, out=tmp_path / "parts", train=trainer, at_once=2)
        parts += trainer.trained
        if done.ended:
            break
    assert parts == complete.trained


def with_search(tuning, search, **changes):
    return msgspec.structs.replace(tuning, search=search, **changes)


@needs_optuna
def test_a_search_resumes_its_own_proposals_whatever_runs_at_once_and_whatever_failed(tuning, tmp_path):
    out = tmp_path / "out"
    # Stopped in the second batch of three, with a failure in the first one.
    first = Trainer(most=1 + 3 + 1, failing=["trial 2"])
    assert not tune(tuning, out=out, train=first, at_once=3).ended
    proposed = {name: row.settings for name, row in read_study(out / "study.toml").rows.items()}
    assert len(proposed) == 1 + 6
    second = Trainer()
    assert tune(tuning, out=out, train=second, at_once=2).ended
    # The failed trial is tried again, then the two of the batch that were missing; none of the others.
    assert [row for row, _, _ in second.trained[:3]] == ["trial 2", "trial 5", "trial 6"]
    rows = {name: row.settings for name, row in read_study(out / "study.toml").rows.items()}
    assert len(rows) == 1 + 8 and {name: rows[name] for name in proposed} == proposed


@needs_optuna
def test_no_trial_is_started_after_the_time_limit(tuning, tmp_path, monkeypatch):
    trainer, now = Trainer(), [0.0]
    monkeypatch.setattr("regard.study.tuning.search.time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(study, **others):
        now[0] += 2
        return trainer(study, **others)

    assert not tune(tuning, out=tmp_path / "out", train=slow, at_once=1, seconds=1).ended
    assert [row for row, _, _ in trainer.trained] == ["recipe", "trial 1"], "one call, which had the time to begin"


@needs_optuna
@pytest.mark.slow
def test_a_trial_that_fails_is_not_tried_again_with_every_batch(tuning, tmp_path):
    trainer = Trainer(failing=["trial 2"])
    assert tune(tuning, out=tmp_path / "out", train=trainer).ended
    assert [row for row, _, _ in trainer.trained].count("trial 2") == 1


@needs_optuna
def test_a_trial_that_the_recipe_refuses_counts_as_failed_and_the_search_goes_on(tuning, tmp_path):
    # 96 is not a multiple of 64 heads; 64 and 128 are.
    search = with_search(tuning, {"model.width": [64, 96, 128], "model.num_heads": [1, 2, 64]}, trials=9)
    said, trainer = [], Trainer()
    assert tune(search, out=tmp_path / "out", train=trainer, tell=said.append).ended
    assert len({row for row, _, _ in trainer.trained}) == 1 + 8
    assert sum("1 trial cannot be trained" in one and "multiple" in one for one in said) == 1
    text = (tmp_path / "out" / "refused.toml").read_text(encoding="utf-8")
    assert '"model.width" = 96' in text and "reason =" in text
    # A second call proposes nothing again.
    again = Trainer()
    assert tune(search, out=tmp_path / "out", train=again, tell=said.append).ended
    assert not again.trained
    assert sum("cannot be trained" in one for one in said) == 1


@needs_optuna
def test_a_key_that_the_recipe_does_not_have_ends_the_search_before_training(tuning, tmp_path):
    wrong, trainer = with_search(tuning, {"train.rate": [0.1, 0.2]}, trials=2), Trainer()
    with pytest.raises(TrainingError, match="none of 2 trials has a score; train has no field 'rate'"):
        tune(wrong, out=tmp_path / "out", train=trainer)
    many = with_search(tuning, {"train.rate": [0.1 * number for number in range(50)]}, trials=50)
    with pytest.raises(
        ConfigError, match="20 trials in a row cannot be trained; the last one: train has no field 'rate'"
    ):
        tune(many, out=tmp_path / "out", train=trainer)
    assert not trainer.trained
    # The right key in the same folder.
    assert tune(with_search(tuning, {"train.lr": [0.1, 0.2]}), out=tmp_path / "out", train=trainer).ended


@needs_optuna
def test_settings_are_tried_once_and_a_search_without_others_ends(tuning, tmp_path):
    search = with_search(tuning, {"train.lr": [0.001, 0.01], "model.num_layers": {"low": 1, "high": 2}})
    search = msgspec.convert(msgspec.to_builtins(search), type(tuning))
    said, trainer = [], Trainer()
    assert tune(search, out=tmp_path / "out", train=trainer, tell=said.append).ended
    tried = [tuple(settings.items()) for row, seed, settings in trainer.trained if seed == 0 and row != "recipe"]
    assert len(tried) == len(set(tried)) == 4
    assert any("ends after 4 of 8 trials" in one for one in said)


@needs_optuna
def test_without_a_test_set_the_best_trial_is_compared_on_the_dev_set(tuning, tmp_path):
    text = (tmp_path / "toy.toml").read_text(encoding="utf-8")
    assert 'test = { test = { pairs = "test.tsv" } }\n' in text
    text = text.replace('test = { test = { pairs = "test.tsv" } }\n', "")
    (tmp_path / "toy.toml").write_text(text, encoding="utf-8")
    done = tune(tuning, out=tmp_path / "out", train=Trainer())
    assert done.ended and done.best.tests == ("valid",)
    check_study(read_study(tmp_path / "out" / "best.toml"))


@needs_optuna
def test_a_trial_outside_of_a_search_that_was_narrowed_is_not_chosen_and_not_counted(tuning, tmp_path):
    """The rate 0.001 is the best of all."""
    wide = with_search(tuning, {"train.lr": [0.01, 0.001]}, trials=2)
    assert tune(wide, out=tmp_path / "out", train=Trainer()).best.rows.keys() == {"recipe", "trial 1"}
    narrow, trainer = with_search(tuning, {"train.lr": [0.005, 0.006]}, trials=2), Trainer()
    done = tune(narrow, out=tmp_path / "out", train=trainer)
    assert [row for row, seed, _ in trainer.trained if seed == 0] == ["trial 3", "trial 4"]
    assert [row.settings["train.lr"] for name, row in done.best.rows.items() if name != "recipe"] == [0.005]


@needs_optuna
@pytest.mark.slow
def test_no_score_at_all_is_an_error(tuning, tmp_path):
    failing = [f"trial {number}" for number in range(1, 9)]
    with pytest.raises(TrainingError, match="none of 8 trials has a score; trial 1 failed: out of memory"):
        tune(tuning, out=tmp_path / "out", train=Trainer(failing=failing))


@needs_optuna
def test_a_folder_with_another_study_is_refused(tuning, tmp_path):
    # `write_study` has put one here.
    before = (tmp_path / "study.toml").read_bytes()
    with pytest.raises(ConfigError, match="is not the study of a search"):
        tune(tuning, out=tmp_path, train=Trainer())
    assert (tmp_path / "study.toml").read_bytes() == before
    with Folder(tmp_path / "out").locked(busy=""), pytest.raises(CheckpointError, match="another process searches"):
        tune(tuning, out=tmp_path / "out", train=Trainer())


# The command


@pytest.fixture
def call(tuning, tmp_path, monkeypatch):
    """Calls `regard tune` with processes of cells that are replaced by a function of their job."""
    monkeypatch.setattr("regard.study.running.runner.POLL_SECONDS", 0.01)

    def call(start, *words):
        monkeypatch.setattr("regard.study.running.runner.start_here", lambda job, running: start(job))
        text = SEARCH.replace('metric = "bleu"', 'metric = "perplexity"').replace("trials = 8", "trials = 3")
        (tmp_path / "search.toml").write_text(text, encoding="utf-8")
        return CliRunner().invoke(app, ["tune", str(tmp_path / "search.toml"), "--out", str(tmp_path / "out"), *words])

    return call


def pretend(job):
    """A perplexity of 5 for the recipe, and less for every trial."""
    perplexity = 5.0 if job.row == "recipe" else 4.0 - int(job.row[-1])
    sets = [SetScores(name, 1, "", "", {"perplexity": perplexity}, {}, "") for name in ("valid", "test")]
    folder = job.cell.folder(job.out).make()
    record = make_record(job, RunFolder(folder.path / "run"), "finished", sets)
    folder.save_bytes("cell.json", msgspec.json.encode(record))
    return Finished(job, ENDED)


@needs_optuna
def test_the_command_prints_the_comparison_of_the_best_trial(call, tmp_path):
    result = call(pretend)
    assert result.exit_code == 0, result.output
    assert "trial 3" in result.stdout and "trial 2" not in result.stdout
    said = result.stderr.replace("\n", " ")
    assert "trial 3 has perplexity 1 on the dev set, the recipe perplexity 5;" in said
    assert read_study(tmp_path / "out" / "best.toml").seeds == (1, 2)


@needs_optuna
def test_the_commands_that_the_search_names_at_its_end_work(call, tmp_path):
    """Also in a folder with a space in its name, and with data elsewhere."""
    (tmp_path / "my data").mkdir()
    for file in tmp_path.glob("*.tsv"):
        file.rename(tmp_path / "my data" / file.name)
    result = call(pretend, "--data", str(tmp_path / "my data"), "--out", str(tmp_path / "my search"))
    assert result.exit_code == 0, result.output
    commands = [line.partition(": ")[2] for line in result.stderr.splitlines() if " study show " in line]
    for command, shown in zip(commands, ("trial 3", "trial 2"), strict=True):
        words = shlex.split(command)
        words = [word.replace("NEW_FOLDER", str(tmp_path / "bundle")) for word in words[words.index("study") :]]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0 and shown in done.stdout, done.output


@needs_optuna
def test_without_a_better_trial_the_command_prints_the_trials(call):
    def worse(job):
        pretend(job)
        path = job.cell.folder(job.out).path / "cell.json"
        path.write_text(path.read_text().replace('"perplexity":5.0', '"perplexity":0.5'))
        return Finished(job, ENDED)

    result = call(worse)
    assert result.exit_code == 0, result.output
    assert "no trial is better than the recipe on the dev set (perplexity 0.5)" in result.stderr.replace("\n", " ")
    assert "trial 1" in result.stdout and "trial 3" in result.stdout


@needs_optuna
def test_the_folder_of_a_study_is_refused(tuning, tmp_path):
    (tmp_path / "out" / "cells").mkdir(parents=True)
    with pytest.raises(ConfigError, match="is the folder of a study; name another one with --out"):
        tune(tuning, out=tmp_path / "out", train=Trainer())


@needs_optuna
def test_the_command_fails_if_all_trials_do_or_a_cell_of_the_comparison(call, tmp_path):
    result = call(lambda job: pretend(job) if job.row == "recipe" else Finished(job, REFUSED, "no such file"))
    assert isinstance(result.exception, TrainingError) and "trial 1 failed: no such file" in str(result.exception)
    result = call(lambda job: pretend(job) if job.seed < 2 else Finished(job, REFUSED, "no such file"))
    assert result.exit_code == 1 and "failed: recipe, seed 2: no such file" in result.stderr.replace("\n", " ")


@needs_optuna
def test_the_command_exits_with_3_if_the_time_is_over(call):
    result = call(lambda job: Finished(job, None), "--seconds", "1")
    assert result.exit_code == 3 and "resume with:" in result.stderr
