"""Searches: files, proposals, and trials as rows of a study."""

import importlib.util
import math
from types import SimpleNamespace

import msgspec
import pytest

from regard.errors import ConfigError, MissingExtra
from regard.study.cells import (
    CellRecord,
    SetScores,
    cells_of,
    read_records,
    recipe_of_cell,
    settings_digest,
    settings_of,
)
from regard.study.study_file import read_study
from regard.study.tuning import best_study, propose, read_tuning, scored_trials, tune
from tests.study.synthetic import write_study

SEARCH = """
recipe = "toy.toml"
metric = "bleu"
trials = 12
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
        ("trials = 12", "trials = 0", "trials must be"),
        ("low = 1e-4", "low = 1", "low must be below high"),
        ("log = true", "logarithmic = true", "logarithmic"),
        ('["pre", "post"]', '["pre"]', "2 to 100 values"),
        ("seeds = [1, 2]", "seeds = [1, 1]", "each once"),
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

    trials = [{"train.lr": 0.1}, {"train.lr": 0.2}, {"train.lr": 0.3}]
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
    """Writes records of cells in place of training them, at most `most` of them."""

    def __init__(self, most=10**9):
        self.most, self.trained = most, []

    def __call__(self, study, *, out, **others):
        def missing():
            known = {(one.row, one.seed) for one in read_records(study, out)}
            return [cell for cell in cells_of(study, read_records(study, out)) if (cell.row, cell.seed) not in known]

        for cell in missing():
            if len(self.trained) >= self.most:
                break
            settings = settings_of(study, cell)
            self.trained.append((cell.row, cell.seed, settings))
            sets = [
                SetScores(name, 1, "", "", {"bleu": quality(settings) + cell.seed}, {}, "")
                for name in ("valid", "test")
            ]
            record = CellRecord(
                row=cell.row,
                candidate={},
                seed=cell.seed,
                state="finished",
                settings=settings,
                settings_sha256=settings_digest(recipe_of_cell(study, cell)),
                tests=sets,
            )
            cell.folder(out).make().save_bytes("cell.json", msgspec.json.encode(record))
        return SimpleNamespace(open_cells=missing)


@needs_optuna
def test_a_search_trains_its_trials_then_the_best_with_all_seeds_and_writes_studies(tuning, tmp_path):
    trainer = Trainer()
    done = tune(tuning, out=tmp_path / "out", train=trainer)
    assert done.ended
    # The recipe and 12 trials with one seed, then the recipe and the best with the other.
    assert len(trainer.trained) == 1 + 12 + 2
    scores = {row: quality(settings) for row, seed, settings in trainer.trained if seed == 1}
    best = max(scores, key=scores.get)
    assert list(done.best.rows) == ["recipe", best]
    assert scores[best] > 46  # within a factor of 2.5 of the best rate
    assert len(read_study(tmp_path / "out" / "study.toml").rows) == 13
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
