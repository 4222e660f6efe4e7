"""The recurrent pointer network on packed batches: dummy tokens change neither the loss nor the gradients."""

import pytest
import torch

from regard.data.batch import NO_LABEL, Batch, shift_right
from regard.data.ragged import Ragged, StaticLayout
from regard.models.pointer import END
from regard.models.pointer_lstm import PointerLstm

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def packed(one, total, sequences, dummy):
    """The same values, with dummies behind them: a sequence of their own, at position 0; then empty sequences."""
    layout, extra = one.layout, total - one.layout.total
    positions = torch.cat([layout.positions, torch.zeros(extra, dtype=torch.int64)]).int()
    numbers = torch.cat([layout.sentences, torch.full((extra,), layout.num_sentences)]).int()
    offsets = torch.cat([layout.offsets, torch.full((sequences - layout.num_sentences,), total)]).int()
    fill = torch.full((extra, *one.values.shape[1:]), dummy, dtype=one.values.dtype)
    return Ragged(torch.cat([one.values, fill]), StaticLayout(positions, numbers, offsets, longest=layout.longest + 1))


@pytest.mark.parametrize("outputs", ["any", "distinct", "permutation"])
def test_static_shapes_with_dummies_have_the_same_loss_and_gradients(outputs):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = PointerLstm(input_width=2, width=8, hidden=12, frequencies=2, outputs=outputs)
        points = torch.rand(7, 2)
    labels = Ragged.from_lists([[3, 1, 2, 4, END], [2, 3, 1, END]])
    source = Ragged(points, Ragged.from_lists([[0] * 4, [0] * 3]).layout)
    batch = Batch(source, shift_right(labels, END), labels, labels.layout.total)
    same = Batch(
        packed(source, 10, 4, 0.0), packed(batch.target, 11, 4, END), packed(labels, 11, 4, NO_LABEL), batch.num_tokens
    )
    found = []
    for one in (batch, same):
        model.zero_grad()
        loss = model(one)
        loss.backward()
        found.append((loss, [parameter.grad.clone() for parameter in model.parameters()]))
    assert torch.isfinite(found[0][0])
    torch.testing.assert_close(found[0][0], found[1][0], **CLOSE)
    for own, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(own, other, **CLOSE)
