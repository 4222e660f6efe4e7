"""regard probe heads"""

import json
import math
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

from regard.explain.head_figures import grid_of
from regard.explain.head_gates import Head
from regard.explain.head_importance import loss_per_token
from regard.probing import probe_heads
from tests.commands import regard as call

RUNS = Path(__file__).parent.parent / "fixtures" / "run-0.1"
RUN = RUNS / "transformer"
LONG = "b c d e\te d c b\n"  # enough tokens for BLEU
PAIRS = "b c\tc b\nd e f\tf e d\nb\tb\n"


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data.tsv").write_text(PAIRS)
    return tmp_path / "data.tsv"


def test_it_writes_numbers_and_three_pictures(data, tmp_path):
    pytest.importorskip("matplotlib")
    result = call("probe", "heads", RUN, "--data", data, "--out", tmp_path / "out", "--points", "3")
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "heads.json", "importance.svg", "patterns.svg", "pruning.svg",
    ]  # fmt: skip
    found = json.loads((tmp_path / "out" / "heads.json").read_text())
    assert found["sentences"] == 3
    assert found["tokens"] == 2 + 3 + 1 + 3  # words, and the end of each sentence
    assert "warning: no BLEU: no reference has 4 tokens" in result.stderr and "BLEU" not in result.stdout
    heads = len(found["heads"])
    assert f"{heads} heads; loss per target token {found['loss']:.3f} on 3 sentences" in result.stdout
    for name in ("removal", "gradient", "random"):
        curve = found["curves"][name]
        assert [point["removed"] for point in curve] == [0, round(heads / 2), heads]
        assert curve[0]["loss"] == pytest.approx(found["loss"])
        assert curve[0]["bleu"] is None
        # Without any head, the order in which they were removed makes no difference.
        assert curve[-1]["loss"] == pytest.approx(found["curves"]["random"][-1]["loss"])
    for head in found["heads"]:
        # A source has at most 3 words and EOS: uniform attention to 4 positions is the highest entropy.
        assert 0 <= head["entropy"] <= math.log(4) + 1e-6
        assert (head["distance"] is None) == (head["attention"] == "encoder-decoder")
        assert head["distance"] is None or 0 <= head["distance"] <= 3
    for name in ("importance.svg", "patterns.svg", "pruning.svg"):
        assert xml.etree.ElementTree.parse(tmp_path / "out" / name).getroot().tag.endswith("svg")


def test_bleu_is_scored_where_a_reference_is_long_enough(tmp_path):
    (tmp_path / "data.tsv").write_text(PAIRS + LONG)
    found = probe_heads(RUN, tmp_path / "data.tsv", points=2)
    assert all(point.bleu is not None for curve in found.curves.values() for point in curve)
    assert "BLEU" in found.as_text()


def test_importance_can_be_redone(data):
    import regard
    from regard.explain.head_importance import Examples

    found = probe_heads(RUN, data, sentences=2, points=2)
    translator = regard.load(RUN, device="cpu", engine="torch")
    encoded, outputs, _ = translator.encode_pairs(["b c", "d e f"], ["c b", "f e d"], regard.SearchOptions())
    examples, head = Examples(encoded, outputs), Head("encoder", 1, 1)
    base = loss_per_token(translator.model, examples)
    assert found.loss == pytest.approx(base, rel=1e-4)
    assert found.removal[head] == pytest.approx(loss_per_token(translator.model, examples, [head]) - base, abs=1e-4)
    assert "heads removed" in found.as_text()


def test_only_the_first_pairs_are_used(data):
    assert probe_heads(RUN, data, sentences=1, points=2).tokens == 3


@pytest.mark.parametrize(
    ("run", "text", "message"),
    [
        ("transformer", "", "data.tsv is empty"),
        ("rnn", PAIRS, "is not a Transformer with an encoder and a decoder"),
        ("nowhere", PAIRS, "nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(run, text, message, tmp_path):
    (tmp_path / "data.tsv").write_text(text)
    result = call("probe", "heads", RUNS / run, "--data", tmp_path / "data.tsv", "--out", tmp_path / "out")
    assert result.returncode == 1
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "what"), [("pruning.svg", "a picture (svg)"), ("heads.json", "a result of regard probe")]
)
def test_a_file_of_another_kind_is_not_replaced(data, tmp_path, name, what):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text('{"my": "notes"}')
    result = call("probe", "heads", RUN, "--data", data, "--out", tmp_path / "out")
    assert result.returncode == 1
    assert f"{name} is there already and is not {what}" in result.stderr.replace("\n", " ")
    assert (tmp_path / "out" / name).read_text() == '{"my": "notes"}'


def test_a_grid_has_layers_and_heads():
    grid = grid_of({Head("encoder", 1, 2): 3.0, Head("encoder", 2, 1): 4.0, Head("decoder", 1, 1): 5.0}, "encoder")
    assert np.array_equal(grid, [[np.nan, 3], [4, np.nan]], equal_nan=True)
