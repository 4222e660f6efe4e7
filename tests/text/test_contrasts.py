"""Contrastive pairs: how they are made, read and counted."""

import json

import pytest

from regard.contrasting import ContrastAccuracy, Preference, accuracies
from regard.errors import DataError
from regard.text.contrastive_pairs import ContrastivePair, read_contrastive_pairs
from regard.text.contrasts import make_contrasts, other_name, other_number, other_polarity
from regard.text.pair import Pair


@pytest.mark.parametrize(
    ("language", "right", "wrong"),
    [
        ("en", "I can't swim.", "I can swim."),
        ("en", "Tom won't come.", "Tom will come."),
        ("en", "They don't know.", "They do know."),
        ("en", "This is not mine.", "This is mine."),
        ("en", "She never sleeps.", "She always sleeps."),
        ("en", "Tom is tired.", "Tom is not tired."),
        ("en", "I'm tired.", "I'm not tired."),
        ("en", "Is he tired?", None),
        ("en", "I know what it is.", None),
        ("de", "Ich weiß es nicht.", "Ich weiß es."),
        ("de", "Er hat keinen Hund.", "Er hat einen Hund."),
        ("de", "Sie hat eine Katze.", "Sie hat keine Katze."),
        ("de", "Er hat ein paar Bücher.", None),
        ("de", "Tom ist müde.", "Tom ist nicht müde."),
        ("de", "Warum ist er müde?", None),
        ("de", "Er geht.", None),
    ],
)
def test_a_negation_is_removed_or_added(language, right, wrong):
    assert other_polarity(right, language) == wrong


def test_a_number_is_changed_in_digits_or_in_words():
    for right in ("It costs 25 euros.", "He was born in 1974."):
        wrong = other_number(right, "en")
        assert len(wrong) == len(right) and sum(a != b for a, b in zip(right, wrong, strict=True)) == 1
    assert other_number("Sieben Hunde", "de").endswith(" Hunde") and other_number("Sieben Hunde", "de")[0].isupper()
    assert other_number("Wait till six.", "en") not in (None, "Wait till six.")
    assert other_number("one dog", "en") is None and other_number("Achtung!", "de") is None


def test_names_are_exchanged_unless_their_order_does_not_matter():
    assert other_name("Tom winked at Mary.") == "Mary winked at Tom."
    wrong = other_name("Tom and Mary met.")
    assert wrong.endswith(" and Mary met.") and not wrong.startswith("Tom")
    assert other_name("We met in Boston, Tom said.").startswith("We met in ")
    assert "Boston" not in other_name("I like Boston.") and other_name("I like you.") is None


def test_pairs_are_made_by_category_and_the_same_each_time():
    pairs = [Pair("Tom hat 3 Hunde.", "Tom has 3 dogs."), Pair("Er ist da.", "He is here."), Pair("Ja.", "Yes.")]
    made = make_contrasts(pairs, language="en")
    assert [(one.source, one.category) for one in made] == [
        ("Tom hat 3 Hunde.", "numbers"),
        ("Er ist da.", "negation"),
        ("Tom hat 3 Hunde.", "names"),
    ]
    assert made == make_contrasts(pairs, language="en") and all(one.right != one.wrong for one in made)
    with pytest.raises(DataError, match="targets in en, de, not in 'fr'"):
        make_contrasts(pairs, language="fr")


ROWS = [("Ja, gut.", 'She said "yes".', "No.", "negation"), ("Nein.", "No.", "Yes.", "")]


def test_all_formats_are_read_alike(tmp_path):
    names = ("source", "right", "wrong", "category")
    quoted = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in ROWS]
    files = {
        "a.tsv": "\n".join("\t".join(row) for row in (names, *ROWS)),
        "a.csv": "\n".join(",".join(row) for row in (names, *quoted)),
        "a.jsonl": "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in ROWS),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
        assert read_contrastive_pairs(tmp_path / name) == [ContrastivePair(*row) for row in ROWS]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.txt", "x", "not a file of contrastive pairs by its name"),
        ("a.tsv", "source\tright\na\tb", "must name the columns source, right, wrong"),
        ("a.tsv", "source\tright\twrong\na\tb", "line 2 of .* has 2 columns; the first line names 3"),
        ("a.tsv", "source\tright\twrong\na\tb\t ", "line 2 of .* has no text as 'wrong'"),
        ("a.tsv", "source\tright\twrong\na\tb\tb", "line 2 of .* has the same text"),
        ("a.tsv", "source\tright\twrong", "has no contrastive pair"),
        ("a.csv", 'source,right,wrong\na,b,"c', "line 2 of .* is not a CSV record"),
        ("a.jsonl", '{"source": "a", "right": "b"}', "line 1 of .* has no text as 'wrong'"),
        ("a.jsonl", "[]", "line 1 of .* is not"),
        ("a.jsonl", '{"source": "a", "right": 3, "wrong": "b"}', "line 1 of .* has no text as 'right'"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, name, text, problem):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=problem):
        read_contrastive_pairs(tmp_path / name)


def test_accuracies_are_those_of_all_pairs_and_of_each_category():
    def preference(category, right, wrong):
        return Preference(ContrastivePair("a", "b", "c", category), right, wrong)

    found = accuracies([preference("x", -1, -2), preference("y", -3, -2), preference("x", -2, -2)])
    assert [(one.category, one.correct, one.total) for one in found] == [("", 1, 3), ("x", 1, 2), ("y", 0, 1)]


def test_the_interval_is_wilsons():
    # Newcombe 1998, table I: 81 of 263, and 0 of 20.
    assert ContrastAccuracy("", 81, 263).interval == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert ContrastAccuracy("", 0, 20).interval == pytest.approx((0.0, 0.1611), abs=1e-4)
