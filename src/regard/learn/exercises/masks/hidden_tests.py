"""The hidden tests of the exercise masks."""

import torch

from regard.learn.expecting import Program, expect


def test_causal(own: Program) -> None:
    """A position sees itself and what is before it."""
    expected = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    expect(own.causal_mask(3), expected, given="causal_mask(3)")


def test_one_position(own: Program) -> None:
    """A single position sees itself: otherwise its softmax would be over nothing."""
    expect(own.causal_mask(1), torch.tensor([[True]]), given="causal_mask(1)")


def test_padding(own: Program) -> None:
    """Padding is hidden as a key, with one row that is the same for every query."""
    expected = torch.tensor([[[True, True, False]], [[True, False, False]]])
    expect(
        own.padding_mask(torch.tensor([[7, 8, 0], [9, 0, 0]]), 0),
        expected,
        given="ids = [[7, 8, 0], [9, 0, 0]], pad = 0",
    )


def test_other_padding(own: Program) -> None:
    """The id of padding is an argument, and 0 may be a word."""
    found = own.padding_mask(torch.tensor([[0, 5, 1]]), 1)
    expect(found, torch.tensor([[[True, True, False]]]), given="ids = [[0, 5, 1]], pad = 1")


def test_both(own: Program) -> None:
    """The decoder sees neither later positions nor padding."""
    expected = torch.tensor([[[True, False, False], [True, True, False], [True, True, False]]])
    expect(own.decoder_mask(torch.tensor([[7, 8, 0]]), 0), expected, given="decoder_mask(ids = [[7, 8, 0]], pad = 0)")


def test_padding_on_the_left(own: Program) -> None:
    """Padding in front is hidden too; what comes later stays hidden."""
    expected = torch.tensor([[[False, False, False], [False, True, False], [False, True, True]]])
    expect(own.decoder_mask(torch.tensor([[0, 7, 8]]), 0), expected, given="decoder_mask(ids = [[0, 7, 8]], pad = 0)")


def test_sentences_differ(own: Program) -> None:
    """Each sentence of a batch has its own mask."""
    found = own.decoder_mask(torch.tensor([[7, 8], [9, 0]]), 0)
    expected = torch.tensor([[[True, False], [True, True]], [[True, False], [True, False]]])
    expect(found, expected, given="decoder_mask(ids = [[7, 8], [9, 0]], pad = 0)")
