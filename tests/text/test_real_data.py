"""The data files of the shipped recipes, if they are available (REGARD_DATA)."""

import pytest

from regard.recipe_files import load_recipe
from regard.text.bitext import load_bitext


@pytest.mark.parametrize("recipe", ["multi30k-en-de", "multi30k-en-fr", "multi30k-many"])
def test_multi30k_has_29000_captions_to_train_on_and_a_thousand_in_each_test_set(recipe, data_folder):
    data = load_recipe(recipe).data
    assert {len(load_bitext(bitext, folders=[data_folder])) for bitext in data.corpora} == {29_000}
    assert {len(load_bitext(bitext, folders=[data_folder])) for bitext in data.dev_sets} == {1_014}
    assert {len(load_bitext(bitext, folders=[data_folder])) for bitext in data.test.values()} == {1_000}
