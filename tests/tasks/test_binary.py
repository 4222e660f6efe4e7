"""Sequences of binary vectors as text, as columns, and as outputs."""

import numpy as np
import pytest
import torch

from regard.config import Bitext, DataConfig, EvaluateConfig, Recipe
from regard.data.ragged import Ragged
from regard.errors import CheckpointError, DataError
from regard.metrics import bit_errors
from regard.models.binary import BinaryLstm, BinaryTransformer
from regard.storage.folder import Folder
from regard.tasks.binary import WANTED, BinaryCodec, BinarySequencesTask, parse
from regard.tasks.corpus import TextPairs
from regard.text.corpus import Pair

RECIPE = Recipe(name="bits", data=DataConfig(train=Bitext(generate="ntm-copy/train")), model={"kind": "ntm"})
TASK = BinarySequencesTask(RECIPE)
PAIRS = [Pair("011 100:7 . .", "11 01"), Pair("000 .", "10")]


def test_vectors_are_integers_with_their_number_above_the_bits():
    values, lengths = parse(["011 100:7 . .", "", "000 ."], 3)
    assert values.tolist() == [3, 4 + 7 * 2**16, WANTED, WANTED, 0, WANTED] and lengths.tolist() == [4, 0, 2]


@pytest.mark.parametrize("line", ["0110", "01", "0a1", "011:", "011:x", "..", "011:123456", "٠11", "011 1.0"])
def test_what_is_neither_a_vector_nor_a_dot_is_named(line):
    with pytest.raises(DataError, match=f"'{line.split()[-1]}' is neither a vector of 3 bits nor a dot"):
        parse(["000 .", line], 3)


def test_labels_are_the_wanted_vectors_and_nothing_elsewhere():
    codec = TASK.fit(TextPairs(PAIRS))
    assert codec == BinaryCodec(3, 2, 7)
    columns = TASK.encode(PAIRS, codec)
    batch = TASK.collate(columns, np.array([0, 1]))
    assert batch.source.as_lists() == [[3, 4 + 7 * 2**16, 0, 0], [0, 0]]
    assert batch.labels.as_lists() == [[-1, -1, 3, 1], [-1, 2]] and batch.num_tokens == 3
    assert batch.labels.layout is batch.source.layout


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        (Pair("011 . .", "11"), "example 1 has 2 dots but 1 output vector; each dot needs one"),
        (Pair("011 .", "."), "an output has a dot or a number"),
        (Pair("011 .", "11:3"), "an output has a dot or a number"),
    ],
)
def test_examples_that_do_not_fit_together_are_refused(pair, sentence):
    with pytest.raises(DataError, match=sentence):
        TASK.encode([pair], BinaryCodec(3, 2, 0))


def test_a_damaged_codec_is_refused(tmp_path):
    folder = Folder(tmp_path)
    BinaryCodec(3, 2, 7).save(folder)
    assert TASK.load_codec(folder) == BinaryCodec(3, 2, 7)
    for saved in ({"input_width": 99, "output_width": 2, "largest_number": 0}, {"input_width": 3}):
        folder.save_json("vectors.json", saved)
        with pytest.raises(CheckpointError, match=r"vectors.json is damaged"):
            TASK.load_codec(folder)


def test_channels_are_bits_and_a_number_of_mean_0_and_variance_1():
    model = BinaryLstm(input_width=3, output_width=2, largest_number=2, width=4)
    channels = model.channels(torch.tensor([3, 4 + (2 << 16), 4 + (1 << 16)]))
    torch.testing.assert_close(channels, torch.tensor([[0, 1, 1, 0], [1, 0, 0, 3**0.5], [1, 0, 0, 0]]))


def test_even_chances_cost_log_2_per_bit():
    model = BinaryLstm(input_width=3, output_width=2, width=4, num_layers=1)
    torch.nn.init.zeros_(model.output.weight)
    torch.nn.init.zeros_(model.output.bias)
    batch = TASK.collate(TASK.encode([Pair("011 . .", "11 01")], BinaryCodec(3, 2, 0)), np.array([0]))
    assert model(batch).item() == pytest.approx(4 * np.log(2))


def test_no_step_of_the_transformer_sees_later_ones():
    model = BinaryTransformer(input_width=3, output_width=2, width=8, num_heads=2, num_layers=2, hidden=8).eval()
    with torch.no_grad():
        before, after = (model.logits(Ragged.from_lists([ids])).values for ids in ([1, 2, 3, 0], [1, 2, 7, 7]))
    assert torch.equal(before[:2], after[:2]) and not torch.allclose(before[2:], after[2:])


def test_missing_bits_are_wrong():
    # One wrong bit, then two bits that are missing.
    value, _ = bit_errors(["01 11", "01"], ["01 10", "01 11"], ["", ""], EvaluateConfig())
    assert value == 1.5
