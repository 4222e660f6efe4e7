"""Table 1: counted operations, and the arithmetic of growth and crossings. No test asserts a time."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from regard.cli import app
from regard.data.ragged import Layout
from regard.nn.attend import AttentionMask, attend
from regard.table1 import HEAD, LAYERS, WINDOW, Measurement, as_text, crossing, growth, measure, summarize

CPU = torch.device("cpu")
BY_NAME = {layer.name: layer for layer in LAYERS}


def counted(run):
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        run()
    return counter.get_total_flops()


def test_the_operations_of_self_attention_are_those_that_pytorch_counts():
    x = torch.randn(200, 2, HEAD)
    assert counted(lambda: attend(x, x, x, AttentionMask(Layout([200])), backend="explicit")) == BY_NAME[
        "self-attention"
    ].count(200, 128)


def test_the_operations_of_a_convolution_are_those_that_pytorch_counts():
    kind = BY_NAME["convolutional"]
    assert counted(kind.build(100, 64, CPU)) == kind.count(100, 64)


def test_the_operations_of_a_recurrent_layer_are_those_of_its_steps():
    from regard.nn.dropout import Noise
    from regard.nn.recurrent import Recurrent

    layer, kind = Recurrent("gru", 32, 32, 1, dropout=0.0, noise=Noise()), BY_NAME["recurrent"]
    one_step = counted(lambda: layer.step(torch.randn(1, 32), torch.zeros(1, 1, 1, 32)))
    assert 10 * one_step == kind.count(10, 32)


def test_the_operations_of_restricted_attention_are_those_of_its_blocks():
    # Blocks of 64 queries attend to three blocks of 64 keys; the window alone has 129 keys.
    kind = BY_NAME["restricted"]
    x = torch.randn(1024, 1, HEAD)
    done = counted(lambda: attend(x, x, x, AttentionMask(Layout([1024]), window=WINDOW), backend="explicit"))
    assert done == pytest.approx(kind.count(1024, HEAD) * 192 / 129)


def test_growth_is_the_exponent_of_a_power_law():
    assert growth([1, 2, 4, 8], [3 * size**2 for size in (1, 2, 4, 8)]) == pytest.approx(2)


def test_curves_cross_between_two_sizes():
    # n² and 16 n cross at 16.
    sizes = [4, 8, 32, 64]
    assert crossing(sizes, [n**2 for n in sizes], [16 * n for n in sizes]) == pytest.approx(16)
    assert crossing(sizes, [1, 1, 1, 1], [2, 2, 2, 2]) is None
    assert crossing(sizes, [2, 2, 2, 2], [1, 1, 1, 1]) == 4
    assert crossing(sizes, [1.1, 1.1, 1.1, 1.1], [1, 1, 1, 1]) is None  # noise
    assert 8 < crossing(sizes, [1.1, 1.1, 2, 4], [1, 1, 1, 1]) < 32


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.name)
def test_every_layer_can_be_measured(kind):
    point = measure(kind, 96, 64, CPU, seconds=0.0)
    assert point.seconds > 0 and point.operations == kind.count(96, 64)


@pytest.mark.slow
def test_the_command_prints_the_table_and_writes_a_file_and_a_picture(tmp_path):
    out = tmp_path / "table1.json"
    flags = ["--longest", "256", "--widest", "256", "--width", "64", "--length", "64", "--threads", "1"]
    result = CliRunner().invoke(app, ["bench", "table1", "--out", str(out), *flags])
    assert result.exit_code == 0, result.output
    assert "n²·d" in result.output and "paper 2" in result.output
    data = json.loads(out.read_text())
    assert {row["layer"] for row in data["rows"]} == set(BY_NAME)
    assert len(data["points"]) == 4 * (3 + 3 - 1)
    assert (tmp_path / "table1.svg").stat().st_size > 1000


def test_a_size_that_one_layer_refuses_is_missing_from_its_curve_only():
    points = [
        Measurement(kind.name, n, 64, n**2 / 1e6 if kind.name == "self-attention" else n / 1e3, 1, 1, 1)
        for kind in LAYERS
        for n in (64, 256, 512, 2048, 4096)
        if (kind.name, n) != ("recurrent", 4096)
    ] + [Measurement(kind.name, 64, d, d / 1e3, 1, 1, 1) for kind in LAYERS for d in (128, 256)]
    summary = summarize(points, width=64, length=64)
    # n² / 1e6 and n / 1e3 cross at 1,000.
    assert summary["self_attention_is_slower_from"]["recurrent"] == pytest.approx(1000)
    assert summary["rows"][0]["in_length"] == 2.0 and summary["rows"][1]["in_length"] == 1.0
    (last,) = [line.split() for line in as_text(points, summary).splitlines() if line.split()[:1] == ["4096"]]
    assert len(last) == 1 + len(LAYERS) - 1  # n, and the times of all layers but one


def test_a_layer_with_fewer_than_two_sizes_has_no_exponent():
    points = [Measurement(kind.name, n, 64, n / 1e3, 1, 1, 1) for kind in LAYERS[:1] for n in (64, 128)]
    summary = summarize([*points, Measurement(LAYERS[1].name, 64, 64, 1.0, 1, 1, 1)], width=64, length=64)
    assert [row["in_length"] for row in summary["rows"]] == [1.0, None, None, None]
    assert "–" in as_text(points, summary)


def test_the_command_continues_when_a_layer_refuses_a_size(monkeypatch):
    def refusing(kind, n, d, device):
        if (kind.name, n) == ("recurrent", 256):
            raise RuntimeError("not supported\nthis long")
        return Measurement(kind.name, n, d, n * d / 1e6, 1, 1, 1)

    monkeypatch.setattr("regard.table1.measure", refusing)
    sizes = ["--longest", "256", "--widest", "256", "--width", "64", "--length", "64"]
    result = CliRunner().invoke(app, ["bench", "table1", *sizes])
    assert result.exit_code == 0 and "recurrent: skipped n = 256, d = 64: not supported" in result.stderr
