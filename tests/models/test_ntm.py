"""The Neural Turing Machine on packed batches, and its bounds."""

import pytest
import torch

from regard.data.batch import NO_LABEL, Batch
from regard.data.ragged import Layout, Ragged, StaticLayout
from regard.errors import ConfigError
from regard.models.binary import BinaryLstm
from regard.models.ntm import Ntm

SIZES = {"input_width": 4, "output_width": 3}
MODELS = {
    "feed-forward": lambda: Ntm(width=8, locations=5, location_width=3, **SIZES),
    "lstm": lambda: Ntm(width=8, locations=5, location_width=3, controller="lstm", **SIZES),
    "baseline": lambda: BinaryLstm(width=8, num_layers=2, **SIZES),
}


@pytest.mark.parametrize("kind", MODELS)
def test_dummy_tokens_and_unknown_lengths_do_not_change_loss_and_gradients(kind):
    model = MODELS[kind]()
    sequences, labels = [[5, 9, 8, 0, 0], [3, 8, 0]], [[-1, -1, -1, 5, 1], [-1, -1, 3]]
    layout = Layout([5, 3])
    plain = Batch(Ragged.from_lists(sequences), None, Ragged(torch.tensor([*labels[0], *labels[1]]), layout), 3)
    # Two dummy tokens, at position 0 of a third sentence, and an empty sentence; integers as in packed rows.
    static = StaticLayout(
        torch.tensor([0, 1, 2, 3, 4, 0, 1, 2, 0, 0], dtype=torch.int32),
        torch.tensor([0] * 5 + [1] * 3 + [2] * 2, dtype=torch.int32),
        torch.tensor([0, 5, 8, 10, 10], dtype=torch.int32),
        longest=6,
    )
    values = [
        torch.tensor([*rows[0], *rows[1], dummy, dummy]).int() for rows, dummy in ((sequences, 0), (labels, NO_LABEL))
    ]
    packed = Batch(Ragged(values[0], static), None, Ragged(values[1], static), 3)
    found = []
    for batch in (plain, packed):
        model.zero_grad()
        loss = model(batch)
        loss.backward()
        found.append((loss.detach(), [one.grad for one in model.parameters()]))
    torch.testing.assert_close(found[0], found[1])


def test_the_feed_forward_machine_of_the_paper_has_about_as_many_parameters():
    # Graves et al. 2014, table 1: 17,162 for copying. Details of the controller and the output layer may differ.
    model = Ntm(input_width=9, output_width=8, memory="learned", start="learned")
    assert 0.9 < model.num_parameters() / 17_162 < 1.1


def test_a_memory_that_is_too_large_is_refused():
    with pytest.raises(ConfigError, match="the memory has 65536 x 1024 numbers"):
        Ntm(locations=65536, location_width=1024, **SIZES)
