"""regard probe layers"""

import json
import xml.etree.ElementTree
from pathlib import Path

import pytest

from regard import probing
from regard.errors import DataError
from regard.probing import probe_layers
from tests.commands import regard as call

RUNS = Path(__file__).parent.parent / "fixtures" / "run-0.1"
RUN = RUNS / "transformer"  # one layer of width 16
PAIRS = "b c\tc b\nd e f\tf e d\nb\tb\n"


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data.tsv").write_text(PAIRS)
    return tmp_path / "data.tsv"


def test_the_layers_of_one_run(data, tmp_path):
    pytest.importorskip("matplotlib")
    result = call("probe", "layers", RUN, "--data", data, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["layers.json", "layers.svg"]
    found = json.loads((tmp_path / "out" / "layers.json").read_text())
    assert found["probe"] == "layers"
    assert found["sentences"] == 3
    assert found["tokens"] == {"encoder": 9, "decoder": 9}  # 6 words, and the end or the beginning of 3 sentences
    for grid in found["similarity"].values():
        assert [grid[0][0], grid[1][1]] == pytest.approx([1, 1])
        assert grid[0][1] == pytest.approx(grid[1][0])
        assert 0 < grid[0][1] < 1
    assert f"{found['similarity']['encoder'][0][1]:.3f}" in result.stdout
    [alike] = found["positions"]["encoder"]
    assert len(alike) == 2 and all(-1 < one < 1 for one in alike)
    assert f"{alike[1]:.3f}" in result.stdout
    assert xml.etree.ElementTree.parse(tmp_path / "out" / "layers.svg").getroot().tag.endswith("svg")


@pytest.mark.slow
def test_two_runs_of_other_widths(data, tmp_path):
    options = ("model.width=32", "model.num_layers=2", "train.steps=1", "train.threads=1")
    trained = call("train", "reverse", "--out", tmp_path / "wide", *options)
    assert trained.returncode == 0, trained.stderr
    found = probe_layers(RUN, data, other=tmp_path / "wide")
    grid = found.similarity["decoder"]
    assert (len(grid), len(grid[0])) == (2, 3)
    # 9 tokens of widths 16 and 32: (16 · 32 / ((9 + 16) · (9 + 32)))^½
    assert found.noise["decoder"] == pytest.approx((512 / 1025) ** 0.5)
    back = probe_layers(tmp_path / "wide", data, other=RUN).similarity["decoder"]
    assert grid[1] == pytest.approx([row[1] for row in back])


def test_a_run_of_another_direction_is_probed_with_a_warning(data, monkeypatch):
    translated = iter([("de", "en"), ("en", "de"), ("de", "en")])  # of the run, of the other one, and to read the file
    monkeypatch.setattr(probing, "languages_of", lambda data, name: next(translated))
    heard = []
    probe_layers(RUN, data, other=RUN, warn=heard.append)
    assert heard == [f"{RUN} translates de to en, and {RUN} en to de; both are probed with the sentences of {RUN}"]


def test_runs_with_the_same_directions_in_another_order_are_probed_without_a_warning(data, monkeypatch):
    both = [(("de", "en"), ("en", "de")), (("en", "de"), ("de", "en"))]
    monkeypatch.setattr(probing, "_directions", lambda run: both.pop())
    heard = []
    probe_layers(RUN, data, other=RUN, warn=heard.append)
    assert not both and heard == []


def test_sentences_that_are_split_differently_are_left_out(data, monkeypatch):
    def split(translator, source, target):
        return id(translator) if source == "b" else source

    monkeypatch.setattr(probing, "_split", split)
    heard = []
    assert probe_layers(RUN, data, other=RUN, warn=heard.append).sentences == 2
    assert "split 1 of 3 sentences differently; these are left out" in heard[0]
    monkeypatch.setattr(probing, "_split", lambda translator, *_: id(translator))
    with pytest.raises(DataError, match=r"split every sentence of .* into different tokens"):
        probe_layers(RUN, data, other=RUN)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (["rnn"], "is not a Transformer with an encoder and a decoder"),
        (["transformer", "nat"], "is not a Transformer with an encoder and a decoder"),
        (["transformer", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(runs, message, data, tmp_path):
    result = call("probe", "layers", *(RUNS / run for run in runs), "--data", data, "--out", tmp_path / "out")
    assert result.returncode == 1
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()
