"""Several files of texts, tags for each word, and examples held out for validation."""

from pathlib import Path

import msgspec
import pytest

from regard.config import Bitext, DataConfig
from regard.errors import DataError
from regard.recipe_files import load_recipe
from regard.tasks.corpus import read_corpus
from regard.text.bitext import anchor, load_bitext, refuse_outside


def write(folder, **files):
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def test_texts_of_several_files_follow_each_other(tmp_path):
    write(tmp_path, a=["x y"], b=["z"])
    texts = Bitext(text=("a", "b"))
    assert load_bitext(texts, folders=[tmp_path]) == [("x y", "x y"), ("z", "z")]
    found = anchor(DataConfig(train=texts), [tmp_path], named=None).train
    assert found.text == (str(tmp_path / "a"), str(tmp_path / "b"))
    with pytest.raises(DataError, match=r"no file 'c'"):
        load_bitext(Bitext(text=("a", "c")), folders=[tmp_path])
    with pytest.raises(DataError, match="outside of the folders"):
        refuse_outside(Bitext(text=("a", "../b")), [tmp_path], recipe_of="run")


def test_tags_are_joined_to_the_words_of_the_source(tmp_path):
    write(tmp_path, words=["the dog", "cats"], labels=["A B", "C"], tags=["DT NN", "NNS"], few=["DT NN"])
    tagged = Bitext(source="words", target="labels", tags="tags")
    assert load_bitext(tagged, folders=[tmp_path]) == [("the|DT dog|NN", "A B"), ("cats|NNS", "C")]
    with pytest.raises(DataError, match=r"line 2 of .*few has 0 tags for 1 word; each word needs one tag"):
        load_bitext(msgspec.structs.replace(tagged, tags="few"), folders=[tmp_path])
    with pytest.raises(DataError, match="outside of the folders"):
        refuse_outside(msgspec.structs.replace(tagged, tags="../tags"), [tmp_path], recipe_of="run")


def test_the_last_training_examples_are_held_out(tmp_path):
    write(tmp_path, **{"all.tsv": [f"{number}\tA" for number in range(5)]})
    recipe = load_recipe("runs", ['data.train={pairs="all.tsv"}', "data.valid={hold_out=2}"])
    corpus = read_corpus(recipe, [tmp_path])
    assert [pair.source for pair in corpus.train.examples()] == ["0", "1", "2"]
    assert [pair.source for pair in corpus.valid] == ["3", "4"]
    recipe = load_recipe("runs", ['data.train={pairs="all.tsv"}', "data.valid={hold_out=5}"])
    with pytest.raises(DataError, match=r"data\.valid\.hold_out is 5, but there are 5 examples to take from"):
        read_corpus(recipe, [Path(tmp_path)])


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"text": "a", "hold_out": 2}, "leave out the files"),
        ({"text": ()}, "give either source and target, or pairs, or text"),
        ({"pairs": "a.tsv", "tags": "b"}, "name it with source"),
    ],
)
def test_options_that_do_not_go_together_are_refused(table, sentence):
    with pytest.raises(ValueError, match=sentence):
        Bitext(**table)


def test_only_the_dev_set_is_held_out():
    with pytest.raises(ValueError, match=r"hold_out is for data\.valid"):
        DataConfig(train=Bitext(hold_out=2))
