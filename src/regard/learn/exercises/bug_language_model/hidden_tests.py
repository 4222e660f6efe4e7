"""The hidden tests of the exercise bug_language_model."""

import math

import torch
from torch import Tensor

from regard.learn.expecting import Program, expect, expect_that

BOS, V, WIDTH = 0, 6, 16


def parameters(own: Program) -> dict[str, Tensor]:
    return own.make_parameters(V, WIDTH, torch.Generator().manual_seed(1))


def test_labels(own: Program) -> None:
    """The model reads bos and the words before, and predicts the word at each position."""
    found = own.inputs_and_labels(torch.tensor([[3, 4, 5]]), BOS)
    expect(found, (torch.tensor([[0, 3, 4]]), torch.tensor([[3, 4, 5]])), given="ids = [[3, 4, 5]], bos = 0")


def test_next_word_is_unknown(own: Program) -> None:
    """What is predicted at a position does not depend on words behind it. Whoever sees them needs no language."""
    with torch.no_grad():
        one, other = (own.logits_of(parameters(own), torch.tensor([[0, 1, 2, last]]))[0, :3] for last in (3, 5))
    changed = [place for place in range(3) if not torch.allclose(one[place], other[place], atol=1e-5)]
    found = f"the logits at position {changed[0]} change" if changed else "no change"
    given = "inputs [[0, 1, 2, 3]] and [[0, 1, 2, 5]]; positions 0 to 2"
    expect_that(not changed, given=given, expected="the same logits for both", found=found)


def test_past_words_count(own: Program) -> None:
    """What is predicted does depend on the words before."""
    with torch.no_grad():
        one, other = (own.logits_of(parameters(own), torch.tensor([[0, first, 2]]))[0, 2] for first in (1, 5))
    same = torch.allclose(one, other, atol=1e-5)
    given = "inputs [[0, 1, 2]] and [[0, 5, 2]]; the last position"
    expect_that(not same, given=given, expected="other logits", found="the same logits")


def test_noise_cannot_be_learnt(own: Program) -> None:
    """Random words cannot be predicted: after training, new ones cost ln 5 each or more, and not less."""
    generator = torch.Generator().manual_seed(2)
    model = parameters(own)
    adam = torch.optim.Adam(list(model.values()), lr=0.01)
    for _ in range(150):
        loss = own.loss_of(model, torch.randint(1, V, (64, 8), generator=generator), BOS)
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        cost = own.loss_of(model, torch.randint(1, V, (500, 8), generator=generator), BOS).item()
    given = "150 steps on random words, and 500 new sentences of 8 random words out of 5"
    expect_that(cost > math.log(5) - 0.05, given=given, expected="a loss of ln 5 = 1.61", found=f"{cost:.2f}")


def test_writing(own: Program) -> None:
    """A model that has learnt 1 2 3 4 5 continues it from bos alone."""
    model = parameters(own)
    adam = torch.optim.Adam(list(model.values()), lr=0.03)
    for _ in range(120):
        loss = own.loss_of(model, torch.tensor([[1, 2, 3, 4, 5]]), BOS)
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        found = own.continue_text(model, 5, BOS)
    expect(found, [1, 2, 3, 4, 5], given="120 steps on the sentence 1 2 3 4 5, then continue_text(length = 5)")
