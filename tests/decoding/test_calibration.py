"""Temperatures, calibration errors, and the confidence in words, by numbers that can be redone by hand."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

import regard
from regard.data.ragged import Ragged
from regard.decoding.calibration import Reliability, fit_temperature, reliability
from regard.decoding.forced_decoding import ForcedBatch
from regard.decoding.translation import confidence_of
from regard.errors import CheckpointError, ConfigError, DataError
from regard.run.folder import CALIBRATION, RunFolder

RUN = Path(__file__).parent.parent / "fixtures" / "run-0.1" / "transformer"


def batches_of(logits, labels):
    return lambda: [ForcedBatch([0], Ragged.from_lists([labels]), torch.tensor(logits))]


@pytest.mark.parametrize("temperature", [0.25, 1.0, 2.0, 8.0])
def test_the_temperature_makes_the_probability_the_share_of_what_is_right(temperature):
    # One of two columns is right three times of four: its logit must become log 3.
    logits = [[temperature * math.log(3), 0.0, -math.inf]] * 4
    assert fit_temperature(batches_of(logits, [0, 0, 0, 1])) == pytest.approx(temperature, rel=1e-3)


def test_a_model_that_is_always_right_is_given_a_low_temperature():
    assert 0.05 <= fit_temperature(batches_of([[1.0, 0.0]] * 3, [0, 0, 0])) < 0.1


def test_the_calibration_error_is_the_distance_of_confidence_and_accuracy():
    # Sure to 3/4 and right in half of the cases; sure to 9/10 and always right.
    sure = [[math.log(3), 0.0]] * 4 + [[0.0, math.log(9)]] * 4
    [found] = reliability(batches_of(sure, [0, 1, 0, 1, 1, 1, 1, 1]), [1.0])
    assert found.error == pytest.approx((4 * 0.25 + 4 * 0.1) / 8)
    expected = (2 * math.log(4 / 3) + 2 * math.log(4) + 4 * math.log(10 / 9)) / 8
    assert found.negative_log_likelihood == pytest.approx(expected)
    assert found.tokens == 8


def test_a_probability_of_one_belongs_to_the_last_bin():
    one = Reliability(1.0)
    one.add(torch.tensor([[200.0, 0.0]]), torch.tensor([0]))
    assert one.counts.tolist() == [0] * 14 + [1] and one.error == 0


def test_the_confidence_of_a_word_is_the_product_over_its_tokens():
    tokens = ["▁Gu", "ten", "▁", "Tag", "!"]
    half, third = math.log(0.5), math.log(1 / 3)

    def decode(ids):
        return "".join(tokens[id] for id in ids).replace("▁", " ").strip()

    found = confidence_of("Guten Tag!", range(5), [half, half, half, third, 0.0, half], decode)
    assert [word.text for word in found.words] == ["Guten", "Tag!"]
    assert [word.confidence for word in found.words] == pytest.approx([1 / 4, 1 / 6])
    assert found.sentence == pytest.approx((1 / 2 * 1 / 2 * 1 / 2 * 1 / 3 * 1 / 2) ** (1 / 6))


def test_bytes_of_a_character_and_characters_without_spaces_belong_to_their_words():
    # The first two of three bytes are shown as one character each.
    shown = {0: "", 1: "a", 2: "a?", 3: "a??", 4: "aé", 5: "aé b"}
    found = confidence_of("aé b", range(5), [0.0, -1.0, -2.0, -4.0, -8.0], lambda ids: shown[len(ids)])
    assert [word.confidence for word in found.words] == pytest.approx([math.exp(-7), math.exp(-8)])
    found = confidence_of("你好 ab", range(3), [-1.0, -2.0, -4.0], lambda ids: "你好 ab"[: [0, 1, 2, 5][len(ids)]])
    assert [(word.text, word.confidence) for word in found.words] == [
        ("你", pytest.approx(math.exp(-1))),
        ("好", pytest.approx(math.exp(-2))),
        ("ab", pytest.approx(math.exp(-4))),
    ]


def test_an_empty_output_has_no_words():
    assert confidence_of("", [], [math.log(0.5)], lambda ids: "").words == ()


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(RUN, tmp_path / "run")


def pairs_for(tmp_path, count=12):
    """Write pairs such as the run has learned: texts, and the same words in the opposite order."""
    letters = "abcdefghijklmnop"
    texts = [letters[place : place + 2 + place % 3] for place in range(count)]
    path = tmp_path / "dev.tsv"
    path.write_text("".join(f"{' '.join(text)}\t{' '.join(text[::-1])}\n" for text in texts))
    return path


def test_a_run_is_calibrated_and_its_export_keeps_the_temperature(run, tmp_path):
    dev = pairs_for(tmp_path)
    found = regard.calibrate(run, pairs=dev, device="cpu")
    assert found.tests[0].num_pairs == 6 and found.dev["pairs"] == 6
    assert json.loads((run / CALIBRATION).read_text())["temperature"] == found.temperature
    assert RunFolder(run).problems() == []
    # What was fitted is better on the pairs that it was fitted to.
    same = regard.calibrate(run, pairs=dev, test=dev, device="cpu").tests[0]
    assert same.nll_after <= same.nll_before + 1e-6
    exported = regard.export(run, tmp_path / "exported").path
    temperature = regard.load(run, device="cpu").calibrated_temperature
    assert temperature == regard.load(exported, device="cpu").calibrated_temperature is not None
    assert RunFolder(exported).problems() == []


@pytest.mark.parametrize("change", [{"step": -1}, {"temperature": 1e9}, {"temperature": "1"}, {"temperature": None}])
def test_a_temperature_of_other_weights_or_of_no_use_is_not_used(run, change):
    step = RunFolder(run).weights()[0].counters["step"]
    RunFolder(run).write_extras({CALIBRATION: json.dumps({"temperature": 1.5, "step": step})})
    assert regard.load(run, device="cpu").calibrated_temperature == 1.5
    RunFolder(run).write_extras({CALIBRATION: json.dumps({"temperature": 1.5, "step": step, **change})})
    assert regard.load(run, device="cpu").calibrated_temperature is None


def test_unfinished_runs_and_too_few_pairs_are_refused(run, tmp_path):
    with pytest.raises(ConfigError, match="comes with the package, and is calibrated"):
        regard.calibrate("en-de")
    with pytest.raises(DataError, match="too few pairs"):
        regard.calibrate(run, pairs=pairs_for(tmp_path, count=1), device="cpu")
    shutil.rmtree(run / "final")
    with pytest.raises(CheckpointError, match="has not finished training"):
        regard.calibrate(run, device="cpu")
