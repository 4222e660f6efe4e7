"""A law of static shapes: a packed batch has the loss and the gradients of the ragged one."""

from dataclasses import replace

import pytest
import torch

from regard.data.batch import FERTILITIES
from regard.data.batch_structure import BatchStructure, Count, Field, LayoutStructure, fields_of
from regard.data.packed_rows import pack
from regard.data.packed_shapes import PackedShape
from regard.data.ragged import Ragged
from regard.data.word_alignment import spread_evenly
from tests.laws.conftest import batch_for, small

SOURCES, TARGETS = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2]], [[4, 9, 3], [7, 7, 8, 3, 6], [5]]


def shape_holding(batch, *, spare):
    """A shape with room for this batch, a dummy sequence, and `spare` more of everything. Equal numbers stay equal."""
    layouts, fields = {}, []
    for name, values, extra in fields_of(batch):
        layout = layouts.setdefault(id(values.layout), (len(layouts), values.layout))[0]
        kind = "float" if values.values.is_floating_point() else "bool" if values.values.dtype == torch.bool else "int"
        fields.append(Field(name, layout, tuple(values.values.shape[1:]), kind, extra))
    found = [layout for _, layout in layouts.values()]
    counted = (LayoutStructure(Count((str(one.total),), 0), Count((str(one.num_sentences),), 0)) for one in found)
    structure = BatchStructure(tuple(fields), tuple(counted), ())
    numbers = [int(count.columns[0]) for count in structure.counts]
    sizes = [n + spare + dummy for n, dummy in zip(numbers, structure.counts_sequences, strict=True)]
    return PackedShape(structure, tuple(sizes), 0, tuple(layout.longest + bool(spare) for layout in found))


def loss_and_gradients(model, batch):
    model.zero_grad()
    loss = model(batch, smoothing=0.1)
    loss.backward()
    return loss.detach(), {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("spare", [0, 5])
def test_a_packed_batch_has_the_loss_and_the_gradients_of_the_ragged_one(any_table, spare):
    model = small(any_table)
    if not model.static_shapes:
        pytest.skip("this variant needs the lengths on the host")
    batch = batch_for(model, SOURCES, TARGETS)
    if FERTILITIES in model.extras:
        fertilities = Ragged(spread_evenly(batch.source.layout, batch.target.layout), batch.source.layout)
        batch = replace(batch, extras={FERTILITIES: fertilities})
    packed = pack(batch, shape_holding(batch, spare=spare)).unpack()
    with pytest.raises(AssertionError, match="not known on the host"):
        _ = packed.source.layout.lengths
    torch.testing.assert_close(
        loss_and_gradients(model, packed), loss_and_gradients(model, batch), rtol=1e-4, atol=1e-5
    )
