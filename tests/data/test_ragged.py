"""Ragged tensors: padding, unpadding, and their gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from regard.data.ragged import Layout, Ragged

LENGTHS = st.lists(st.integers(0, 5), max_size=6)


def numbered(layout, width=2):
    """Return values that are all different, so that none can be mistaken for another."""
    return torch.arange(1.0, layout.total * width + 1).view(layout.total, width)


def test_a_layout_locates_every_token():
    layout = Layout([2, 0, 3])
    assert (layout.total, layout.longest, layout.even) == (5, 3, False)
    assert layout.offsets.tolist() == [0, 2, 2, 5]
    assert layout.offsets.dtype == torch.int32
    assert layout.sentences.tolist() == [0, 0, 2, 2, 2]
    assert layout.positions.tolist() == [0, 1, 0, 1, 2]
    assert layout.slots.tolist() == [0, 1, 6, 7, 8]
    assert layout.holes.tolist() == [2, 3, 4, 5]
    assert layout.mask.tolist() == [[True, True, False], [False, False, False], [True, True, True]]


def test_a_layout_is_even_if_all_sentences_have_the_same_length():
    assert Layout([3, 3]).even
    assert Layout([4]).even
    assert not Layout([3, 2]).even
    assert not Layout([3, 0]).even


def test_padding_consists_of_copies_of_the_first_token():
    padded = Layout([1, 3]).pad(torch.tensor([10, 20, 21, 22]))
    assert padded.tolist() == [[10, 10, 10], [20, 21, 22]]


def test_an_even_batch_is_padded_without_a_copy():
    layout, values = Layout([2, 2]), torch.randn(4, 3)
    assert layout.pad(values).data_ptr() == values.data_ptr()
    assert layout.unpad(layout.pad(values)).data_ptr() == values.data_ptr()


@given(LENGTHS)
def test_padding_equals_pad_sequence_wherever_there_is_a_token(lengths):
    layout = Layout(lengths)
    values = numbered(layout)
    padded = layout.pad(values)
    assert padded.shape == (len(lengths), max(lengths, default=0), 2)
    assert torch.isfinite(padded).all()
    if lengths:
        expected = pad_sequence(values.split(lengths), batch_first=True)
        assert torch.equal(padded * layout.mask[:, :, None], expected)


@given(LENGTHS)
def test_unpadding_undoes_padding(lengths):
    layout = Layout(lengths)
    values = numbered(layout)
    assert torch.equal(layout.unpad(layout.pad(values)), values)


@given(LENGTHS)
def test_every_place_of_the_rectangle_is_either_a_token_or_a_hole(lengths):
    layout = Layout(lengths)
    places = sorted(layout.slots.tolist() + layout.holes.tolist())
    assert places == list(range(len(lengths) * max(lengths, default=0)))
    assert torch.equal(layout.sources[layout.slots], torch.arange(layout.total))


def test_no_gradient_flows_from_padding_to_the_token_that_it_copies():
    layout = Layout([1, 3])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    layout.pad(values).backward(torch.tensor([[5.0, 100.0, float("nan")], [6.0, 7.0, 8.0]]))
    assert values.grad.tolist() == [5.0, 6.0, 7.0, 8.0]


def test_unpadding_gives_padding_a_gradient_of_zero():
    layout = Layout([1, 3])
    padded = torch.ones(2, 3, requires_grad=True)
    layout.unpad(padded).backward(torch.tensor([5.0, 6.0, 7.0, 8.0]))
    assert padded.grad.tolist() == [[5.0, 0.0, 0.0], [6.0, 7.0, 8.0]]


@given(LENGTHS)
def test_the_gradients_of_pad_and_unpad_are_those_of_plain_indexing(lengths):
    layout = Layout(lengths)
    shape = (len(lengths), max(lengths, default=0), 2)
    rows, columns = layout.mask.nonzero(as_tuple=True)

    ours = numbered(layout).requires_grad_()
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * layout.mask[:, :, None]
    (layout.pad(ours).square() * weight).sum().backward()
    reference = numbered(layout).requires_grad_()
    (torch.zeros(shape).index_put((rows, columns), reference).square() * weight).sum().backward()
    assert torch.equal(ours.grad, reference.grad)

    ours = torch.ones(shape).cumsum(1).requires_grad_()
    layout.unpad(ours).square().sum().backward()
    reference = torch.ones(shape).cumsum(1).requires_grad_()
    reference[rows, columns].square().sum().backward()
    assert torch.equal(ours.grad, reference.grad)


def test_gradients_pass_gradcheck():
    layout = Layout([1, 3, 0, 2])
    values = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)

    def through(x):  # only real places count, as in attention
        return layout.unpad(layout.pad(x).square() * layout.mask[:, :, None])

    assert torch.autograd.gradcheck(through, values)
    assert torch.autograd.gradgradcheck(through, values)


def test_moving_a_layout_to_its_own_device_returns_itself():
    layout = Layout([1, 2])
    assert layout.to("cpu") is layout
    elsewhere = layout.to("meta")
    assert (elsewhere.lengths, elsewhere.device.type) == ((1, 2), "meta")


def test_lists_become_one_flat_tensor_and_split_again():
    ragged = Ragged.from_lists([[5, 6], [], [7]])
    assert ragged.values.tolist() == [5, 6, 7]
    assert ragged.values.dtype == torch.int64
    assert [part.tolist() for part in ragged.split()] == [[5, 6], [], [7]]


def test_values_that_do_not_match_the_layout_fail_an_assertion():
    with pytest.raises(AssertionError):
        Ragged(torch.zeros(4), Layout([1, 2]))
