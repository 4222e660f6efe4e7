"""The file of `regard look`: whole, safe, and with the numbers that were seen."""

import base64
import dataclasses
import json
import re
import zlib

import numpy as np
import pytest

from regard.errors import DecodeError
from regard.explain.figures import Choice, draw
from regard.explain.page import as_page, packed
from regard.explain.trace_types import Text


def data_of(page):
    (found,) = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(found)


def test_the_file_holds_what_was_seen(trace):
    data = data_of(as_page(trace))
    assert data["target"]["tokens"] == trace.target.tokens
    assert data["probabilities"] == trace.probabilities
    for one, attention in zip(data["attentions"], trace.attentions, strict=True):
        raw = np.frombuffer(zlib.decompress(base64.b64decode(one["weights"])), dtype="<u2")
        np.testing.assert_allclose(raw.reshape(one["shape"]) / 65535, attention.weights, atol=0.5 / 65535 + 1e-6)


def test_the_file_asks_for_nothing_from_elsewhere(trace):
    page = as_page(trace)
    assert "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page)
    assert not re.findall(r"^\s*import ", page, flags=re.MULTILINE)
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not a place


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "$title ${x} $$"]
)
def test_a_sentence_is_only_text(trace, text):
    hostile = dataclasses.replace(trace, source=Text(text, [3], [text], [[0]]), model=text)
    page = as_page(hostile)
    assert "<script>alert" not in page and "<img" not in page
    assert page.count("<script") == 2
    assert data_of(page)["source"]["text"] == text


def test_pairs_in_the_page_are_those_of_the_alignment(trace):
    pairs = " ".join(f"{source}-{target}" for source, target in packed(trace)["pairs"])
    assert f">{pairs}<" in as_page(trace)


@pytest.mark.parametrize("heatmap", [True, False])
@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_pictures_for_papers(trace, tmp_path, ending, begins, heatmap):
    path = tmp_path / f"picture.{ending}"
    draw(trace, path, Choice(layer=1, heads=(1, 2), heatmap=heatmap))
    assert path.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(name="sideways"), "choose among encoder, decoder, encoder-decoder"),
        (Choice(layer=9), "layers 1 to 3"),
        (Choice(heads=(1, 7)), "heads 1 to 4"),
        (Choice(word="Hund"), "the word 'Hund' is not there"),
    ],
)
def test_what_is_not_there_cannot_be_drawn(trace, tmp_path, choice, message):
    with pytest.raises(DecodeError, match=message):
        draw(trace, tmp_path / "picture.svg", choice)
    assert not list(tmp_path.iterdir())
