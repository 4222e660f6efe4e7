"""Recipes: precedence, overrides, TOML, and the one sentence for a wrong key or value; search options."""

import copy
import inspect
import pickle
import re
import tomllib
from typing import get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from regard.cli import app
from regard.config import Bitext, DataConfig, Recipe, SearchOptions, TrainConfig
from regard.errors import ConfigError, DecodeError
from regard.models import MODELS, model_config
from regard.recipe_files import apply_override, differences, find_recipe, load_recipe, recipe_folder, shipped_recipes
from regard.tasks.recipe_checks import resolve
from regard.toml import dump_toml, from_table, read_toml, to_table

SMALL = """
model = { kind = "transformer", width = 64 }

[data]
train = { generate = "copy/train" }
test = { easy = { generate = "copy/test" } }

[train]
steps = 10
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def overridden(*overrides, table=None):
    table = {} if table is None else table
    for override in overrides:
        apply_override(table, override)
    return table


def refusal(act, *arguments, **options):
    """Return the sentence of the ConfigError that a call raises."""
    with pytest.raises(ConfigError) as caught:
        act(*arguments, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


# Precedence


def test_the_file_overrides_the_default_and_the_command_line_overrides_the_file(small):
    default = TrainConfig()
    recipe = load_recipe(small, ["train.seed=7"])
    assert (default.steps, recipe.train.steps) == (100_000, 10)
    assert (default.seed, recipe.train.seed) == (1, 7)
    assert load_recipe(small, ["train.steps=20", "train.steps=30"]).train.steps == 30


def test_a_recipe_is_named_after_its_file_unless_it_has_a_name(small):
    assert load_recipe(small).name == "small"
    assert load_recipe(small, ["name=other"]).name == "other"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        (" 5 ", 5),
        ("1e-3", 0.001),
        ("true", True),
        ('"5"', "5"),
        ("[0.9, 0.98]", [0.9, 0.98]),
        ("wsd", "wsd"),
        ("runs/a=b", "runs/a=b"),
        ("", ""),
    ],
)
def test_an_override_is_read_as_toml_or_else_as_a_plain_string(text, value):
    assert overridden(f"key={text}") == {"key": value}


def test_a_dotted_key_sets_a_nested_value_and_creates_missing_tables():
    table = overridden("a.b.c=1", "a.d=2", table={"a": {"b": {"e": 3}}})
    assert table == {"a": {"b": {"e": 3, "c": 1}, "d": 2}}


@pytest.mark.parametrize("override", ["train.steps", "=5", "train.=5", ".steps=5", "train..steps=5"])
def test_an_override_without_key_or_value_is_refused_with_an_example(override):
    assert refusal(overridden, override) == (f"{override!r} is not an override; write key=value, as in train.steps=500")


def test_a_value_cannot_be_used_as_a_table():
    assert refusal(overridden, "train.steps=5", "train.steps.fast=1") == (
        "train.steps.fast cannot be set: 'steps' is a value, not a table"
    )


# Unknown names


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("modle.width=8", "the recipe has no field 'modle'; did you mean 'model'?"),
        ("train.warmup=10", "train has no field 'warmup'; did you mean 'warmup_steps'?"),
        ("data.train.genrate=copy/train", "data.train has no field 'genrate'; did you mean 'generate'?"),
        ("data.valid.sorce=a", "data.valid has no field 'sorce'; did you mean 'source'?"),
        ("data.test.easy.sorce=a", "data.test.easy has no field 'sorce'; did you mean 'source'?"),
        ("data.test.other.tagret=a", "data.test.other has no field 'tagret'; did you mean 'target'?"),
    ],
)
def test_an_unknown_key_answers_with_its_place_and_the_nearest_known_one(small, override, sentence):
    assert refusal(load_recipe, small, [override]) == sentence


def test_a_key_that_resembles_no_other_answers_with_all_of_them(small):
    sentence = refusal(load_recipe, small, ["evaluate.xyz=1"])
    assert sentence == "evaluate has no field 'xyz'; known: bleu_tokenize, lowercase, metrics, positions"


def test_the_model_table_is_checked_by_the_family_it_names(small):
    recipe = load_recipe(small, ["model.num_head=4"])  # the recipe does not know the family's keys
    assert recipe.model == {"kind": "transformer", "width": 64, "num_head": 4}
    assert refusal(model_config, recipe.model) == "model has no field 'num_head'; did you mean 'num_heads'?"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"kind": "transfomer"}, "model.kind is 'transfomer'; did you mean 'transformer'?"),
        ({"width": 8}, f"model.kind is None; known: {', '.join(sorted(MODELS.names()))}"),
        ({"kind": "transformer", "presets": "tiny"}, "model has no field 'presets'; did you mean 'preset'?"),
        ({"kind": "transformer", "preset": "bigg"}, "model.preset is 'bigg'; did you mean 'big'?"),
        ({"kind": "transformer", "width": "8"}, "model.width is '8': expected a whole number"),
    ],
)
def test_an_unknown_model_is_refused(table, sentence):
    assert refusal(model_config, table) == sentence


def test_keys_of_the_model_table_override_its_preset_which_overrides_the_defaults():
    _, config = model_config({"kind": "transformer", "preset": "tiny", "hidden": 99})
    assert (config.hidden, config.width, config.num_layers) == (99, 128, 4)  # own key, tiny, tiny
    assert config.positions == "sinusoid"  # the default


def test_a_recipe_that_does_not_exist_answers_with_the_nearest_one(tmp_path):
    assert "no recipe is called 'date'; did you mean 'dates'?" in refusal(find_recipe, "date")
    assert "absent.toml' here" in refusal(find_recipe, str(tmp_path / "absent.toml"))


# Values that do not fit


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("train.steps=many", "train.steps is 'many': expected a whole number"),
        ("train.steps=1.5", "train.steps is 1.5: expected a whole number"),
        ("train.betas=[0.9]", "train.betas is [0.9]: expected a list of length 2, got 1"),
        ("train.schedule=cosin", "train.schedule is 'cosin'; did you mean 'cosine'?"),
        ("train.optimizer=xyz", "train.optimizer is 'xyz'; known: adam, adamw, muon"),
        ("train.betas=[0.9, 1.0]", "train: betas are (0.9, 1.0); each must be at least 0 and below 1"),
        ("decode.beam=1001", "decode: beam is 1001; it must be from 1 to 1,000"),
        ("train=files", "train is 'files': expected a table"),
        ("train=fast", "train is 'fast': expected a table"),
        ("train.steps=0", "train: steps is 0; it must be from 1 to 1,000,000,000,000"),
        ("train.warmup_steps=-1", "train: warmup_steps is -1; it must be from 0 to 1,000,000,000,000"),
        ("train.ema=1.0", "train: ema is 1.0; it must be at least 0 and below 1"),
        ("train.label_smoothing=-0.5", "train: label_smoothing is -0.5; it must be at least 0 and below 1"),
        ("train.decay=0", "train: decay is 0.0; it is the share of all steps at the end, above 0 and at most 1"),
        ("decode.beam=0", "decode: beam is 0; it must be from 1 to 1,000"),
        ("decode.max_extra=-1", "decode: max_extra is -1; it must be from 0 to 10,000"),
        (
            "data.train.pairs=a.tsv",
            "data.train: give either source and target, or pairs, or text, or generate, or babi, or store",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_fits(small, override, sentence):
    assert refusal(load_recipe, small, [override]) == sentence


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("tokenizer.kind=bpee", "tokenizer.kind is 'bpee'; did you mean 'bpe'?"),
        ("train.metric=blue", "train.metric is 'blue'; did you mean 'bleu'?"),
        ("model.kind=transfomer", "model.kind is 'transfomer'; did you mean 'transformer'?"),
    ],
)
def test_a_name_that_is_not_registered_is_refused_before_training(small, override, sentence):
    assert refusal(resolve, load_recipe(small, [override])) == sentence


def test_a_missing_table_is_named():
    table = {"name": "x", "data": {"train": {"generate": "copy/train"}}}
    assert refusal(from_table, Recipe, table, where="") == "the recipe has no 'model', which it needs"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"source": "a", "pairs": "b"},
        {"pairs": "a", "generate": "copy/train"},
        {"pairs": "a", "text": "b"},
        {"source": "a", "target": "b", "generate": "copy/train"},
    ],
)
def test_a_bitext_comes_from_exactly_one_place(given):
    assert "give either source and target, or pairs, or text, or generate" in refusal(
        from_table, Bitext, given, where="data.train"
    )


@pytest.mark.parametrize(("given", "missing"), [("source", "target"), ("target", "source")])
def test_a_side_that_is_missing_is_named(given, missing):
    sentence = f"data.train: {missing} is missing; a file with both sides, such as two columns, is given as pairs"
    assert refusal(from_table, Bitext, {given: "train.tsv"}, where="data.train") == sentence


def test_options_are_immutable():
    with pytest.raises(AttributeError):
        TrainConfig().steps = 5


# Files


@pytest.mark.parametrize("content", [b"steps = ", b"a = 1\na = 2\n", b"name = '\xff'\n"])
def test_a_file_that_is_not_toml_is_named(tmp_path, content):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    assert refusal(read_toml, path).startswith(f"{path} is not valid TOML: ")


def test_a_key_with_two_values_is_named(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text('name = "x"\n[train]\nsteps = 5\nsteps = 6\n')
    assert refusal(read_toml, path) == f"{path} is not valid TOML: line 4 gives steps a second value"
    path.write_text("[train]\nsteps = 5\n[train]\nlr = 0.1\n")
    assert refusal(read_toml, path) == f"{path} is not valid TOML: line 3 begins the table [train] a second time"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[model]\nkind = "transformer"\n', 'the recipe has no [data] table; write, for example, [data], and below it '
        'train = { pairs = "train.tsv" }'),
        ('[data]\ntrain = { pairs = "train.tsv" }\n', 'the recipe has no [model] table; write, for example, [model], and '
        'below it kind = "transformer"'),
    ],
    ids=["data", "model"],
)  # fmt: skip
def test_a_recipe_file_without_a_table_is_answered_with_an_example(tmp_path, text, sentence):
    (tmp_path / "my.toml").write_text(text)
    assert refusal(load_recipe, str(tmp_path / "my.toml")) == sentence


def test_a_folder_cannot_be_read_as_a_recipe(tmp_path):
    assert refusal(read_toml, tmp_path).startswith(f"cannot read {tmp_path}: ")


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_loads_and_round_trips_through_toml(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    model_config(recipe.model)
    assert from_table(Recipe, tomllib.loads(dump_toml(to_table(recipe))), where="") == recipe


def test_the_help_of_train_lists_every_shipped_recipe():
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "400"}).output
    assert set(shipped_recipes()) <= set(re.findall(r"[\w-]+", shown))


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=20)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
SCALARS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.lists(st.lists(SCALARS, max_size=2), max_size=2))
TABLES = st.recursive(
    st.dictionaries(NAMES, VALUES, max_size=4),
    lambda inner: st.dictionaries(NAMES, st.one_of(VALUES, inner), max_size=4),
    max_leaves=6,
)


@given(TABLES)
def test_written_toml_parses_to_the_same_table(table):
    assert tomllib.loads(dump_toml(table)) == table


@pytest.mark.parametrize("name", ["a b", "a.b", "[a]", "#", '"', "é", ""])
def test_a_table_may_have_any_name(name):
    assert tomllib.loads(dump_toml({"test": {name: {"x": 1}}})) == {"test": {name: {"x": 1}}}


def test_a_table_may_have_a_name_outside_the_basic_plane():
    assert tomllib.loads(dump_toml({"🙂": {"x": 1}})) == {"🙂": {"x": 1}}


@pytest.mark.parametrize("name", ["a b", "a.b", "é", ""])
def test_a_value_may_have_any_name(name):
    assert tomllib.loads(dump_toml({name: 1})) == {name: 1}


def test_a_string_may_hold_a_delete_character():
    assert tomllib.loads(dump_toml({"a": "\x7f"})) == {"a": "\x7f"}


def test_unset_fields_are_not_written():
    table = to_table(DataConfig(train=Bitext(generate="copy/train")))
    # Flags, bounds and choices are written.
    unset = {"on_error": "refuse", "max_length": 256, "cut_source": False, "cut_target": False, "decontaminate": False}
    assert table == {"train": {"generate": "copy/train"}, "test": {}, **unset}


def test_options_of_single_searches_do_not_belong_in_a_recipe(small):
    assert refusal(load_recipe, small, ["decode.nbest=2"]).startswith("decode has no field 'nbest'; ")
    recipe = load_recipe(small)
    assert to_table(recipe)["decode"].keys() == {
        *("beam", "length_penalty", "length_penalty_kind", "early_stopping"),
        *("max_extra", "tokens", "max_source", "iterations"),
        *("beam_groups", "diversity_penalty", "sample", "temperature", "seed", "no_repeat_ngram", "max_repeats"),
        *("coverage_penalty", "reverse_weight", "shortlist"),
    }
    with pytest.raises(ValueError, match=r"decode\.nbest cannot be set in a recipe"):
        msgspec.structs.replace(recipe, decode=SearchOptions(nbest=2))


# Search options


@pytest.mark.parametrize("name", SearchOptions.BOUNDS)
def test_a_search_option_has_the_same_bounds_in_a_recipe_and_in_python(name):
    least, most = SearchOptions.BOUNDS[name]
    others = {"beam": 1000} if name == "nbest" else {}
    for value in (least, most):
        assert getattr(SearchOptions(**{**others, name: value}), name) == value
    kind = get_type_hints(SearchOptions)[name]
    number = float if float in (kind, *get_args(kind)) else int
    for value in (number(least - 1), number(most + 1)):
        with pytest.raises(DecodeError) as caught:
            SearchOptions(**{**others, name: value})
        if name not in SearchOptions.per_call:
            assert refusal(from_table, SearchOptions, {name: value}, where="decode") == f"decode: {caught.value}"


def test_a_request_to_the_server_is_bounded_by_the_same_options():
    schema = pytest.importorskip("regard.serve.schema", reason="needs the extra serve")
    fields = schema.TranslateRequest.model_fields
    shared = fields.keys() & SearchOptions.BOUNDS.keys()
    assert shared == {
        *("beam", "nbest", "length_penalty", "max_extra", "iterations", "beam_groups", "diversity_penalty"),
        *("temperature", "top_k", "top_p", "epsilon", "seed", "no_repeat_ngram", "max_repeats", "shortlist"),
        "coverage_penalty",
    }
    for name in shared:
        least, most = SearchOptions.BOUNDS[name]
        bounds = {type(one).__name__: one for one in fields[name].metadata}
        assert bounds["Ge"].ge == least and bounds["Le"].le <= most, name


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_search_option_that_is_not_finite_is_refused(value):
    with pytest.raises(DecodeError, match="numbers must be finite"):
        SearchOptions(length_penalty=value)


def test_options_are_changed_one_by_one_and_checked_again():
    recipe = SearchOptions(beam=2, length_penalty=1.0)
    assert recipe.replace(beam=3, nbest=3, length_penalty=None) == SearchOptions(beam=3, nbest=3, length_penalty=1.0)
    with pytest.raises(DecodeError, match="nbest is 3, but beam is 2; ask for at most 2, or for a wider beam"):
        recipe.replace(nbest=3)


def test_options_that_were_not_given_come_from_the_recipe():
    recipe = SearchOptions(beam=2, length_penalty=1.0, max_extra=7)
    assert recipe.with_given(SearchOptions(beam=8)) == SearchOptions(beam=8, length_penalty=1.0, max_extra=7)
    assert recipe.with_given(SearchOptions()) == recipe.with_given(None) == recipe


def test_an_option_that_was_given_its_default_replaces_that_of_the_recipe():
    assert SearchOptions(beam=2).with_given(SearchOptions(beam=4)).beam == 4


def test_changing_an_option_gives_no_other():
    recipe = SearchOptions(beam=2, length_penalty=1.0)
    assert recipe.with_given(SearchOptions(beam=8).replace(nbest=8)) == recipe.replace(beam=8, nbest=8)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda options: pickle.loads(pickle.dumps(options))])
def test_a_copy_of_options_gives_the_same_options(copied):
    options = copied(SearchOptions(beam=8))
    assert options == SearchOptions(beam=8) and dict(options.given) == {"beam": 8}


def test_options_as_json_are_complete():
    options = SearchOptions(**msgspec.json.decode(msgspec.json.encode(SearchOptions(beam=8))))
    assert SearchOptions(length_penalty=1.0, max_extra=7).with_given(options) == SearchOptions(beam=8)


def test_more_hypotheses_than_the_beam_of_the_recipe_are_refused():
    wanted = SearchOptions(nbest=6)
    assert SearchOptions(beam=8).with_given(wanted).nbest == 6
    with pytest.raises(DecodeError, match="nbest is 6, but beam is 4; ask for at most 4, or for a wider beam"):
        SearchOptions().with_given(wanted)


def test_the_signature_of_options_shows_their_defaults():
    assert "beam: int = 4, length_penalty: float = 0.6" in str(inspect.signature(SearchOptions)).replace("'", "")


@pytest.mark.parametrize(
    ("options", "longest"),
    [({}, 60), ({"max_extra": 0}, 10), ({"max_length": 7}, 7), ({"max_length": 99}, 60)],
)
def test_the_output_is_limited_by_the_source_and_by_max_length(options, longest):
    assert SearchOptions(**options).limit(10) == longest


def test_written_recipes_keep_what_the_command_line_changed(small):
    recipe = load_recipe(small, ["data.test.hard.pairs=hard set.tsv", "train.betas=[0.5, 0.75]", "model.dropout=0.25"])
    again = from_table(Recipe, tomllib.loads(dump_toml(to_table(recipe))), where="")
    assert again == recipe
    assert again.data.test["hard"].pairs == "hard set.tsv"
    assert again.train.betas == (0.5, 0.75)
    assert again.model["dropout"] == 0.25


# Differences


def test_differences_name_each_key_with_its_old_and_new_value(small):
    old = load_recipe(small, ["model.dropout=0.1"])
    new = load_recipe(small, ["train.steps=20", "data.test.easy.generate=sort/test", "train.lr=0.5"])
    assert sorted(differences(old, new)) == [
        "data.test.easy.generate: copy/test -> sort/test",
        "model.dropout: 0.1 -> unset",
        "train.lr: unset -> 0.5",
        "train.steps: 10 -> 20",
    ]


def test_equal_recipes_do_not_differ(small):
    assert differences(load_recipe(small), load_recipe(small, ["train.steps=10"])) == []


def test_the_defaults_are_the_papers():
    # Vaswani et al. 2017, sections 5.3, 5.4 and 6.1
    train, decoding = TrainConfig(), SearchOptions()
    assert (train.betas, train.eps, train.warmup_steps, train.label_smoothing) == ((0.9, 0.98), 1e-9, 4000, 0.1)
    assert (decoding.beam, decoding.length_penalty, decoding.max_extra) == (4, 0.6, 50)


def write(folder, name, text):
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_recipe_is_merged_into_its_base(tmp_path):
    name = write(tmp_path, "mine.toml", 'base = "multi30k-en-de"\n[model]\ndropout = 0.1\n[train]\nsteps = 7\n')
    mine, base = load_recipe(name), load_recipe("multi30k-en-de")
    assert mine.name == "mine" and mine.train.steps == 7 and mine.train.lr == base.train.lr
    assert mine.model == {**base.model, "dropout": 0.1}
    assert mine.data == base.data
    same = write(tmp_path, "same.toml", 'base = "mine.toml"\n[model]\nkind = "transformer"\n')
    assert load_recipe(same).model == mine.model
    other = write(tmp_path, "other.toml", 'base = "mine.toml"\n[model]\nkind = "rnn"\n')
    assert load_recipe(other).model == {"kind": "rnn"}


def test_a_base_that_leads_back_is_refused(tmp_path):
    write(tmp_path, "a.toml", 'base = "b.toml"\n')
    name = write(tmp_path, "b.toml", f'base = "../{tmp_path.name}/a.toml"\n')
    with pytest.raises(ConfigError, match="not lead back to this one"):
        load_recipe(name)
    with pytest.raises(ConfigError, match="must name another recipe"):
        load_recipe(write(tmp_path, "c.toml", "base = 3\n"))


@pytest.mark.parametrize("table", ["model = 3", "[name]\nx = 1"])
def test_a_table_in_the_wrong_place_is_one_sentence(tmp_path, table):
    with pytest.raises(ConfigError):
        load_recipe(write(tmp_path, "mine.toml", f'base = "copy"\n{table}\n'))


def test_another_model_kind_empties_the_model_table_in_any_order_of_overrides():
    for overrides in (["model.width=32", "model.kind=rnn"], ["model.kind=rnn", "model.width=32"]):
        assert load_recipe("copy", overrides, warn=lambda text: None).model == {"kind": "rnn", "width": 32}
    assert load_recipe("copy", ["model.kind=transformer"]).model == load_recipe("copy").model


def test_another_model_kind_warns_of_the_keys_that_it_drops():
    with pytest.warns(UserWarning, match=r"drops .*: dropout, hidden, norm_order, num_heads, num_layers;") as caught:
        recipe = load_recipe("copy", ["model.width=32", "model.kind=rnn"])
    assert recipe.model == {"kind": "rnn", "width": 32}
    assert len(caught) == 1
    heard = []
    load_recipe("copy", ["model.kind=rnn"], warn=heard.append)
    assert heard == [
        "model.kind=rnn drops the recipe's other [model] keys, which were made for transformer: dropout, hidden, "
        "norm_order, num_heads, num_layers, width; defaults of rnn apply, unless you set these keys as well"
    ]


def test_nothing_is_dropped_by_the_same_model_kind(tmp_path):
    heard = []
    load_recipe("copy", ["model.kind=transformer", "model.width=32"], warn=heard.append)
    load_recipe(write(tmp_path, "rnn.toml", 'base = "copy"\n[model]\nkind = "rnn"\n'), warn=heard.append)
    assert heard == []


def test_a_warm_up_longer_than_training_is_warned_of():
    heard = []
    load_recipe("copy", ["train.steps=40"], warn=heard.append)
    assert heard == [
        "train.warmup_steps is 50, but train.steps is 40: the learning rate never reaches its peak; "
        "lower train.warmup_steps, or train longer"
    ]
    load_recipe("copy", ["train.steps=50"], warn=heard.append)
    assert len(heard) == 1
    with pytest.warns(UserWarning, match="never reaches its peak"):
        load_recipe("copy", ["train.steps=40"])


def test_data_is_searched_next_to_a_recipe_of_the_user_and_not_in_the_package(tmp_path):
    assert recipe_folder(write(tmp_path, "mine.toml", 'base = "copy"\n')) == tmp_path
    assert recipe_folder("copy") is None


@pytest.mark.parametrize("name", shipped_recipes())
def test_no_shipped_recipe_warns(name):
    load_recipe(name, warn=pytest.fail)


@pytest.mark.parametrize("kind", MODELS.names())
def test_a_resolved_recipe_reads_back_as_itself(kind, tmp_path):
    for preset in (None, *MODELS.get(kind, where="kind").presets):
        table = {"kind": kind} if preset is None else {"kind": kind, "preset": preset}
        # The default, because not every family is searched.
        recipe = load_recipe("copy", ["train.metric=loss", "decode.beam=4"])
        recipe = resolve(msgspec.structs.replace(recipe, model=table))
        path = tmp_path / "recipe.toml"
        path.write_text(dump_toml(to_table(recipe)), encoding="utf-8")
        assert differences(load_recipe(str(path), []), recipe) == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('train = "n.tsv"', "data.train is 'n.tsv'; say what the file is: train = { pairs = 'n.tsv' }, or name two"),
        ('train = { pairs = "n.tsv" }\ntest = { pairs = "t.tsv" }', "data.test holds test sets by name; write, for"),
        ('train = { pairs = "n.tsv" }\ntest = "t.tsv"', "data.test holds test sets by name; write, for example"),
    ],
)
def test_a_file_name_where_a_table_belongs_is_answered_with_the_form_that_fits(tmp_path, line, sentence):
    (tmp_path / "my.toml").write_text(f'[data]\n{line}\n[model]\nkind = "transformer"\n')
    assert refusal(load_recipe, str(tmp_path / "my.toml")).startswith(sentence)
