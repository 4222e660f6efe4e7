"""The pairs that a recipe names: generated, in one file or in two; and the folders that are searched."""

import gzip
from pathlib import Path

import pytest

import regard
from regard.config import Bitext, DataConfig
from regard.errors import DataError
from regard.recipe_files import load_recipe, shipped_recipes
from regard.text.bitext import anchor, data_folders, find_file, load_bitext, pairs_fingerprint
from regard.text.corpus import Pair
from regard.text.generators import GENERATORS
from regard.text.toys import TASKS


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    (tmp_path / "a.tsv").write_text("three\tdrei\n")
    return tmp_path


def test_two_files_are_read_line_by_line(folder):
    assert load_bitext(Bitext(source="a.en", target="a.de"), folders=[folder]) == [
        Pair("one", "eins"),
        Pair("two", "zwei"),
    ]


def test_the_two_sides_may_be_in_two_folders(folder):
    other = folder / "other"
    other.mkdir()
    (folder / "a.de").rename(other / "b.de")
    pairs = load_bitext(Bitext(source="a.en", target="b.de"), folders=[folder, other])
    assert pairs[0] == Pair("one", "eins")


def test_a_table_is_read_as_pairs(folder):
    assert load_bitext(Bitext(pairs="a.tsv"), folders=[folder]) == [Pair("three", "drei")]


@pytest.mark.parametrize("task", TASKS)
def test_a_built_in_corpus_is_generated_without_any_file(task):
    pairs = load_bitext(Bitext(generate=f"{task}/valid"), folders=[])
    assert len(pairs) == 500
    for pair in pairs:
        assert pair.target == " ".join(TASKS[task](pair.source.split()))


def test_dates_and_all_toys_are_built_in():
    assert GENERATORS.keys() >= {"dates", "copy", "reverse", "sort", "runs", "majority", "sort-numbers"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("date/train", "there is no built-in corpus 'date'; did you mean 'dates'?"),
        ("wikipedia/train", f"there is no built-in corpus 'wikipedia'; known: {', '.join(sorted(GENERATORS))}"),
        ("copy/tests", "no split 'tests'; did you mean 'test'?"),
        ("copy", "no split ''"),
    ],
)
def test_an_unknown_corpus_is_refused_with_the_nearest_name(name, sentence):
    with pytest.raises(DataError) as caught:
        load_bitext(Bitext(generate=name), folders=[])
    assert sentence in str(caught.value)


@pytest.mark.parametrize("emptied", ["pairs", "text", "generate"])
def test_an_empty_name_is_refused(emptied):
    with pytest.raises(ValueError, match="give either source and target, or pairs, or text, or generate"):
        Bitext(source="a.en", target="a.de", **{emptied: ""})
    with pytest.raises(ValueError, match="give either"):
        Bitext(source="a.en", target="")


def test_a_file_of_texts_has_each_line_on_both_sides(folder):
    assert load_bitext(Bitext(text="a.en"), folders=[folder]) == [Pair("one", "one"), Pair("two", "two")]
    (folder / "b.en").write_text("one\n \n")
    with pytest.raises(DataError, match=r"line 2 of .*b\.en has an empty source side"):
        load_bitext(Bitext(text="b.en"), folders=[folder])


# Searched folders


def test_the_file_of_the_first_folder_is_used(folder):
    other = folder / "other"
    other.mkdir()
    (other / "a.en").write_text("another\n")
    assert find_file("a.en", [other, folder]) == other / "a.en"
    assert find_file("a.en", [folder, other]) == folder / "a.en"
    assert find_file("a.de", [other, folder]) == folder / "a.de"


def test_an_absolute_path_needs_no_folder(folder):
    assert find_file(str(folder / "a.en"), [Path("elsewhere")]) == folder / "a.en"


def test_a_missing_file_is_refused_with_the_searched_folders():
    with pytest.raises(DataError) as caught:
        find_file("a.en", [Path("here"), Path("there")])
    assert str(caught.value) == (
        "no file 'a.en' in 'here', 'there', plain or .gz, .xz or .zst; "
        "name the folder that holds it with --data (in Python: data=) or REGARD_DATA"
    )


def test_every_missing_file_is_named_and_every_searched_folder_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bitext = Bitext(source="corpus/a.en", target="corpus/a.de.gz")
    data = DataConfig(train=bitext, folders=("published",), origin="the A corpus (example.org/a)")
    with pytest.raises(DataError) as caught:
        load_bitext(bitext, folders=[tmp_path, Path()], data=data)
    assert str(caught.value) == (
        f"no file 'a.en', 'a.de.gz' in '{tmp_path}/corpus', '{tmp_path}/published', plain or .gz, .xz or .zst; "
        "get them from the A corpus (example.org/a), and name the folder that has 'published/a.en' with --data "
        "(in Python: data=) or REGARD_DATA"
    )


def test_a_file_is_found_with_and_without_gz_but_its_own_name_comes_first(folder):
    (folder / "b.en.gz").write_bytes(gzip.compress(b"packed\n"))
    other = folder / "other"
    other.mkdir()
    assert find_file("a.en.gz", [other, folder]) == folder / "a.en"
    assert find_file("b.en", [other, folder]) == folder / "b.en.gz"
    (other / "a.en.gz").write_bytes(gzip.compress(b"packed\n"))
    assert find_file("a.en", [other, folder]) == folder / "a.en"


def test_files_are_also_found_in_the_other_folders_that_a_recipe_names(folder):
    published = folder / "data" / "task1"
    published.mkdir(parents=True)
    (folder / "a.en").rename(published / "a.en")
    bitext = Bitext(source="corpus/a.en.gz", target="corpus/a.de")
    data = DataConfig(train=bitext, folders=("data/task1", "."))
    assert load_bitext(bitext, folders=[folder], data=data)[0] == Pair("one", "eins")
    assert anchor(data, [folder], named=folder) == data
    assert anchor(data, [folder], named=None).train.source == str(published / "a.en")


@pytest.mark.parametrize("outside", ["/etc", "..", "a/../../b"])
def test_other_folders_lie_below_the_data_folder(outside):
    with pytest.raises(ValueError, match="must be below the data folder"):
        DataConfig(train=Bitext(pairs="a.tsv"), folders=(outside,))


@pytest.mark.parametrize("recipe", [name for name in shipped_recipes() if name.startswith("multi30k")])
@pytest.mark.parametrize("layout", ["data/task1/tok", "multi30k/tok", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_multi30k_is_found_as_published_and_as_documented(recipe, layout, suffix, tmp_path):
    data = load_recipe(recipe).data
    bitexts = [*data.corpora, *data.dev_sets, *data.test.values()]
    names = {Path(name).name.removesuffix(".gz") for one in bitexts for name in (one.source, one.target)}
    assert "train.lc.norm.tok.en" in names and len(names) == (12 if recipe == "multi30k-many" else 8)
    (tmp_path / layout).mkdir(parents=True, exist_ok=True)
    for name in names:
        (tmp_path / layout / f"{name}{suffix}").write_text("one line\n")
    for one in bitexts:
        assert load_bitext(one, folders=[tmp_path], data=data) == [Pair("one line", "one line")]


@pytest.mark.parametrize(
    ("recipe", "file", "origin"),
    [
        ("multi30k-en-de", "train.lc.norm.tok.de", "github.com/multi30k/dataset"),
        ("multi30k-en-fr", "train.lc.norm.tok.fr", "github.com/multi30k/dataset"),
        ("tatoeba-de-en", "train.de", "manythings.org/anki"),
        ("wmt14-en-de", "train.de", "statmt.org/wmt14"),
    ],
)
def test_a_shipped_recipe_says_where_to_get_its_missing_files(recipe, file, origin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    with pytest.raises(DataError) as caught:
        regard.train(recipe, out="run")
    message = str(caught.value)
    assert f"'{file}.gz'" in message and f"get them from {load_recipe(recipe).data.origin}" in message
    assert origin in message and "--data" in message and "regard/recipes" not in message


def test_each_searched_folder_is_named_once_as_the_user_typed_it(tmp_path, monkeypatch):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert data_folders(None, Path("my.toml").parent) == [Path()]
    assert data_folders(tmp_path, Path("my.toml").parent) == [tmp_path]
    assert data_folders("../" + tmp_path.name, tmp_path) == [Path("..") / tmp_path.name]
    with pytest.raises(DataError, match=r"^no file 'a.en' in '\.', plain or .gz, .xz or .zst; name the folder"):
        find_file("a.en", data_folders(None, Path("my.toml").parent))


def test_a_missing_absolute_path_is_refused_without_folders(tmp_path):
    with pytest.raises(DataError) as caught:
        find_file(str(tmp_path / "a.en"), [Path("here"), Path()])
    assert str(caught.value) == f"there is no file '{tmp_path}/a.en'"


def test_the_named_folder_is_searched_before_that_of_the_recipe_and_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    assert data_folders(tmp_path, Path("recipes")) == [tmp_path, Path("recipes"), Path()]
    assert data_folders(None, Path("recipes")) == [Path("recipes"), Path()]
    assert data_folders(None, None) == [Path()]


def test_the_environment_names_the_folder_unless_one_is_given(tmp_path, monkeypatch):
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert data_folders(None, None) == [tmp_path, Path()]
    assert data_folders(given, None) == [given, Path()]


def test_an_empty_environment_variable_is_ignored(monkeypatch):
    monkeypatch.setenv("REGARD_DATA", "")
    assert data_folders(None, None) == [Path()]


def test_a_data_folder_that_does_not_exist_is_refused(folder, monkeypatch):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    for wrong in (folder / "absent", folder / "a.en"):
        with pytest.raises(DataError) as caught:
            data_folders(wrong, None)
        assert str(caught.value) == (
            f"the data folder {str(wrong)!r} does not exist; name an existing folder with --data (in Python: data=) or "
            "REGARD_DATA"
        )
    monkeypatch.setenv("REGARD_DATA", str(folder / "absent"))
    with pytest.raises(DataError, match="does not exist"):
        data_folders(None, None)


# The text of a run


def test_anchored_data_is_found_from_any_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    train, test = Bitext(source="a.en", target="a.de"), {"table": Bitext(pairs="a.tsv")}
    data = anchor(DataConfig(train=train, test=test), [Path()], named=None)
    monkeypatch.chdir(folder.parent)
    assert load_bitext(data.train, folders=[Path()]) == load_bitext(train, folders=[folder])
    assert load_bitext(data.test["table"], folders=[Path()]) == [Pair("three", "drei")]


def test_data_in_the_named_folder_keeps_its_relative_path_so_that_the_folder_may_move(folder):
    data = DataConfig(train=Bitext(source="a.en", target="a.de"), valid=Bitext(pairs="a.tsv"))
    assert anchor(data, [folder, Path()], named=folder) == data


def test_generated_and_missing_data_are_not_changed_by_anchoring(folder):
    data = DataConfig(train=Bitext(generate="copy/train"), valid=Bitext(pairs="absent.tsv"))
    assert anchor(data, [folder], named=None) == data


def test_a_fingerprint_depends_on_every_letter_and_on_the_order():
    pairs = [Pair("one", "eins"), Pair("two", "zwei")]
    original = pairs_fingerprint(pairs)
    assert original["pairs"] == 2
    assert pairs_fingerprint(iter(pairs)) == original
    assert pairs_fingerprint(pairs[::-1]) != original
    assert pairs_fingerprint([pairs[0], Pair("two", "zwej")])["sha256"] != original["sha256"]
