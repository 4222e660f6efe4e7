"""Rows, grids and candidates expand as the file says, and a file that does not fit is refused in one sentence."""

import pytest

from regard.errors import ConfigError
from regard.study.cells import Cell, settings_digest, slug
from regard.study.choices import by_key, cells_of, choose_candidate, chosen_records, count_cells
from regard.study.records import CellRecord, SetScores
from regard.study.study_file import candidates_of, overrides_of, read_study, recipe_of

ROWS = """
question = "Do more layers help?"
recipe = "reverse"
metric = "exact"
seeds = [1, 2]
baseline = "base"
[settings]
"train.steps" = 30
[rows.base]
[rows."N 1"]
settings = { "model.num_layers" = 1 }
published = { bleu = 24 }
"""
HEAD = 'question = "Why?"\nrecipe = "reverse"\nmetric = "exact"\nseeds = [1]\n'


def study_of(folder, text):
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return read_study(path)


def record(row, candidate, seed, exact, *, state="finished"):
    scores = SetScores("valid", 1, "", "", {"exact": exact}, {}, "")
    return CellRecord(
        row=row, candidate=candidate, seed=seed, state=state, settings={}, settings_sha256="", tests=[scores]
    )


def test_rows_change_the_settings_of_the_study(tmp_path):
    study = study_of(tmp_path, ROWS)
    recipe = recipe_of(study, "N 1", {}, 2)
    assert (recipe.model["num_layers"], recipe.train.steps, recipe.train.seed) == (1, 30, 2)
    assert recipe_of(study, "base", {}, 1).model["num_layers"] == 2
    assert study.rows["N 1"].published == {"bleu": 24.0}
    assert [(cell.row, cell.seed) for cell in cells_of(study, {})] == [("base", 1), ("base", 2), ("N 1", 1), ("N 1", 2)]


def test_a_row_may_have_a_recipe_of_its_own(tmp_path):
    (tmp_path / "own.toml").write_text('base = "reverse"\n[model]\nkind = "rnn"\n', encoding="utf-8")
    study = study_of(tmp_path, ROWS.replace('settings = { "model.num_layers" = 1 }', 'recipe = "own.toml"'))
    assert [study.recipe_name(row) for row in study.rows] == ["reverse", str(tmp_path / "own.toml")]
    own = recipe_of(study, "N 1", {}, 2)
    assert (own.model["kind"], own.train.steps) == ("rnn", 30)
    assert recipe_of(study, "base", {}, 1).model["kind"] == "transformer"


def test_settings_may_be_nested_tables(tmp_path):
    nested = study_of(tmp_path, ROWS.replace('"train.steps"', "train.steps").replace('"model.num', '"model"."num'))
    assert nested == study_of(tmp_path, ROWS)


def test_a_grid_has_a_row_for_every_combination(tmp_path):
    study = study_of(tmp_path, HEAD + '[grid]\n"model.num_layers" = [1, 2]\n"model.dropout" = [0.1, 0.3]\n')
    assert study.row_names == [
        "num_layers 1, dropout 0.1",
        "num_layers 1, dropout 0.3",
        "num_layers 2, dropout 0.1",
        "num_layers 2, dropout 0.3",
    ]
    assert study.baseline == "num_layers 1, dropout 0.1"
    assert recipe_of(study, "num_layers 2, dropout 0.3", {}, 1).model["dropout"] == 0.3


def test_candidates_are_tried_with_a_seed_of_their_own_and_the_best_is_trained_with_those_of_the_study(tmp_path):
    study = study_of(tmp_path, ROWS.replace("[rows.base]", '[choose]\n"train.lr" = [1e-3, 1e-2]\n[rows.base]'))
    slow, fast = {"train.lr": 1e-3}, {"train.lr": 1e-2}
    assert candidates_of(study, "base") == [slow, fast]
    assert overrides_of(study, "base", fast, 1) == ["train.steps=30", "train.lr=0.01", "train.seed=1"]
    assert study.seeds == (1, 2) and study.choosing_seed == 0
    tried = [Cell("base", slow, 0), Cell("base", fast, 0)]
    assert [cell for cell in cells_of(study, {}) if cell.row == "base"] == tried
    assert count_cells(study) == 8  # of two rows: two candidates, and two seeds of one
    records = [record("base", slow, 0, 10.0)]
    assert choose_candidate(study, "base", by_key(records)) is None, "the other candidate has not ended"
    records.append(record("base", fast, 0, 20.0))
    assert choose_candidate(study, "base", by_key(records)) == fast
    assert [cell for cell in cells_of(study, by_key(records)) if cell.row == "base"] == [
        *tried,
        Cell("base", fast, 1),
        Cell("base", fast, 2),
    ]
    records += [record("base", fast, 1, 4.0), record("base", fast, 2, 5.0)]
    assert {
        seed: one.score("valid", "exact") for seed, one in chosen_records(study, by_key(records))["base"].items()
    } == {
        1: 4.0,
        2: 5.0,
    }


def test_a_candidate_that_diverged_is_not_chosen(tmp_path):
    study = study_of(tmp_path, ROWS.replace("[rows.base]", '[choose]\n"train.lr" = [1e-3, 1e-2]\n[rows.base]'))
    ended = [record("base", {"train.lr": 1e-3}, 0, 1.0), record("base", {"train.lr": 1e-2}, 0, 9.0, state="diverged")]
    assert choose_candidate(study, "base", by_key(ended)) == {"train.lr": 1e-3}
    neither = [record("base", {"train.lr": rate}, 0, 9.0, state="diverged") for rate in (1e-3, 1e-2)]
    assert choose_candidate(study, "base", by_key(neither)) is None


def test_nothing_is_chosen_while_a_candidate_has_failed(tmp_path):
    """A later command tries it again, and it may be the best."""
    study = study_of(tmp_path, ROWS.replace("[rows.base]", '[choose]\n"train.lr" = [1e-3, 1e-2]\n[rows.base]'))
    ended = [record("base", {"train.lr": 1e-3}, 0, 1.0), record("base", {"train.lr": 1e-2}, 0, 9.0, state="failed")]
    assert choose_candidate(study, "base", by_key(ended)) is None


@pytest.mark.parametrize(("one", "other"), [("grid", "choose"), ("settings", "grid"), ("settings", "choose")])
def test_a_key_of_two_tables_is_refused(one, other, tmp_path):
    """One of its values would never be trained."""
    values = {"settings": "1e-3", "grid": "[1e-3, 1e-2]", "choose": "[1e-3, 1e-2]"}
    rows = "" if "grid" in (one, other) else "[rows.base]\n"
    tables = "".join(f'[{name}]\n"train.lr" = {values[name]}\n' for name in (one, other))
    with pytest.raises(ConfigError, match=f"study.{one} and study.{other} both have train.lr; remove it from one"):
        study_of(tmp_path, HEAD + tables + rows)


def test_a_setting_may_be_a_list_of_tables(tmp_path):
    text = 'data.train = [{ pairs = "a.tsv", weight = 2 }, { pairs = "b.tsv" }]\n'
    study = study_of(tmp_path, HEAD + f"[settings]\n{text}[rows.base]\n")
    assert study.settings["data.train"] == [{"pairs": "a.tsv", "weight": 2}, {"pairs": "b.tsv"}]
    one, two = recipe_of(study, "base", {}, 1).data.train
    assert (one.pairs, two.pairs) == ("a.tsv", "b.tsv")


def test_a_row_may_choose_among_values_of_its_own(tmp_path):
    text = ROWS.replace("published", 'choose = { "train.lr" = [1, 2, 3] }\npublished')
    study = study_of(tmp_path, text)
    assert (len(candidates_of(study, "base")), len(candidates_of(study, "N 1"))) == (1, 3)


def test_a_row_may_be_trained_with_the_choice_of_another(tmp_path):
    text = ROWS.replace("published", 'like = "base"\npublished')
    study = study_of(tmp_path, text.replace("[rows.base]", '[choose]\n"train.lr" = [1e-3, 1e-2]\n[rows.base]'))
    assert {cell.row for cell in cells_of(study, {})} == {"base"}
    assert count_cells(study) == 2 + 2 + 2  # candidates and both seeds of the base; both seeds of the other row
    records = [record("base", {"train.lr": rate}, 0, score) for rate, score in ((1e-3, 1.0), (1e-2, 2.0))]
    assert [cell for cell in cells_of(study, by_key(records)) if cell.row == "N 1"] == [
        Cell("N 1", {"train.lr": 1e-2}, seed) for seed in (1, 2)
    ]
    assert count_cells(study, by_key(records)) == 6
    failed = [record("base", {"train.lr": rate}, 0, None, state="diverged") for rate in (1e-3, 1e-2)]
    assert count_cells(study, by_key(failed)) == 2


def test_names_of_rows_become_different_names_of_folders():
    assert slug("base") == "base"
    assert slug("a b") != slug("a/b")
    assert "/" not in slug("../x") and slug("..").strip(".")


def test_the_hash_of_settings_ignores_the_machine_and_sees_the_seed(tmp_path):
    study = study_of(tmp_path, ROWS)
    elsewhere = study_of(tmp_path, ROWS.replace("[rows.base]", '"train.threads" = 2\n[rows.base]'))
    one = settings_digest(recipe_of(study, "base", {}, 1))
    assert one == settings_digest(recipe_of(elsewhere, "base", {}, 1))
    assert one != settings_digest(recipe_of(study, "base", {}, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds", "seed"), "study has no field 'seed'; did you mean 'seeds'?"),
        (("seeds = [1, 2]", "seeds = [1, 1]"), "each once"),
        (("[settings]", 'tests = ["valid", "valid"]\n[settings]'), "tests must name at least one test set, each once"),
        (("[settings]", "tests = []\n[settings]"), "tests must name at least one test set, each once"),
        (('baseline = "base"', 'baseline = "bas"'), "study.baseline is 'bas', which is no row; did you mean 'base'?"),
        (('"train.steps"', '"train.step"'), "the row 'base': train has no field 'step'; did you mean 'steps'?"),
        (('"train.steps"', '"train.seed"'), "name the seeds in seeds"),
        (('recipe = "reverse"', 'recipe = "revers"'), "did you mean 'reverse'?"),
        (("published", 'recipe = "own.toml"\npublished'), "the recipe is 'own.toml', but there is no such file"),
        (("published", 'recipe = "copi"\npublished'), "did you mean 'copy'?"),
        (("[rows.base]", '[grid]\n"model.width" = [1]\n[rows.base]'), "one of the two"),
        (("[rows.base]", '[choose]\n"model.num_layers" = [1, 2]\n[rows.base]'), "as in choose = {}"),
        (("published", 'choose = { "model.num_layers" = [1] }\npublished'), "it from the settings of the row"),
        (("[rows.base]", '[choose]\n"train.lr" = []\n[rows.base]'), "name at least one value"),
        (("published", 'like = "bass"\npublished'), "the row 'N 1' has like = 'bass'; name a row above it"),
        (("published", "publish"), "did you mean 'published'?"),
        (("{ bleu = 24 }", "24"), "study.rows.N 1.published is 24: expected a table"),
        (
            ("{ bleu = 24 }", "{ chrf = 1.0, bleu = 'high' }"),
            "study.rows.N 1.published.bleu is 'high': expected a number",
        ),
        (
            ("published", 'choose = { "train.lr" = 0.1 }\npublished'),
            "study.rows.N 1.choose.train.lr is 0.1: expected a list",
        ),
        (
            ("[rows.base]", "[rows.fits]\n[rows.wrong]\ngroup = {}\n[rows.base]"),
            "study.rows.wrong.group is {}: expected text",
        ),
        (
            ("[rows.base]", '[choose]\n"train.lr" = 1e-3\n[rows.base]'),
            "study.choose.train.lr is 0.001: expected a list",
        ),
        (("[rows.base]", "[rows.base]\n[rows.Base]"), "upper and lower case"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(tmp_path, change, message):
    assert change[0] in ROWS
    with pytest.raises(ConfigError) as error:
        study_of(tmp_path, ROWS.replace(*change))
    assert message in str(error.value) and "\n" not in str(error.value)
