"""All cells of a study are trained once, whatever ends in between; here in this process, to be quick."""

import hashlib
import math
import re
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from regard.errors import ConfigError, DataError
from regard.run.folder import RunFolder
from regard.study.cells import Cell
from regard.study.checks import check_study
from regard.study.choices import by_key, chosen_records, read_records
from regard.study.records import CellRecord, SetScores
from regard.study.result.collected import collect
from regard.study.running.grid_page import PAGE
from regard.study.running.job import BUSY, ENDED, FAILED, REFUSED, STOPPED, Job
from regard.study.running.record_from_log import make_record, write_failure
from regard.study.running.runner import MAX_ATTEMPTS, run_study
from regard.study.running.train_cell import train_cell
from regard.study.running.workers import END_SECONDS, environment, visible_gpus
from regard.study.state import StudyState, seconds_left
from tests.study.conftest import RECIPE, write_letters

ONE_LAYER = '[rows."one layer"]\nsettings = { "model.num_layers" = 1 }\n'
OTHER_TEST = ONE_LAYER.replace('"model.num_layers" = 1', '"data.test.test.pairs" = "valid.tsv"')
OTHER_DEV = ONE_LAYER.replace('"model.num_layers" = 1', '"data.valid.pairs" = "test.tsv"')
CHOSEN_DEV = '[rows."one layer"]\nchoose = { "data.valid.pairs" = ["valid.tsv", "test.tsv"] }\n'


class Finished:
    """A worker that has ended with a status."""

    def __init__(self, job, status, errors=""):
        self.job, self.status, self.text = job, status, errors

    def poll(self):
        return self.status

    def ask_to_stop(self):
        pass

    def end(self, seconds):
        pass

    def errors(self):
        return self.text


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("regard.study.running.runner.POLL_SECONDS", 0)
    monkeypatch.setattr("regard.study.running.runner.BUSY_SECONDS", 0)


@pytest.fixture
def started():
    return []


def write_pretended(job):
    """Write the record of a cell without training. Its perplexity is 1 + the learning rate."""
    perplexity = 1 + job.candidate.get("train.lr", 0)
    sets = [SetScores(name, 1, "", "", {"perplexity": perplexity}, {}, "") for name in ("valid", "test")]
    folder = job.cell.folder(job.out).make()
    record = replace(make_record(job, RunFolder(folder.path / "run"), "finished", sets), steps=12, seconds=6.0)
    folder.save_bytes("cell.json", msgspec.json.encode(record))


@pytest.fixture
def pretend(started):
    """Starts a worker that writes a record without training."""

    def start(job, running):
        started.append(job.cell.key)
        write_pretended(job)
        return Finished(job, ENDED)

    return start


@pytest.fixture
def train_here(started):
    """Starts a worker that trains in this process."""

    def start(job, running):
        started.append(job.cell.key)
        return Finished(job, train_cell(job, stop=lambda: False))

    return start


def test_every_row_is_trained_with_every_seed_and_scored_on_all_sets(make_study, tmp_path, train_here, started):
    study, out = make_study(), tmp_path / "out"
    state = run_study(study, out=out, start=train_here)
    records = read_records(study, out)
    assert [(one.row, one.seed, one.state, one.steps) for one in records] == [
        ("two layers", 1, "finished", 12),
        ("two layers", 2, "finished", 12),
        ("one layer", 1, "finished", 12),
        ("one layer", 2, "finished", 12),
    ]
    first, second, third, _ = records
    assert first.parameters == second.parameters > third.parameters
    assert first.tests[0].outputs_sha256 != second.tests[0].outputs_sha256, "seeds make a difference"
    assert [one.step for one in first.dev] == [6, 12]
    assert [(one.name, one.pairs) for one in first.tests] == [("valid", 20), ("test", 20)]
    assert {"perplexity", "bleu", "token_errors"} <= first.tests[1].scores.keys()
    # The last validation is of the final weights.
    assert first.tests[0].scores["perplexity"] == pytest.approx(math.exp(first.dev[-1].scores["loss"]))
    folder = Cell("two layers", {}, 1).folder(out)
    outputs = (folder / "outputs").load_bytes("test.txt")
    assert hashlib.sha256(outputs).hexdigest() == first.tests[1].outputs_sha256 and outputs.count(b"\n") == 20
    run = RunFolder(folder.path / "run")
    assert run.finished and not run.steps() and run.card()["results"][0]["name"] == "test"
    # A second call finds nothing to do, and a page that is finished does not reload.
    assert len(started) == 4 and not state.open_cells()
    assert run_study(study, out=out, start=train_here).count("finished") == 4 and len(started) == 4
    page = (out / PAGE).read_text()
    assert "refresh" not in page
    links = re.findall(r'href="(cells/[^"]*)"', page)
    assert len(links) == 4 and all((out / link).is_file() for link in links)


def test_a_row_with_a_recipe_of_its_own_is_trained_with_it_and_scored_on_the_same_sets(
    make_study, tmp_path, train_here
):
    (tmp_path / "shallow.toml").write_text('base = "letters.toml"\n[model]\nnum_layers = 1\n', encoding="utf-8")
    own = ('settings = { "model.num_layers" = 1 }', 'recipe = "shallow.toml"')
    study = make_study(own, ("seeds = [1, 2]", "seeds = [1]"))
    run_study(study, out=tmp_path / "out", start=train_here)
    two, one = read_records(study, tmp_path / "out")
    assert (one.state, one.settings) == ("finished", two.settings)
    assert one.parameters < two.parameters and one.settings_sha256 != two.settings_sha256
    assert [scored.sha256 for scored in one.tests] == [scored.sha256 for scored in two.tests]


def test_candidates_are_chosen_on_the_dev_set_and_only_the_best_is_repeated(make_study, tmp_path, pretend, started):
    choose = '[choose]\n"train.lr" = [2e-3, 1e-3]\n[rows."two layers"]'
    metric = ('metric = "token_errors"', 'metric = "perplexity"')
    study, out = make_study(('[rows."two layers"]', choose), metric), tmp_path / "out"
    state = run_study(study, out=out, start=pretend)
    assert state.total == len(started) == 8
    chosen = chosen_records(study, by_key(state.records))
    assert {row: [one.candidate for one in found.values()] for row, found in chosen.items()} == {
        "two layers": [{"train.lr": 1e-3}, {"train.lr": 1e-3}],
        "one layer": [{"train.lr": 1e-3}, {"train.lr": 1e-3}],
    }
    page = (out / PAGE).read_text()
    assert page.count("chosen</span>") == 2 and "lr 0.001" in page


def test_candidates_come_first_and_then_long_cells(make_study, tmp_path, pretend, started):
    row = 'settings = { "model.num_layers" = 1 }'
    changes = [
        (row, f'{row[:-2]}, "train.steps" = 24 }}\n[rows.chooses]\nchoose = {{ "train.lr" = [1e-3, 2e-3] }}'),
        ("seeds = [1, 2]", "seeds = [1]"),
        ('metric = "token_errors"', 'metric = "perplexity"'),
    ]
    run_study(make_study(*changes), out=tmp_path / "out", start=pretend)
    assert [key.split("-")[0] for key in started] == [
        "chooses/lr=0.001",
        "chooses/lr=0.002",
        "one",
        "two",
        "chooses/lr=0.001",
    ]


def test_a_row_like_another_waits_for_its_choice(make_study, tmp_path, pretend, started):
    choose = '[choose]\n"train.lr" = [2e-3, 1e-3]\n[rows."two layers"]'
    like = ('settings = { "model.num_layers" = 1 }', 'settings = { "model.num_layers" = 1 }\nlike = "two layers"')
    metric = ('metric = "token_errors"', 'metric = "perplexity"')
    study, out = make_study(('[rows."two layers"]', choose), like, metric), tmp_path / "out"
    state = run_study(study, out=out, start=pretend)
    assert state.total == len(started) == 6
    assert [(one.row, one.candidate["train.lr"]) for one in read_records(study, out)][4:] == [("one layer", 1e-3)] * 2
    assert "as two layers</span>" in (out / PAGE).read_text()


def test_a_cell_that_diverges_is_recorded_and_the_others_are_trained(make_study, tmp_path, train_here):
    row = 'settings = { "model.num_layers" = 1 }'
    worse = 'settings = { "train.lr" = 1e30, "train.max_bad_steps" = 2, "model.norm_order" = "post" }'
    study, out = make_study((row, worse), ("seeds = [1, 2]", "seeds = [1]")), tmp_path / "out"
    state = run_study(study, out=out, start=train_here)
    assert [one.state for one in read_records(study, out)] == ["finished", "diverged"]
    assert state.records[-1].problem == "2 steps in a row had a gradient that is not finite"
    page = (out / PAGE).read_text()
    assert "2 steps in a row" in page and page.count(">diverged</span>") == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("train.tsv", "two-layers-[^/]+/-/3 and two-layers-[^/]+/-/1 do not have the same training text and dev set"),
        ("test.tsv", "two-layers-[^/]+/-/3 and two-layers-[^/]+/-/1 have different pairs of test"),
    ],
)
def test_a_cell_whose_text_has_changed_since_others_ended_is_not_trained(
    changed, message, make_study, tmp_path, train_here
):
    out = tmp_path / "out"
    rows = (ONE_LAYER, "")
    run_study(make_study(rows, ("seeds = [1, 2]", "seeds = [1]")), out=out, start=train_here)
    study = make_study(rows, ("seeds = [1, 2]", "seeds = [1, 3]"))
    original = remove_last_pair(tmp_path / changed)
    job = Job(study, str(out), None, "two layers", {}, 3)
    with pytest.raises(DataError, match=message):
        train_cell(job, stop=lambda: False)
    assert not job.cell.folder(out).has_folder("run"), "what was begun with the other text is gone"
    # With the right text it is trained.
    (tmp_path / changed).write_text(original, encoding="utf-8")
    assert [one.state for one in run_study(study, out=out, start=train_here).records] == ["finished", "finished"]


def remove_last_pair(path):
    """Remove the last line of a file, and return what the file was."""
    original = path.read_text(encoding="utf-8")
    path.write_text("".join(original.splitlines(keepends=True)[:-1]), encoding="utf-8")
    return original


@pytest.fixture
def begun_with_other_text(make_study, tmp_path, train_here):
    """A study of two seeds whose first cell has ended; the second was begun with other training text and is refused now."""
    study, out = make_study((ONE_LAYER, "")), tmp_path / "out"
    job = Job(study, str(out), None, "two layers", {}, 2)
    answers = iter([False] * 8)
    original = remove_last_pair(tmp_path / "train.tsv")
    assert train_cell(job, stop=lambda: next(answers, True)) == STOPPED
    (tmp_path / "train.tsv").write_text(original, encoding="utf-8")
    train_here(Job(study, str(out), None, "two layers", {}, 1), 1)
    remove_last_pair(tmp_path / "train.tsv")
    with pytest.raises(DataError, match="do not have the same training text") as refused:
        train_cell(job, stop=lambda: False)
    write_failure(job, str(refused.value))
    return study, job


def test_a_resumed_cell_that_is_refused_for_its_text_keeps_its_training(begun_with_other_text):
    _, job = begun_with_other_text
    assert RunFolder(job.cell.folder(job.out).path / "run").steps()


def test_a_cell_without_scores_may_have_other_text(begun_with_other_text, tmp_path):
    """It is in no table, so nothing keeps the other cells from being trained and shown."""
    study, job = begun_with_other_text
    assert [(one.state, bool(one.corpus)) for one in read_records(study, job.out)] == [
        ("finished", True),
        ("failed", True),
    ]
    collect(study, job.out)
    write_letters(tmp_path)
    more = replace(study, seeds=(1, 2, 3))
    assert train_cell(Job(more, job.out, None, "two layers", {}, 3), stop=lambda: False) == ENDED


def test_a_cell_that_was_trained_by_another_process_is_not_scored_on_other_pairs(make_study, tmp_path, train_here):
    study, out = make_study((ONE_LAYER, "")), tmp_path / "out"
    train_here(Job(study, str(out), None, "two layers", {}, 1), 1)
    job = Job(study, str(out), None, "two layers", {}, 2)

    def killed():
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        train_cell(job, stop=lambda: False, scoring=killed)
    original = remove_last_pair(tmp_path / "test.tsv")
    with pytest.raises(DataError, match="have different pairs of test"):
        train_cell(job, stop=lambda: False)
    (tmp_path / "test.tsv").write_text(original, encoding="utf-8")
    assert train_cell(job, stop=lambda: False) == ENDED
    assert [one.state for one in read_records(study, out)] == ["finished", "finished"]


def test_candidates_may_be_trained_when_a_test_set_has_changed(make_study, tmp_path, train_here):
    """They are not scored on test sets."""
    study, out = make_study((ONE_LAYER, f'{ONE_LAYER}choose = {{ "train.lr" = [1e-3, 1e-4] }}\n')), tmp_path / "out"
    train_here(Job(study, str(out), None, "two layers", {}, 1), 1)
    remove_last_pair(tmp_path / "test.tsv")
    assert train_cell(Job(study, str(out), None, "one layer", {"train.lr": 1e-4}, 0), stop=lambda: False) == ENDED


def test_a_process_that_crashes_is_started_again_a_few_times(make_study, tmp_path, pretend, started):
    study, out = make_study(), tmp_path / "out"
    crashes = []

    def start(job, running):
        if job.row == "one layer" and job.seed == 2 and len(crashes) < MAX_ATTEMPTS:
            crashes.append(job)
            return Finished(job, -9 if len(crashes) < MAX_ATTEMPTS else FAILED, "a traceback\nthe last line")
        return pretend(job, running)

    state = run_study(study, out=out, start=start)
    assert len(crashes) == MAX_ATTEMPTS and len(started) == 3
    failed = read_records(study, out)[-1]
    assert (failed.state, failed.problem) == ("failed", "the last line") and state.count("failed") == 1
    assert "a traceback" in Cell("one layer", {}, 2).folder(out).load_text("errors.txt")
    # The next call tries it again.
    assert StudyState(study, out).open_cells() == [Cell("one layer", {}, 2)]
    assert run_study(study, out=out, start=start).count("finished") == 4


def test_a_cell_that_is_refused_is_not_tried_twice(make_study, tmp_path):
    study, tried = make_study(), []

    def start(job, running):
        tried.append(job.cell.key)
        return Finished(job, REFUSED, "there is no such file")

    state = run_study(study, out=tmp_path / "out", start=start)
    assert len(tried) == 4 and {one.problem for one in state.records} == {"there is no such file"}


@pytest.mark.parametrize("damage", ["record", "log", "folder"])
def test_a_cell_whose_files_are_damaged_fails_alone(make_study, tmp_path, started, pretend, damage):
    study, out = make_study(), tmp_path / "out"
    cell = Cell("two layers", {}, 2).folder(out)
    if damage == "record":
        cell.make().save_text("cell.json", "[1]")
    elif damage == "log":
        (cell / "run").make().save_text("recipe.toml", "")
        (cell.path / "run" / "log.jsonl").symlink_to("elsewhere")
    else:
        cell.path.parent.mkdir(parents=True)
        cell.path.write_text("a file")
    tried = []

    def start(job, running):
        if job.cell != Cell("two layers", {}, 2):
            return pretend(job, running)
        tried.append(job)
        assert len(tried) <= MAX_ATTEMPTS, "it is started again and again"
        return Finished(job, REFUSED, "log.jsonl is a symbolic link")

    state = run_study(study, out=out, start=start)
    assert (len(started), len(tried)) == (3, 1)
    [failed] = [one for one in state.records if one.state == "failed"]
    assert failed.seed == 2 and "log.jsonl is a symbolic link" in failed.problem
    assert state.count("finished") == 3 and not state.open_cells()
    assert "log.jsonl is a symbolic link" in (out / PAGE).read_text()


def test_a_record_that_is_not_visible_yet_is_no_crash(make_study, tmp_path, pretend):
    """On a shared disk, a file of another machine may appear late."""
    late, out = [], tmp_path / "out"

    def start(job, running):
        if len(late) <= MAX_ATTEMPTS and job.cell == Cell("two layers", {}, 1):
            late.append(job)
            return Finished(job, ENDED)
        return pretend(job, running)

    assert run_study(make_study(), out=out, start=start).count("finished") == 4
    assert len(late) == MAX_ATTEMPTS + 1


def test_a_cell_that_another_runner_has_tried_again_is_not_tried_a_second_time(make_study, tmp_path):
    study, out = make_study(), tmp_path / "out"
    for row in study.rows:
        for seed in study.seeds:
            fail(study, Cell(row, {}, seed), out)
    state = StudyState(study, out)
    assert len(state.open_cells()) == 4
    fail(study, Cell("one layer", {}, 2), out)
    state.refresh()
    assert Cell("one layer", {}, 2) not in state.open_cells() and len(state.open_cells()) == 3


class Slow(Finished):
    """A worker that takes all the time that it is given to end."""

    clock = 0.0

    def __init__(self, job):
        super().__init__(job, None)

    def end(self, seconds):
        Slow.clock += seconds


def test_all_cells_together_have_the_time_to_save(make_study, tmp_path, monkeypatch):
    monkeypatch.setattr(Slow, "clock", 0.0)
    monkeypatch.setattr("regard.study.running.runner.time", SimpleNamespace(monotonic=lambda: Slow.clock, sleep=id))
    began = []

    def start(job, running):
        began.append(job)
        return Slow(job)

    run_study(make_study(), out=tmp_path / "out", at_once=4, start=start, stop=lambda: len(began) == 4)
    assert Slow.clock == END_SECONDS


def test_processes_are_given_the_data_folder_of_the_environment(make_study, tmp_path, monkeypatch):
    """Processes on other machines may not have the variable."""
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("REGARD_DATA", tmp_path.name)
    folders = []

    def start(job, running):
        folders.append(job.data)
        return Finished(job, REFUSED, "no")

    run_study(make_study(), out=tmp_path / "out", start=start)
    assert set(folders) == {str(tmp_path)}


def test_the_problem_of_a_cell_names_no_folder_of_this_machine(make_study, tmp_path):
    study, out, data = make_study(), tmp_path / "my out", tmp_path / "my data"
    job = Job(study, str(out), str(data), "one layer", {}, 1)
    problem = f"{out}/cells/a/log.jsonl: no file 'x.tsv' in '{data}', {str(tmp_path)!r}; open('/home/me/b/x.py'), https://a.b/c"
    for state in ("failed", "diverged"):
        record = make_record(job, RunFolder(out / "run"), state, problem=problem)
        assert record.problem == (
            f"cells/a/log.jsonl: no file 'x.tsv' in 'my data', {tmp_path.name!r}; open('x.py'), https://a.b/c"
        )


def test_a_cell_of_another_process_is_left_to_it(make_study, tmp_path, pretend, started):
    study, out = make_study(), tmp_path / "out"
    held = Cell("two layers", {}, 1).folder(out)
    statuses = []

    def start(job, running):
        if job.cell.key.startswith("two") and job.seed == 1 and not statuses:
            with held.locked(busy=""):
                statuses.append(train_cell(job, stop=lambda: False))
            return Finished(job, statuses[0])
        return pretend(job, running)

    assert run_study(study, out=out, start=start).count("finished") == 4
    assert statuses == [BUSY] and len(started) == 4


def test_stopping_leaves_the_rest_for_the_next_call(make_study, tmp_path, pretend, started):
    study, out = make_study(), tmp_path / "out"
    state = run_study(study, out=out, start=pretend, stop=lambda: len(started) == 2)
    assert len(state.open_cells()) == 2
    assert 'http-equiv="refresh"' in (out / PAGE).read_text()
    run_study(study, out=out, start=pretend)
    assert len(set(started)) == len(started) == 4


def test_nothing_is_started_after_the_request_to_stop(make_study, tmp_path, pretend, started):
    state = run_study(make_study(), out=tmp_path / "out", start=pretend, stop=lambda: True)
    assert not started and len(state.open_cells()) == 4
    assert (tmp_path / "out" / PAGE).is_file()


def test_a_cell_that_someone_else_stops_is_resumed_and_not_counted_as_crashed(make_study, tmp_path, pretend):
    stopped = []

    def start(job, running):
        if len(stopped) < 2 * MAX_ATTEMPTS:
            stopped.append(job.cell.key)
            return Finished(job, STOPPED)
        return pretend(job, running)

    state = run_study(make_study(), out=tmp_path / "out", start=start)
    assert len(stopped) == 2 * MAX_ATTEMPTS and state.count("finished") == 4


@pytest.mark.slow
def test_a_stopped_cell_resumes_to_the_same_record(make_study, tmp_path, train_here):
    rows = '[rows."one layer"]\nsettings = { "model.num_layers" = 1 }\n'
    study = make_study(("seeds = [1, 2]", "seeds = [1]"), (rows, ""))
    answers = iter([False] * 8)
    run_study(study, out=tmp_path / "whole", start=train_here)

    def start(job, running):
        return Finished(job, train_cell(job, stop=lambda: next(answers, True)))

    run_study(study, out=tmp_path / "parts", start=start, stop=lambda: next(answers, None) is None)
    begun = RunFolder(Cell("two layers", {}, 1).folder(tmp_path / "parts").path / "run")
    assert begun.exists and not begun.finished
    run_study(study, out=tmp_path / "parts", start=train_here)
    assert without_times(read_records(study, tmp_path / "parts")) == without_times(
        read_records(study, tmp_path / "whole")
    )


def without_times(records, **changes):
    """Return records without what differs between machines and moments."""
    return [replace(record, seconds=0.0, tokens_per_second=None, **changes) for record in records]


def test_other_settings_than_those_of_finished_cells_are_refused(make_study, tmp_path, pretend):
    run_study(make_study(), out=tmp_path / "out", start=pretend)
    with pytest.raises(ConfigError, match="was trained with other settings than the study has now; remove this folder"):
        run_study(make_study(('"train.steps" = 12', '"train.steps" = 13')), out=tmp_path / "out", start=pretend)


@pytest.mark.parametrize("steps", [12, 13])
def test_cells_of_an_earlier_version_are_kept_unless_the_study_has_other_settings(
    make_study, tmp_path, pretend, started, monkeypatch, steps
):
    """The hash of all settings also depends on the defaults of the version."""
    run_study(make_study(), out=tmp_path / "out", start=pretend)
    for file in (tmp_path / "out").glob("cells/*/*/*/cell.json"):
        record = msgspec.json.decode(file.read_bytes(), type=CellRecord)
        earlier = replace(record, settings_sha256="0" * 64, machine={"regard": "0.0.1"})
        file.write_bytes(msgspec.json.encode(earlier))
    study = make_study(('"train.steps" = 12', f'"train.steps" = {steps}'))
    if steps == 12:
        assert run_study(study, out=tmp_path / "out", start=pretend).count("finished") == 4 == len(started)
    else:
        with pytest.raises(ConfigError, match="was trained with other settings"):
            run_study(study, out=tmp_path / "out", start=pretend)


def fail(study, cell, out):
    """Write the record of a cell whose process was refused, and a file in its run folder."""
    run = (cell.folder(out) / "run").make()
    run.save_text("log.jsonl", "")
    write_failure(Job(study, str(out), None, cell.row, cell.candidate, cell.seed), "out of memory")
    return run


def test_a_failed_cell_begins_anew_if_its_settings_were_corrected(make_study, tmp_path, monkeypatch):
    out, cell = tmp_path / "out", Cell("two layers", {}, 1)
    run, begun = fail(make_study(), cell, out), []

    def train(*recipe, **options):
        begun.append((run.has_file("log.jsonl"), cell.folder(out).has_file("cell.json")))
        run.make().save_text("log.jsonl", "")
        return SimpleNamespace(finished=False)

    monkeypatch.setattr("regard.api.train", train)
    corrected = make_study(('"train.tokens" = 128', '"train.tokens" = 64'))
    for study in (make_study(), corrected, corrected):
        job = Job(study, str(out), None, cell.row, cell.candidate, cell.seed)
        assert train_cell(job, stop=lambda: False) == STOPPED
    # With the same settings it resumes. What was begun with the corrected ones resumes too.
    assert begun == [(True, True), (False, False), (True, False)]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (('metric = "token_errors"', 'metric = "blue"'), ConfigError, "which is not computed; did you mean 'bleu'?"),
        (("seeds =", 'tests = ["tests"]\nseeds ='), ConfigError, "the recipe has not; did you mean 'test'?"),
        (('"model.hidden"', '"model.hiden"'), ConfigError, "the row 'two layers': model has no field 'hiden'"),
        (('"model.width" = 16', '"model.width" = 15'), ConfigError, "the row 'two layers'"),
        (
            (ONE_LAYER, ONE_LAYER.replace("= 1", '= 1, "evaluate.lowercase" = true')),
            ConfigError,
            "the row 'one layer' and the row 'two layers' differ in [evaluate], so their scores could not be compared",
        ),
        (
            (ONE_LAYER, f'{ONE_LAYER}choose = {{ "evaluate.lowercase" = [true, false] }}\n'),
            ConfigError,
            "the candidates of the row 'one layer' differ in [evaluate], so their scores could not be compared",
        ),
        (
            ('[rows."one layer"]', '[rows."one layer"]\npublished = { blue = 1 }'),
            ConfigError,
            "'blue'; did you mean 'bleu'?",
        ),
        (('"train.threads" = 1', '"data.train.pairs" = "no.tsv"'), DataError, "no file 'no.tsv' in"),
        (
            (ONE_LAYER, OTHER_TEST),
            ConfigError,
            "the row 'one layer' has other pairs in the test set test than the row 'two",
        ),
        (
            (ONE_LAYER, CHOSEN_DEV),
            ConfigError,
            "the candidates of the row 'one layer' have different pairs in the dev set",
        ),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(make_study, tmp_path, change, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        run_study(make_study((change[0], change[1])), out=tmp_path / "out", start=None)
    assert not (tmp_path / "out").exists()


def test_rows_with_the_same_settings_are_named(make_study):
    heard = []
    check_study(
        make_study((ONE_LAYER, '[rows."one layer"]\nsettings = { "model.num_layers" = 2 }\n')), warn=heard.append
    )
    assert heard == [
        "the rows 'two layers' and 'one layer' have the same settings, so a difference between their scores is noise"
    ]


def test_rows_with_files_of_one_name_in_two_folders_have_other_settings(make_study, tmp_path):
    heard = []
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.tsv").write_text(f"a b\t{folder}\n", encoding="utf-8")
    rows = [f'[rows.{one}]\nsettings = {{ "data.train.pairs" = "{tmp_path / one / "train.tsv"}" }}\n' for one in "xy"]
    check_study(make_study((ONE_LAYER, "".join(rows))), warn=heard.append)
    assert heard == []


def test_an_output_folder_that_is_a_file_is_refused(make_study, tmp_path):
    with pytest.raises(
        ConfigError, match=r"cannot make the folder .*letters\.toml: a file or a broken link has its name"
    ):
        run_study(make_study(), out=tmp_path / "letters.toml")


def test_rows_may_have_other_dev_sets_unless_these_are_reported(make_study, tmp_path):
    check_study(make_study((ONE_LAYER, OTHER_DEV)))
    with pytest.raises(
        ConfigError, match="the row 'one layer' has other pairs in the dev set than the row 'two layers'"
    ):
        check_study(make_study((ONE_LAYER, OTHER_DEV), ("seeds =", 'tests = ["valid"]\nseeds =')))
    # Of other training examples, other ones are held out.
    held_out = RECIPE.replace('valid = { pairs = "valid.tsv" }', "valid = { hold_out = 20 }")
    (tmp_path / "held.toml").write_text(held_out, encoding="utf-8")
    fewer = ONE_LAYER.replace('"model.num_layers" = 1', '"data.train.pairs" = "valid.tsv"')
    changes = [('recipe = "letters.toml"', 'recipe = "held.toml"'), (ONE_LAYER, fewer)]
    check_study(make_study(*changes))
    with pytest.raises(ConfigError, match="has other pairs in the dev set"):
        check_study(make_study(*changes, ("seeds =", 'tests = ["valid"]\nseeds =')))


def test_the_time_that_is_left_follows_from_the_steps_that_are(make_study, tmp_path, pretend, started):
    study, out = make_study(), tmp_path / "out"
    state = run_study(study, out=out, start=pretend, stop=lambda: len(started) == 3)
    assert len(state.open_cells()) == 1
    # Three cells of 12 steps took 6 seconds each, and one remains.
    assert seconds_left(state, state.progress(), 1) == 6
    assert seconds_left(state, state.progress(), 2) == 3


def test_processes_share_cores_and_gpus(tmp_path):
    assert environment({}, sharing_cores=1, gpu=None).get("OMP_NUM_THREADS") is None
    assert environment({}, sharing_cores=1000, gpu="1")["OMP_NUM_THREADS"] == "1"
    assert environment({"OMP_NUM_THREADS": "3"}, sharing_cores=2, gpu="1")["OMP_NUM_THREADS"] == "3"
    assert environment({}, sharing_cores=2, gpu="1")["CUDA_VISIBLE_DEVICES"] == "1"
    for name in ("nvidia2", "nvidia3", "nvidiactl"):
        (tmp_path / name).touch()
    # A container with two GPUs of the host has their names, but CUDA counts from 0.
    assert visible_gpus({}, tmp_path) == ["0", "1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2, 5"}, tmp_path) == ["2", "5"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []


def test_statuses_of_processes_are_different():
    assert len({ENDED, FAILED, REFUSED, STOPPED, BUSY}) == 5
