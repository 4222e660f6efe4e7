"""The studies of the repository: recipes are complete, and bundles pass their check, but not with a changed digit."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from regard.errors import ConfigError
from regard.study.bundle.bundle_check import check_bundle
from regard.study.bundle.bundle_files import read_bundled_study
from regard.study.checks import check_recipes
from regard.study.choices import count_cells
from regard.study.study_file import candidates_of, read_study, with_recipes

FOLDER = Path(__file__).parents[2] / "studies"
STUDIES = sorted(FOLDER.glob("*.toml"))
BUNDLES = sorted(path.parent for path in FOLDER.glob("*/MANIFEST"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_recipe_of_a_study_is_complete(path):
    warnings = []
    study = read_study(path)
    assert set(check_recipes(study, warn=warnings.append)) == set(study.rows)
    assert warnings == [], "a warm-up is longer than training"
    assert len(study.seeds) >= 3


def test_perplexities_of_different_tokenizers_are_not_compared():
    """ByteNet reads characters: its perplexity is per character."""
    rivals = read_study(next(path for path in STUDIES if path.stem == "rivals"))
    with pytest.raises(ConfigError, match="the rows have different tokenizers"):
        check_recipes(msgspec.structs.replace(rivals, metric="perplexity"))


def test_table_3_has_the_rows_of_the_paper_and_chooses_for_each_size():
    study = read_study(next(path for path in STUDIES if path.stem == "table3"))
    assert len(study.rows) == 20 and all({"bleu", "perplexity"} <= row.published.keys() for row in study.rows.values())
    chosen = [name for name in study.rows if len(candidates_of(study, name)) > 1]
    assert chosen == ["base", "N 2", "N 4", "N 8", "half of d_model", "twice d_model", "big"]
    candidates = 8 + 5 * 6 + 3
    assert count_cells(study) == candidates + 20 * 3


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_a_bundle_is_of_the_study_of_the_repository(bundle):
    """Apart from the test sets, which a bundle names even if they are all that the recipe has."""
    study = read_study(bundle.with_suffix(".toml"))
    bundled = read_bundled_study(bundle)
    names = {name: Path(name).name for name in {study.recipe, *(row.recipe for row in study.rows.values())}}
    own = with_recipes(study, lambda name: names[name])
    assert msgspec.structs.replace(own, tests=bundled.tests) == bundled


def derive_again(bundle):
    command = [sys.executable, FOLDER.parent / "scripts" / "derive_bundles.py", bundle]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_the_script_for_bundles_derives_the_result_of_another_baseline(tmp_path):
    bundle = Path(shutil.copytree(FOLDER / "parallel", tmp_path / "parallel"))
    text = (FOLDER / "parallel.toml").read_text(encoding="utf-8")
    assert 'baseline = "Transformer"' in text
    (tmp_path / "parallel.toml").write_text(text.replace('"Transformer"', '"CTC"', 1), encoding="utf-8")
    done = derive_again(bundle)
    assert (done.returncode, done.stderr) == (0, "")
    assert "| CTC | 39.50 ± 0.09 |  |  |  |  | baseline |" in (bundle / "table.md").read_text(encoding="utf-8")
    assert check_bundle(bundle).problems == []
    (record,) = (bundle / "cells").glob("CTC/*/1/cell.json")
    before, _, after = record.read_text(encoding="utf-8").rpartition('"bleu": 3')
    record.write_text(f'{before}"bleu": 4{after}', encoding="utf-8")
    done = derive_again(bundle)
    assert done.returncode == 1 and "parallel: cells/CTC" in done.stderr
    (tmp_path / "parallel.toml").write_text(text.replace("[rows.CTC]", "[rows.Ctc]"), encoding="utf-8")
    done = derive_again(bundle)
    assert done.returncode == 1 and "has other rows than the bundle" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_every_number_of_a_committed_bundle_is_derived_again(bundle, tmp_path):
    found = check_bundle(bundle)
    assert found.problems == [] and found.cells > 0
    copy = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    table = copy / "table.md"
    digit = re.search(r"[0-8](?= ±)", text := table.read_text(encoding="utf-8"))
    table.write_text(f"{text[: digit.start()]}{int(digit[0]) + 1}{text[digit.end() :]}", encoding="utf-8")
    assert any("table.md" in problem for problem in check_bundle(copy).problems)
