"""Bundles: scores of the tested metric, tests and tables are derived again, and any changed digit is found."""

import gzip
import hashlib
import re
import shutil
import signal

import msgspec
import pytest

from regard.errors import ConfigError
from regard.metrics.significance import Sampling
from regard.study.bundle.bundle_check import check_bundle
from regard.study.bundle.bundle_files import MANIFEST, read_bundled_study
from regard.study.bundle.bundle_records import BundleCheck, collect_bundle, read_bundled_records
from regard.study.bundle.bundle_writing import write_bundle
from regard.study.result.collected import collect
from regard.study.result.result_files import RESULT, TABLES, result_files, result_json
from regard.study.result.table_formats import as_markdown
from regard.study.running.job import Job
from regard.study.running.record_from_log import write_failure
from tests.commands import python, regard
from tests.study.synthetic import STUDY, make_cells, write_study


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    _, study = write_study(folder)
    make_cells(study, folder / "out")
    collected = collect(study, folder / "out")
    files = result_files(collected.result(Sampling(trials=100)), lambda text: None)
    write_bundle(folder / "bundle", collected, folder / "out", files)
    return folder


@pytest.fixture
def bundle(original, tmp_path):
    return shutil.copytree(original / "bundle", tmp_path / "bundle")


def kinds(bundle):
    """One file of each kind, by a pattern of its path."""
    found = {}
    for path in sorted(bundle.rglob("*")):
        name = path.relative_to(bundle).as_posix()
        if path.is_file():
            found.setdefault(re.sub(r"cells/.*/", "cells/", name), path)
    return found


def change_a_digit(path):
    """Change the last digit of a file: of its text, if it is compressed."""
    packed = path.suffix == ".gz"
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    digits = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    place = digits[-1]
    other = b"1" if content[place : place + 1] != b"1" else b"2"
    content = content[:place] + other + content[place + 1 :]
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)


def seal(bundle):
    """Write the manifest of what is there now, as someone would who changes a bundle on purpose."""
    lines = []
    for path in sorted(bundle.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{digest}  {path.relative_to(bundle).as_posix()}\n")
    (bundle / MANIFEST).write_text("".join(lines), encoding="utf-8")


def test_a_bundle_as_written_has_no_problems(original):
    found = check_bundle(original / "bundle")
    assert found.problems == []
    assert found.cells == 14
    assert found.values > 250
    assert any("--data" in note for note in found.notes)
    assert found.derived == {"study.json", "table.md", "table.tex", "table.txt"}
    assert found.files > 40


def test_with_the_data_all_scores_are_computed_again(original):
    found = check_bundle(original / "bundle", data=original)
    assert found.problems == []
    assert not any("--data" in note for note in found.notes)
    # 4 rows with 3 seeds on 2 sets.
    assert sum(name.endswith(".bleu.tsv.gz") for name in found.derived) == 24 == len(found.derived) - 4


def test_the_test_sets_are_not_in_it_and_no_folder_of_this_machine(original):
    texts = [(original / f"{name}.tsv").read_text(encoding="utf-8") for name in ("valid", "test")]
    sentences = [sentence.encode() for text in texts for line in text.splitlines() for sentence in line.split("\t")]
    for path in [path for path in (original / "bundle").rglob("*") if path.is_file()]:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert str(original).encode() not in content, path
        if path.parent.name == "outputs":
            # An output may be equal to a reference, so the file must be that of the cell and nothing else.
            assert content == (original / "out" / path.relative_to(original / "bundle").with_suffix("")).read_bytes()
        else:
            assert not [sentence for sentence in sentences if sentence in content], path


def test_a_changed_digit_of_any_file_is_found_and_the_file_is_named(bundle):
    for kind, path in kinds(bundle).items():
        before = path.read_bytes()
        change_a_digit(path)
        problems = check_bundle(bundle).problems
        if kind == MANIFEST:
            # The hash of the last file.
            assert len(problems) == 1 and "SHA-256 differs" in problems[0]
        else:
            assert any(path.name in problem for problem in problems), kind
        path.write_bytes(before)
    assert check_bundle(bundle).problems == []


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("study.json", r'"mean": (\d)', r'"mean": 9\1', r"study.json: rows.base.sets.valid.scores.perplexity.mean is "),
        ("table.md", r"24\.1", "24.2", r"table.md, line \d+ is "),
        ("table.tex", r"24\.1", "24.2", r"table.tex, line \d+ is "),
        ("table.txt", r"24\.1", "24.2", r"table.txt, line \d+ is "),
        ("cells/base/-/1/cell.json", r'"bleu": (\d)\d', r'"bleu": \g<1>1', r"cells/base/-/1/cell.json: bleu on valid is "),
        ("cells/base/-/1/cell.json", r'"seconds": 90', '"seconds": 80', r"study.json: rows.base.seconds is 90.0, derived "),
        ("cells/base/-/1/cell.json", r"smoothing\": 0.1", 'smoothing": 0.2', r"base/-/1/cell.json: settings are not those"),
        ("cells/base/-/1/cell.json", r'sha256": "[0-9a-f]{4}', 'sha256": "0000', r"settings_sha256 is not that of"),
        ("recipe/toy.toml", r"steps = 100", "steps = 200", r"settings_sha256 is not that of"),
        ("recipe/toy.toml", r"\A", 'base = "../../elsewhere.toml"\n', r"recipe/toy.toml has a base"),
        ("study.toml", r'recipe = "recipe/toy.toml"', 'recipe = "recipe/../../toy.toml"', r"neither a shipped recipe nor"),
        ("study.toml", r'recipe = "recipe/toy.toml"', 'recipe = "/etc/toy.toml"', r"neither a shipped recipe nor"),
        ("study.json", r'"trials": 100', '"trials": 1000000', r"trials is 1,000,000; at most 100,000"),
        ("study.toml", r"bleu = 24.1", "bleu = 24.3", r"study.json: rows.N.* is 24.1, derived 24.3"),
    ],
)  # fmt: skip
def test_who_changes_the_manifest_too_is_found_by_the_numbers(bundle, file, old, new, expected):
    path = bundle / file
    text, changes = re.subn(old, new, path.read_text(encoding="utf-8"), count=1)
    assert changes == 1
    path.write_text(text, encoding="utf-8")
    seal(bundle)
    problems = check_bundle(bundle).problems
    assert any(re.search(expected, problem) for problem in problems), problems


def test_changed_outputs_and_statistics_are_found_behind_a_new_manifest(bundle, original):
    outputs = bundle / "cells/base/-/1/outputs/test.txt.gz"
    statistics = bundle / "cells/base/-/2/statistics/test.bleu.tsv.gz"
    change_a_digit(statistics)
    seal(bundle)
    assert any("cells/base/-/2/cell.json: bleu on test is" in one for one in check_bundle(bundle).problems)
    change_a_digit(outputs)
    seal(bundle)
    assert any("are not those that were scored" in one for one in check_bundle(bundle).problems)


def test_statistics_that_give_the_right_score_but_not_of_these_outputs_are_found_with_the_data(bundle, original):
    path = bundle / "cells/base/-/2/statistics/test.bleu.tsv.gz"
    first, second, *others = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert first != second
    path.write_bytes(gzip.compress(("\n".join([second, first, *others]) + "\n").encode(), mtime=0))
    seal(bundle)
    found = check_bundle(bundle, data=original).problems
    assert any("line 1 of cells/base/-/2/statistics/test.bleu.tsv.gz" in one for one in found)


FIRST = "cells/base/-/1/cell.json"
EVERY = "cells/*/*/*/cell.json"


def change_records(bundle, pattern, change):
    """Change records, and write the result and the manifest that follow from them, as someone would who wants to deceive."""
    for path in bundle.glob(pattern):
        record = msgspec.json.decode(path.read_bytes())
        change(record)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
    study, found = read_bundled_study(bundle), BundleCheck()
    result = collect_bundle(bundle, study, read_bundled_records(bundle, study, found), found).result(
        Sampling(trials=100)
    )
    (bundle / RESULT).write_bytes(result_json(result))
    for name, make in TABLES.items():
        (bundle / name).write_text(make(result), encoding="utf-8")
    seal(bundle)


def test_other_scores_are_found_with_the_data(bundle, original):
    def change(record):
        record["tests"][1]["scores"]["chrf"] += 1

    change_records(bundle, FIRST, change)
    assert check_bundle(bundle).problems == []
    found = check_bundle(bundle, data=original).problems
    assert any("cells/base/-/1/cell.json: chrf on test is" in one for one in found)


def lower(record):
    for one in record["tests"]:
        one["scores"]["bleu"] -= 10


def test_statistics_that_are_missing_are_a_problem_or_if_all_are_a_note(bundle, original):
    notes = " ".join(check_bundle(bundle).notes)
    assert "bleu of cells with the seeds of the study" in notes and "of candidates" in notes
    path = bundle / "cells/base/-/1/statistics/test.bleu.tsv.gz"
    path.unlink()
    change_records(bundle, FIRST, lambda record: None)
    assert check_bundle(bundle).problems == [
        "cells/base/-/1/statistics/test.bleu.tsv.gz is missing, but other outputs have such statistics"
    ]
    for folder in bundle.rglob("statistics"):
        shutil.rmtree(folder)
    change_records(bundle, FIRST, lower)
    found = check_bundle(bundle)
    assert found.problems == []
    assert any("no score is derived again" in note for note in found.notes)
    assert not any("derived from the statistics" in note for note in found.notes)
    assert any("bleu on test is" in one for one in check_bundle(bundle, data=original).problems)


def test_outputs_that_a_record_does_not_have_are_a_problem(bundle, original):
    def without_outputs(record):
        lower(record)
        for one in record["tests"]:
            one["outputs_sha256"] = ""

    change_records(bundle, FIRST, without_outputs)
    assert f"{FIRST}: there are no outputs for test" in check_bundle(bundle).problems
    change_records(bundle, EVERY, without_outputs)
    found = check_bundle(bundle)
    assert found.problems == []
    assert "all scores are as recorded, because there are no outputs to compute them from" in found.notes
    assert f"{FIRST}: there are no outputs for test" in check_bundle(bundle, data=original).problems


def test_rows_that_were_scored_on_other_pairs_are_a_problem(bundle, original):
    def other_pairs(record):
        for one in record["tests"]:
            one["sha256"] = "0" * 64

    change_records(bundle, FIRST, other_pairs)
    assert any("have different pairs of" in one for one in check_bundle(bundle).problems)
    for folder in bundle.rglob("statistics"):
        shutil.rmtree(folder)
    change_records(bundle, EVERY, other_pairs)
    assert check_bundle(bundle).problems == []
    found = check_bundle(bundle, data=original).problems
    assert any("is not the one that was scored" in one for one in found)


def test_training_text_is_compared_where_records_have_its_hash(bundle):
    note = "the training text of {} is not compared, because an earlier version has not recorded its hash"
    notes = check_bundle(bundle).notes
    assert any(re.fullmatch(note.format(r"\d+ cells"), one) for one in notes)
    change_records(bundle, EVERY, lambda record: record.update(corpus={"train": "a"}))
    found = check_bundle(bundle)
    assert found.problems == [] and not any("training text" in one for one in found.notes)
    change_records(bundle, FIRST, lambda record: record.update(corpus={}))
    assert note.format("1 cell") in check_bundle(bundle).notes
    change_records(bundle, FIRST, lambda record: record.update(corpus={"train": "b"}))
    assert any("base/-/1 do not have the same training text" in one for one in check_bundle(bundle).problems)


def test_the_record_of_a_cell_that_failed_names_no_folder_of_this_machine(tmp_path):
    _, study = write_study(tmp_path)
    make_cells(study, tmp_path / "out", states={("base", 3): "failed"})
    job = Job(study, str(tmp_path / "out"), str(tmp_path), "base", {}, 3)
    write_failure(job, f"{tmp_path}/out/cells/base/-/3/run cannot be read, no file in '{tmp_path}'")
    collected = collect(study, tmp_path / "out")
    files = {"table.md": as_markdown(collected.result(Sampling(trials=10))).encode()}
    write_bundle(tmp_path / "bundle", collected, tmp_path / "out", files)
    assert "cells/base/-/3/run cannot be read" in (tmp_path / "bundle/table.md").read_text(encoding="utf-8")
    for path in [path for path in (tmp_path / "bundle").rglob("*") if path.is_file() and path.suffix != ".gz"]:
        assert str(tmp_path).encode() not in path.read_bytes(), path


def test_a_test_set_that_a_record_has_twice_is_found(bundle):
    path = bundle / "cells/base/-/1/cell.json"
    record = msgspec.json.decode(path.read_bytes())
    record["tests"].append({**record["tests"][0], "scores": {"bleu": 99.0}})
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
    seal(bundle)
    assert "cells/base/-/1/cell.json: a test set is there twice" in check_bundle(bundle).problems


def test_recipes_of_rows_are_in_the_bundle(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "wide.toml").write_text('base = "toy.toml"\n[model]\nwidth = 256\n', encoding="utf-8")
    (tmp_path / "more" / "wide.toml").write_text('base = "../toy.toml"\n', encoding="utf-8")
    rows = '[rows.base]\n[rows.wide]\nrecipe = "wide.toml"\n[rows.third]\nrecipe = "wide.toml"\n'
    _, study = write_study(tmp_path, STUDY[: STUDY.index("[rows")] + rows)
    make_cells(study, tmp_path / "out")
    collected = collect(study, tmp_path / "out")
    files = result_files(collected.result(Sampling(trials=10)), lambda text: None)
    write_bundle(tmp_path / "bundle", collected, tmp_path / "out", files)
    assert sorted(path.name for path in (tmp_path / "bundle" / "recipe").iterdir()) == ["toy.toml", "wide.toml"]
    assert "width = 256" in (tmp_path / "bundle/recipe/wide.toml").read_text(encoding="utf-8")
    assert "recipe wide.toml" in (tmp_path / "bundle/table.md").read_text(encoding="utf-8")
    assert check_bundle(tmp_path / "bundle", data=tmp_path).problems == []
    # With another width of that row, its cells are not what the recipe says.
    recipe = tmp_path / "bundle/recipe/wide.toml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("width = 256", "width = 128"), encoding="utf-8")
    seal(tmp_path / "bundle")
    found = [one for one in check_bundle(tmp_path / "bundle").problems if "settings_sha256" in one]
    assert {one.split("/")[1] for one in found} == {"wide", "third"}

    _, study = write_study(
        tmp_path, (STUDY[: STUDY.index("[rows")] + rows).replace('"wide.toml"', '"more/wide.toml"', 1)
    )
    make_cells(study, tmp_path / "other")
    collected = collect(study, tmp_path / "other")
    with pytest.raises(ConfigError, match=r"two recipes of the study are called wide\.toml"):
        write_bundle(tmp_path / "second", collected, tmp_path / "other", files)


TABLES_OF_DATA = '[{ pairs = "train.tsv", weight = 2 }, { pairs = "valid.tsv" }]'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"train.label_smoothing" = 0.1', f'"data.train" = {TABLES_OF_DATA}\n"train.label_smoothing" = 0.1'),
        ('"model.dropout" = 0.2', f'"data.train" = {TABLES_OF_DATA}, "model.dropout" = 0.2'),
        ('"train.lr" = [', f'"data.train" = {TABLES_OF_DATA}, "train.lr" = ['),
        (
            STUDY[STUDY.index("[rows.base]") :],
            f'[grid]\n"data.train" = {TABLES_OF_DATA}\n"model.num_layers" = [1, 2]\n',
        ),
    ],
    ids=["settings", "row", "choose", "grid"],
)
def test_a_study_with_tables_as_values_is_in_its_bundle_as_in_its_file(old, new, tmp_path):
    """Names of candidates and the order of columns depend on the order of settings."""
    text = STUDY.replace('baseline = "base"\n', "").replace(old, new)
    assert new in text
    _, study = write_study(tmp_path, text)
    make_cells(study, tmp_path / "out")
    collected = collect(study, tmp_path / "out")
    result = collected.result(Sampling(trials=100))
    files = {RESULT: result_json(result), **{name: make(result).encode() for name, make in TABLES.items()}}
    write_bundle(tmp_path / "bundle", collected, tmp_path / "out", files)
    bundled = read_bundled_study(tmp_path / "bundle")
    assert msgspec.json.encode(bundled.rows) == msgspec.json.encode(study.rows)
    assert check_bundle(tmp_path / "bundle").problems == []


def test_cells_of_another_version_are_not_compared_with_the_recipe(bundle, monkeypatch):
    monkeypatch.setattr("regard.__version__", "99.0")
    path = bundle / "recipe" / "toy.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("steps = 100", "steps = 200"), encoding="utf-8")
    seal(bundle)
    found = check_bundle(bundle)
    assert found.problems == []
    assert any("settings_sha256" in note and "99.0" in note for note in found.notes)


def test_references_in_the_bundle_itself_are_not_used(bundle, original, tmp_path, monkeypatch):
    for name in ("train.tsv", "valid.tsv", "test.tsv"):
        shutil.copy(original / name, bundle / "recipe" / name)
    seal(bundle)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert any("no file" in one for one in check_bundle(bundle, data=tmp_path / "empty").problems)


def test_references_in_the_bundle_are_not_used_from_the_folder_above(bundle, original, tmp_path, monkeypatch):
    for name in ("train.tsv", "valid.tsv", "test.tsv"):
        shutil.copy(original / name, bundle / "recipe" / name)
    path = bundle / "recipe" / "toy.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"test.tsv"', '"bundle/recipe/test.tsv"'), encoding="utf-8")
    for name in ("train.tsv", "valid.tsv"):
        shutil.copy(original / name, tmp_path / name)
    seal(bundle)
    monkeypatch.chdir(tmp_path)
    found = check_bundle(bundle, data=".").problems
    assert any("test.tsv is in the bundle" in one for one in found), found


def test_all_compressed_files_together_have_a_limit(bundle, monkeypatch):
    sizes = [len(gzip.decompress(path.read_bytes())) for path in bundle.rglob("*.gz")]
    monkeypatch.setattr("regard.study.bundle.bundle_records.MAX_BYTES_TOGETHER", sum(sizes) + 1)
    assert check_bundle(bundle).problems == []
    monkeypatch.setattr("regard.study.bundle.bundle_records.MAX_BYTES_TOGETHER", sum(sizes) // 2)
    assert any("too long" in one for one in check_bundle(bundle).problems)


def test_files_that_are_missing_or_too_many_are_named(bundle):
    (bundle / "table.md").unlink()
    (bundle / "more.txt").write_text("1", encoding="utf-8")
    problems = " ".join(check_bundle(bundle).problems)
    assert "table.md is missing" in problems
    assert f"more.txt is not listed in {MANIFEST}" in problems


@pytest.mark.slow(unless=["[1]"])
@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff"])
def test_damaged_files_are_a_problem_and_no_crash(bundle, content):
    for kind, path in kinds(bundle).items():
        before = path.read_bytes()
        path.write_bytes(content)
        assert check_bundle(bundle).problems, kind
        path.write_bytes(before)


def test_a_study_that_leads_nowhere_is_a_problem_and_no_crash(bundle):
    path = bundle / "study.toml"
    text = path.read_text(encoding="utf-8")
    for old, new in (
        ('like = "same | again"', 'like = "none"'),
        ("[0.001, 0.002]", "[]"),
        ('metric = "bleu"', 'metric = "x"'),
    ):
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        seal(bundle)
        assert check_bundle(bundle).problems, new


def test_a_recipe_of_a_bundle_cannot_name_files_elsewhere(bundle, original, tmp_path):
    secret = tmp_path / "secret.tsv"
    secret.write_text((original / "test.tsv").read_text(encoding="utf-8"), encoding="utf-8")
    path = bundle / "recipe" / "toy.toml"
    text = path.read_text(encoding="utf-8")
    assert '"test.tsv"' in text
    path.write_text(text.replace('"test.tsv"', f'"{secret}"'), encoding="utf-8")
    seal(bundle)
    assert any("outside of the folders" in one for one in check_bundle(bundle, data=original).problems)


def test_a_bundle_is_not_written_over_another(original, bundle):
    collected = collect(write_study(original)[1], original / "out")
    with pytest.raises(ConfigError, match="is not an empty folder"):
        write_bundle(bundle, collected, original / "out", {})
    with pytest.raises(ConfigError, match="is not an empty folder"):
        write_bundle(bundle / MANIFEST, collected, original / "out", {})


KILLED = """
import os, signal, sys
from regard.cli import main
from regard.storage.folder import Folder

save, saved = Folder.save_bytes, []

def save_or_die(folder, name, content):
    if "bundle" in str(folder):
        saved.append(name)
        if len(saved) == 20:
            os.kill(os.getpid(), signal.SIGKILL)
    save(folder, name, content)

Folder.save_bytes = save_or_die
sys.argv = ["regard", "study", "show", "study.toml", "--out", "out", "--trials", "100", "--bundle", "bundle"]
main()
"""


@pytest.mark.slow
def test_a_command_that_is_killed_leaves_no_bundle_and_the_next_one_writes_it(tmp_path):
    _, study = write_study(tmp_path)
    make_cells(study, tmp_path / "out")
    killed = python(KILLED, cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "bundle").exists()
    words = ["study", "show", "study.toml", "--out", "out", "--trials", "100", "--bundle", "bundle"]
    result = regard(*words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert check_bundle(tmp_path / "bundle").problems == []
    assert not list(tmp_path.glob(".*")), "what the first command left is gone"
