"""The studies of the repository can be trained: every recipe of every row and candidate is complete."""

from pathlib import Path

import pytest

from regard.study.cells import count_cells
from regard.study.checks import check_recipes
from regard.study.study_file import candidates_of, read_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_recipe_of_a_study_is_complete(path):
    warnings = []
    study = read_study(path)
    assert set(check_recipes(study, warn=warnings.append)) == set(study.rows)
    assert warnings == [], "a warm-up is longer than training"
    assert len(study.seeds) >= 3


def test_table_3_has_the_rows_of_the_paper_and_chooses_for_each_size():
    study = read_study(next(path for path in STUDIES if path.stem == "table3"))
    assert len(study.rows) == 20 and all({"bleu", "perplexity"} <= row.published.keys() for row in study.rows.values())
    chosen = [name for name in study.rows if len(candidates_of(study, name)) > 1]
    assert chosen == ["base", "N 2", "N 4", "N 8", "half of d_model", "twice d_model", "big"]
    candidates = 6 * 6 + 3
    assert count_cells(study) == candidates + 20 * 3
