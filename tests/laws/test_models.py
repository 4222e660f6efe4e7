"""Laws that hold for every model family."""

from dataclasses import replace

import pytest
import torch

from regard.config import TrainConfig
from regard.data.collate import make_batch
from regard.data.ragged import Ragged
from regard.training.adam import CapturableOptimizer
from regard.training.data_parallel import DistributedModel
from regard.training.step import read, training_step

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def logits(model, source, target):
    with torch.no_grad():
        return model.decode(target, model.encode(source))


def test_no_position_sees_its_future(model, source, target):
    before = logits(model, source, target)
    changed = target.values.clone()
    changed[2:4] = torch.tensor([10, 10])  # the last two tokens of the first sentence
    after = logits(model, source, Ragged(changed, target.layout))
    assert torch.equal(before[:2], after[:2])  # bit-identical, not merely close
    assert not torch.allclose(before[2:4], after[2:4])
    assert torch.equal(before[4:], after[4:])


def test_a_sentence_does_not_depend_on_its_neighbours(model, source, target):
    together = Ragged(logits(model, source, target), target.layout).split()
    for number, (s, t) in enumerate(zip(source.split(), target.split(), strict=True)):
        alone = logits(model, Ragged.from_lists([s.tolist()]), Ragged.from_lists([t.tolist()]))
        torch.testing.assert_close(together[number], alone, **CLOSE)


def test_the_order_of_sentences_changes_nothing(model, source, target):
    order = [2, 0, 1]
    forward = Ragged(logits(model, source, target), target.layout).split()
    s = Ragged.from_lists([source.split()[i].tolist() for i in order])
    t = Ragged.from_lists([target.split()[i].tolist() for i in order])
    shuffled = Ragged(logits(model, s, t), t.layout).split()
    for place, number in enumerate(order):
        torch.testing.assert_close(shuffled[place], forward[number], **CLOSE)


@pytest.mark.parametrize("beams", [1, 3])
def test_one_token_at_a_time_equals_all_at_once(model, source, beams):
    tokens = torch.randint(3, 11, (3 * beams, 6), generator=torch.Generator().manual_seed(5))
    tokens[:, 0] = 1
    repeated = Ragged.from_lists([ids.tolist() for ids in source.split() for _ in range(beams)])
    whole = logits(model, repeated, Ragged.from_lists(tokens.tolist())).view(3 * beams, 6, -1)
    with torch.no_grad():
        state = model.start(model.encode(source), beams=beams)
        torch.testing.assert_close(model.step(tokens[::beams, 0], state), whole[::beams, 0], **CLOSE)
        state.expand_beams()
        for place in range(1, 6):
            torch.testing.assert_close(model.step(tokens[:, place], state), whole[:, place], **CLOSE)


def test_reordered_rows_go_on_as_if_they_had_always_been_there(model, source):
    beams = 2
    rows_of_time = [
        [0, 1, 2, 3, 4, 5],
        [1, 0, 2, 2, 5, 5],
        [1, 1, 3, 2],
        [3, 2],
    ]  # two sentences are dropped on the way
    generator = torch.Generator().manual_seed(7)
    prefixes = [[1] for _ in range(6)]
    sentences = [0, 0, 1, 1, 2, 2]
    with torch.no_grad():
        memory = model.encode(source)
        state = model.start(memory, beams=beams)
        model.step(torch.tensor([1] * 3), state)
        state.expand_beams()
        for rows in rows_of_time[1:]:
            if len(rows) == 2:
                rows = [2, 3]
            state.reorder(torch.tensor(rows))
            tokens = torch.randint(3, 11, (len(rows),), generator=generator)
            prefixes = [[*prefixes[row], token] for row, token in zip(rows, tokens.tolist(), strict=True)]
            sentences = [sentences[row] for row in rows]
            stepped = model.step(tokens, state)
            again = Ragged.from_lists([source.split()[number].tolist() for number in sentences])
            whole = Ragged(logits(model, again, Ragged.from_lists(prefixes)), Ragged.from_lists(prefixes).layout)
            expected = torch.stack([sentence[-1] for sentence in whole.split()])
            torch.testing.assert_close(stepped, expected, **CLOSE)


def test_gradients_reach_every_parameter_and_are_finite(any_model):
    batch = make_batch([[5, 6, 7], [8, 9]], [[4, 5, 6, 7], [9, 10]])
    any_model.train()
    any_model(batch, smoothing=0.1).backward()
    for name, parameter in any_model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_the_loss_of_a_batch_is_the_sum_over_its_sentences(any_model):
    sources, targets = [[5, 6, 7], [8], [9, 3]], [[4, 5, 6, 7], [9, 10], [3]]
    together, alone = (
        make_batch(sources, targets),
        [make_batch([s], [t]) for s, t in zip(sources, targets, strict=True)],
    )
    losses = [any_model(batch, smoothing=0.1) for batch in alone]
    torch.testing.assert_close(any_model(together, smoothing=0.1), sum(losses), **CLOSE)
    # Each sentence has an EOS.
    assert together.num_tokens == sum(batch.num_tokens for batch in alone) == 4 + 2 + 1 + 3


@pytest.mark.parametrize("batches", [1, 3])  # each is halved, so that one thread gets as many as the other
def test_two_threads_find_the_gradient_that_one_finds_with_dropout_too(any_model, monkeypatch, threads, batches):
    monkeypatch.setattr("regard.data.batch.WORTH_HALVING", 2)
    model, config = any_model.train(), TrainConfig(clip_norm=0.0)
    pairs = [[[5, 6, 7, 8], [9], [3, 4, 5, 3]], [[4, 9, 3, 3], [7, 7, 8], [5, 6]]]
    taken = [make_batch(*pairs)] * batches
    if model.extras:
        extras = {
            name: Ragged(torch.ones_like(taken[0].source.values), taken[0].source.layout) for name in model.extras
        }
        taken = [replace(batch, extras=extras) for batch in taken]
    found = []
    for count in (1, 2, 2):
        threads(count)
        model.noise.seed(7, 3)
        gradients = Gradients(model)
        (cost,) = read([training_step(DistributedModel(model, smoothing=0.1), gradients, taken, config, rate=0.0)])
        found.append((cost, gradients.seen))
    (one, alone), (two, together), (_, again) = found
    assert two.loss == pytest.approx(one.loss, rel=1e-5) and two.tokens == one.tokens == 12 * batches
    for name, gradient in alone.items():
        torch.testing.assert_close(together[name], gradient, rtol=1e-3, atol=1e-6)
        assert torch.equal(together[name], again[name])  # it does not matter who is done first


class Gradients(CapturableOptimizer):
    """An optimizer that keeps the gradients and changes nothing."""

    def __init__(self, model):
        super().__init__(model.parameters(), {"lr": 0.0})
        self.model = model

    def step(self, closure=None, *, excess=None, skip=None):
        found = {name: one.grad for name, one in self.model.named_parameters()}
        self.seen = {name: gradient.clone() for name, gradient in found.items() if gradient is not None}
