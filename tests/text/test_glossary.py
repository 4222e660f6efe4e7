"""Glossaries: the terms of a text, also in inflected forms, from tables and TBX."""

import pytest

from regard.errors import DataError
from regard.text.glossary import Term, make_glossary, make_word, read_glossary

TBX = """<?xml version="1.0"?>
<tbx type="TBX-Basic" xml:lang="en"><text><body>
<conceptEntry id="1"><langSec xml:lang="en"><termSec><term>house</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Gebäude</term></termSec><termSec><term>Haus</term></termSec></langSec></conceptEntry>
<conceptEntry id="2"><langSec xml:lang="en"><termSec><term>car</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Wagen</term></termSec></langSec></conceptEntry>
</body></text></tbx>
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("houses", "house"),
        ("Häuser", "Haus"),
        ("cities", "city"),
        ("running", "run"),
        ("kleinen", "kleines"),
        ("BOX", "box"),
    ],
)
def test_inflected_forms_are_recognized(one, other):
    assert make_word(one).is_form_of(make_word(other)) and make_word(other).is_form_of(make_word(one))


@pytest.mark.parametrize(("one", "other"), [("hauen", "Haus"), ("is", "i"), ("train", "rain"), ("bus", "but")])
def test_other_words_are_not(one, other):
    assert not make_word(one).is_form_of(make_word(other))


def test_the_longest_term_is_found_and_terms_do_not_overlap():
    glossary = make_glossary([("network", "Netz"), ("neural network", "neuronales Netz"), ("new york", "New York")])
    found = glossary.find("Neural networks in New York; a network.")
    assert [term.source for term in found] == ["neural network", "new york", "network"]
    assert glossary.phrases("networks")[0] == ("Netz",)


def test_a_word_as_it_is_comes_before_a_form_of_another():
    glossary = make_glossary([("houses", "Häuser"), ("house", "Haus")])
    assert [term.source for term in glossary.find("a house, houses")] == ["house", "houses"]


def test_a_translation_may_have_a_capital_letter():
    assert make_glossary([("car", "neuer Wagen|PKW")]).phrases("cars") == [("neuer Wagen", "PKW", "Neuer Wagen")]


@pytest.mark.parametrize("header", ["", "source,target\n", "en,de\n"])
def test_a_table_may_name_its_columns(tmp_path, header):
    path = tmp_path / "terms.csv"
    path.write_text(f'{header}house,Gebäude|Haus\n"car, old",Wagen\n', encoding="utf-8")
    expected = (Term("house", ("Gebäude", "Haus")), Term("car, old", ("Wagen",)))
    assert read_glossary(path, languages=("en", "de")).terms == expected


def test_tbx_gives_all_terms_of_a_concept(tmp_path):
    path = tmp_path / "terms.tbx"
    path.write_text(TBX, encoding="utf-8")
    glossary = read_glossary(path, languages=("en", "de"))
    assert glossary.terms == (Term("house", ("Gebäude", "Haus")), Term("car", ("Wagen",)))
    path.write_text(TBX.replace("tbx", "other"), encoding="utf-8")
    with pytest.raises(DataError, match="is XML but not TBX: its first element is 'other'"):
        read_glossary(path, languages=("en", "de"))
