"""The file of `regard look`: complete, safe, and with the recorded numbers; and pictures for papers."""

import base64
import dataclasses
import json
import re
import zlib

import matplotlib
import numpy as np
import pytest

from regard.errors import DecodeError
from regard.explain.attention import Axis
from regard.explain.figures import FigureOptions, draw
from regard.explain.report import as_page, trace_as_json


def data_of(page):
    (found,) = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(found)


def test_the_file_holds_what_was_recorded(trace):
    data = data_of(as_page(trace))
    assert data["target"]["tokens"] == trace.target.tokens
    assert data["probabilities"] == trace.probabilities
    for one, attention in zip(data["attentions"], trace.attentions, strict=True):
        raw = np.frombuffer(zlib.decompress(base64.b64decode(one["weights"])), dtype="<u2")
        np.testing.assert_allclose(raw.reshape(one["shape"]) / 65535, attention.weights, atol=0.5 / 65535 + 1e-6)


def test_the_file_loads_nothing_from_elsewhere(trace):
    page = as_page(trace)
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page)
    assert not re.findall(r"^\s*import ", page, flags=re.MULTILINE)
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a namespace, which is not loaded


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "$title ${x} $$"]
)
def test_a_sentence_is_never_markup(trace, text):
    hostile = dataclasses.replace(
        trace, axes={**trace.axes, "source": Axis.from_tokens(text, [text])}, attentions=[], model=text
    )
    page = as_page(hostile)
    assert "<script>alert" not in page and "<img" not in page
    assert page.count("<script") == 2
    assert data_of(page)["source"]["text"] == text


def test_pairs_in_the_page_are_those_of_the_alignment(trace):
    pairs = " ".join(f"{source}-{target}" for source, target in trace_as_json(trace)["pairs"])
    assert f">{pairs}<" in as_page(trace)


@pytest.mark.parametrize("heatmap", [True, False])
@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_pictures_for_papers(trace, tmp_path, ending, begins, heatmap):
    path = tmp_path / f"picture.{ending}"
    draw(trace, path, FigureOptions(layer=1, heads=(1, 2), heatmap=heatmap))
    assert path.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FigureOptions(name="sideways"), "choose one of encoder, decoder, encoder-decoder"),
        (FigureOptions(layer=9), "layers 1 to 3"),
        (FigureOptions(heads=(1, 7)), "heads 1 to 4"),
        (FigureOptions(word="Hund"), "there is no word 'Hund'"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_drawn(trace, tmp_path, options, message):
    with pytest.raises(DecodeError, match=message):
        draw(trace, tmp_path / "picture.svg", options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("heatmap", [True, False])
def test_pictures_name_both_axes(tagger, pointer, tmp_path, monkeypatch, heatmap):
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    for shown, labels in ((tagger, ("input (from)", "input (to)")), (pointer, ("order", "points"))):
        draw(shown, tmp_path / "picture.svg", FigureOptions(heatmap=heatmap))
        text = (tmp_path / "picture.svg").read_text(encoding="utf-8")
        assert all(f">{label}</text>" in text for label in labels)


def test_an_axis_may_not_take_the_name_of_another_field(tagger):
    taken = dataclasses.replace(tagger, axes={**tagger.axes, "model": tagger.source})
    with pytest.raises(AssertionError):
        trace_as_json(taken)
