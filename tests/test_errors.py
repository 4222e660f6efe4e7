"""The errors we explain: one tree, and a hint at what was meant."""

import json

import pytest

from regard import errors
from regard.errors import MissingExtra, RegardError, did_you_mean, require


def kinds():
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_every_error_of_ours_can_be_caught_as_one_and_is_in_the_tree_of_the_docstring():
    assert len(kinds()) == 9
    for kind in kinds():
        assert issubclass(kind, RegardError)
        assert kind.__name__ in errors.__doc__


def test_none_of_them_hides_behind_an_error_of_pythons():
    assert not any(issubclass(kind, (ValueError, OSError, RuntimeError, LookupError)) for kind in kinds())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("warmup", "did you mean 'warmup_steps'?"),
        ("stepps", "did you mean 'steps'?"),
        ("zzz", "known: seed, steps, warmup_steps"),
        ("", "known: seed, steps, warmup_steps"),
    ],
)
def test_a_near_name_is_offered_and_otherwise_all_are_listed_in_order(name, answer):
    assert did_you_mean(name, ["warmup_steps", "steps", "seed"]) == answer


def test_names_may_come_from_anything_that_can_be_walked_once():
    assert did_you_mean("b", iter(["bb", "xyz"])) == "did you mean 'bb'?"


def test_a_package_that_is_there_is_imported():
    assert require("json", extra="plots") is json


def test_a_package_that_is_not_there_names_the_extra_that_brings_it():
    with pytest.raises(MissingExtra) as caught:
        require("a_package_nobody_wrote", extra="plots")
    assert str(caught.value) == "this needs the package 'a_package_nobody_wrote': pip install 'regard[plots]'"
    assert isinstance(caught.value.__cause__, ImportError)
