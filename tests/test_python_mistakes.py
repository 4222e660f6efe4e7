"""Mistakes in Python calls raise our errors in one sentence, and never a TypeError."""

import numpy as np
import pytest

import regard
from regard.config import SearchOptions
from regard.errors import ConfigError, DecodeError


def sentence(call, *arguments, error=ConfigError, **given):
    with pytest.raises(error) as caught:
        call(*arguments, **given)
    return str(caught.value)


def test_search_options_with_an_unknown_name_name_the_nearest_one():
    assert sentence(SearchOptions, beams=8, error=DecodeError) == (
        "SearchOptions has no option 'beams'; did you mean 'beam'?"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beam": "4"}, "beam is '4'; it must be a whole number"),
        ({"beam": 1.5}, "beam is 1.5; it must be a whole number"),
        ({"beam": True}, "beam is True; it must be a whole number"),
        ({"beam": None}, "beam is None; it must be a whole number"),
        ({"length_penalty": "0"}, "length_penalty is '0'; it must be a number"),
        ({"scores": 1}, "scores is 1; it must be True or False"),
    ],
)
def test_search_options_of_another_type_are_refused_with_their_value(given, message):
    assert sentence(SearchOptions, **given, error=DecodeError) == message


def test_numbers_of_numpy_are_numbers_and_no_longest_length_is_one():
    options = SearchOptions(beam=np.int64(3), length_penalty=1, max_length=None)
    assert options.beam == 3 and options.given.keys() == {"beam", "length_penalty", "max_length"}


def test_a_dict_of_options_is_refused_with_the_call_that_fits():
    translator = regard.load("en-de", device="cpu")
    expected = "options is of type dict; give options=SearchOptions(beam=8)"
    for call in (translator.translate, translator.predict):
        assert sentence(call, ["a"], options={"beam": 8}, error=DecodeError) == expected
    assert sentence(SearchOptions().with_given, 8, error=DecodeError).startswith("options is of type int; give")


def test_overrides_and_accepted_keys_that_are_no_list_are_refused(tmp_path):
    out = tmp_path / "run"
    assert sentence(regard.train, "copy", out=out, overrides="train.steps=5") == (
        "overrides is the text 'train.steps=5'; put it into a list: overrides=['train.steps=5']"
    )
    assert sentence(regard.train, "copy", out=out, overrides={"train.steps": 5}) == (
        "overrides is a dict; give a list of texts: overrides=['train.steps=5']"
    )
    assert sentence(regard.train, "copy", out=out, overrides=[5]).startswith("overrides has 5, which is not a text")
    assert sentence(regard.train, "copy", out=out, accept="train.steps") == (
        "accept is the text 'train.steps'; put it into a list: accept=['train.steps']"
    )
    assert sentence(regard.train, "copy", out=out, accept={"train.steps": 5}) == (
        "accept is a dict; give a list of texts: accept=['train.steps']"
    )
    assert not out.exists()


@pytest.mark.parametrize("name", ["Transformer", "Tagger", "Rnn"])
def test_a_model_with_an_unknown_option_names_the_nearest_one(name):
    sizes = {"source_size": 9, "num_labels" if name == "Tagger" else "target_size": 9}
    assert sentence(getattr(regard, name), **sizes, widht=3) == f"{name} has no option 'widht'; did you mean 'width'?"
    assert sentence(getattr(regard, name), **sizes, width="3").startswith(
        f"{name}.width is '3': expected a whole number"
    )
