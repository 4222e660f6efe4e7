"""The family tree: drawings, and numbers that are read from results."""

import json
import re
from xml.etree import ElementTree

import pytest

from regard.errors import ConfigError
from regard.learn.drawing import Drawing
from regard.learn.family import hull
from regard.learn.html_parts import DRAWINGS
from regard.learn.numbers import definitions, number_text, with_numbers
from regard.learn.render import render
from regard.learn.sources import ASSETS, PAGES, read


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_well_formed_and_inside_its_frame(name):
    drawing = DRAWINGS[name]()
    tree = ElementTree.fromstring(drawing.svg("a < b"))
    assert tree.get("aria-label") == "a < b"
    for circle in tree.iter("circle"):
        radius = float(circle.get("r"))
        assert radius <= float(circle.get("cx")) <= drawing.width - radius
        assert radius <= float(circle.get("cy")) <= drawing.height - radius
    # The site's rules forbid styles of an element; classes give the colours.
    assert not [one for one in tree.iter() if one.get("style") or one.get("fill") or one.get("stroke")]


def test_every_shape_has_a_style_and_lines_are_not_filled():
    style = (ASSETS / "site.css").read_text(encoding="utf-8")
    kinds = {kind for make in DRAWINGS.values() for kind in re.findall(r'class="(?:d-text )?d-(\w+)"', make().svg(""))}
    assert [kind for kind in kinds if f".d-{kind}" not in style] == []
    unfilled = re.search(r"^(.*) \{ fill: none;", style, flags=re.M)[1]
    assert {".d-edge", ".d-path", ".d-rule"} == set(unfilled.split(", "))


def test_an_arrow_ends_before_its_node():
    drawing = Drawing(100, 40)
    drawing.arrow((0, 20), (100, 20))
    assert "M12.0 20.0L80.0 20.0" in drawing.edges[0]  # 12 is the radius; 2 are left free, and 6 are the tip
    assert "M86.0 20.0" in drawing.edges[0]


def test_the_hull_of_a_square_leaves_out_what_is_inside():
    assert sorted(hull([(0, 0), (2, 0), (1, 1), (2, 2), (0, 2)])) == [(0, 0), (0, 2), (2, 0), (2, 2)]


def test_numbers_are_those_of_the_results():
    made = with_numbers("{{rnn-letters-40}} {{hull-200}} {{han-sentence}} {{attention-layer-ms}}", "some.md")
    assert made == "20 63.2 96.8 3.6"
    # 31.45 with attention and 19.05 without, of which the difference is rounded.
    assert with_numbers("{{rnn-long}} {{attention-gain-long}}", "some.md") == "19.0 12.4"


def test_every_defined_number_can_be_read_and_is_used():
    used = {
        name
        for path in (PAGES / "en").glob("*.md")
        for name in re.findall(r"\{\{([\w-]+)\}\}", path.read_text(encoding="utf-8"))
    }
    assert used == set(definitions())
    for name, definition in definitions().items():
        assert re.fullmatch(r"[+-]?[\d.,]+", number_text(definition, name)), name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{rnn-blue}}", r"some.md uses the number rnn-blue.*did you mean rnn-bleu\?"),
        ("{{zzz}}", r"zzz, which pages/numbers.toml does not define$"),
    ],
)
def test_an_unknown_number_is_an_error(text, message):
    with pytest.raises(ConfigError, match=message):
        with_numbers(text, "some.md")


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"file": "rival-speed-h200.json", "at": ["lines", {"row": "none"}]}, "has 0 elements"),
        ({"file": "rival-speed-h200.json", "at": ["nowhere"]}, "rival-speed-h200.json has no nowhere"),
        ({"card": "hull-50", "test": "n9", "score": "exact"}, "the card hull-50 has no exact of n9"),
        ({"page": "README.md", "after": "not there"}, "README.md has no number after 'not there'"),
    ],
)
def test_a_number_that_a_result_no_longer_has_is_an_error(definition, message):
    with pytest.raises(ConfigError, match=message):
        number_text({**definition, "format": ".1f"}, "some")


def test_an_unknown_drawing_is_an_error():
    with pytest.raises(ConfigError, match="there is no drawing 'tree'; there are rnn"):
        render('```drawing tree\nen = "a"\n```\n', link=str, name="some.md")


def test_a_caption_is_in_both_languages():
    made = render('```drawing gpt\nen = "each"\nzh = "每个"\n```\n', link=str, name="some.md").html
    assert '<span class="zh" lang="zh-CN">每个</span></figcaption>' in made
    assert 'aria-label="each"' in made


def test_numbers_of_a_study_are_means_over_its_seeds():
    rows = {row["name"]: row["sets"][0] for row in json.loads(read("studies/table3/study.json"))["rows"]}
    scores = [one["bleu"] for one in rows["N 8"]["by_seed"].values()]
    assert len(scores) == 3 and with_numbers("{{layers-8}}", "some.md") == f"{sum(scores) / 3:.1f}"
    definition = {"study": "table3", "row": "N 9", "score": "bleu", "format": ".1f"}
    with pytest.raises(ConfigError, match="the study table3 has no bleu of N 9 for the number layers-9"):
        number_text(definition, "layers-9")


def test_a_number_of_some_lengths_is_that_of_the_table_of_its_study():
    text = read("studies/rivals/table.md")
    row = next(line for line in text.split("by tokens of the reference")[1].splitlines() if "RNN, no" in line)
    *_, longest = row.strip(" |").split(" | ")
    assert with_numbers("{{rnn-long}}", "some.md") == longest


@pytest.mark.parametrize("wrong", [{"length": "16-30"}, {"score": "chrf"}, {"row": "none"}])
def test_a_length_that_a_study_does_not_have_is_an_error(wrong):
    definition = {"study": "rivals", "row": "Transformer", "score": "bleu", "length": "5-9", "format": ".1f"} | wrong
    lengths = "it has bleu by the lengths 5-9, 10-11, 12, 13-15, 16-31$"
    with pytest.raises(ConfigError, match=f"the study rivals has no .* for the number some; {lengths}"):
        number_text(definition, "some")
