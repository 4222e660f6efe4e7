"""Laws of training and stepping that hold for every model family."""

from dataclasses import replace

import pytest
import torch

from regard.config import TrainConfig
from regard.data.ragged import Layout, Ragged
from regard.models.base import Model
from regard.training.data_parallel import DistributedModel
from regard.training.optimizers import CapturableOptimizer
from regard.training.step import read, training_step
from tests.laws.conftest import batch_for, fitting, tables_of

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def logits(model, source, target):
    with torch.no_grad():
        return model.decode(target, model.encode(source))


def assert_same_scores(found, expected):
    """Compare logits. A batch with a longer source may have more columns, which are then impossible."""
    columns = min(found.size(-1), expected.size(-1))
    torch.testing.assert_close(found[..., :columns], expected[..., :columns], **CLOSE)
    for scores in (found, expected):
        assert (scores[..., columns:] == float("-inf")).all()


def test_no_position_sees_its_future(model, source, target):
    before = logits(model, source, target)
    changed = target.values.clone()
    changed[2:4] = torch.tensor(fitting(model, [10, 10], 5))  # the last two tokens of the first sentence
    after = logits(model, source, Ragged(changed, target.layout))
    assert torch.equal(before[:2], after[:2])  # bit-identical, not merely close
    assert not torch.allclose(before[2:4], after[2:4])
    assert torch.equal(before[4:], after[4:])


def test_a_sentence_does_not_depend_on_its_neighbours(model, source, target):
    together = Ragged(logits(model, source, target), target.layout).split()
    for number, (s, t) in enumerate(zip(source.split(), target.split(), strict=True)):
        alone = logits(model, Ragged.from_lists([s.tolist()]), Ragged.from_lists([t.tolist()]))
        assert_same_scores(together[number], alone)


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
    repeated = [ids.tolist() for ids in source.split() for _ in range(beams)]
    drawn = torch.randint(3, 11, (3 * beams, 5), generator=torch.Generator().manual_seed(5)).tolist()
    tokens = [[model.bos, *fitting(model, ids, len(s))] for s, ids in zip(repeated, drawn, strict=True)]
    at_once = logits(model, Ragged.from_lists(repeated), Ragged.from_lists(tokens)).view(3 * beams, 6, -1)
    tokens = torch.tensor(tokens)
    with torch.no_grad():
        state = model.start(model.encode(source), beams=beams)
        torch.testing.assert_close(model.step(tokens[::beams, 0], state), at_once[::beams, 0], **CLOSE)
        state.expand_beams()
        for place in range(1, 6):
            torch.testing.assert_close(model.step(tokens[:, place], state), at_once[:, place], **CLOSE)


def test_reordered_rows_continue_the_rows_they_name(model, source):
    beams = 2
    # Sentence 2 is dropped in the second reordering, and sentence 0 in the third.
    reorderings = [[1, 0, 2, 2, 5, 5], [1, 1, 3, 2], [2, 3]]
    generator = torch.Generator().manual_seed(7)
    sources = [ids.tolist() for ids in source.split()]
    prefixes = [[model.bos] for _ in range(6)]
    sentences = [0, 0, 1, 1, 2, 2]
    with torch.no_grad():
        state = model.start(model.encode(source), beams=beams)
        model.step(torch.tensor([model.bos] * 3), state)
        state.expand_beams()
        for rows in reorderings:
            state.reorder(torch.tensor(rows))
            sentences = [sentences[row] for row in rows]
            drawn = torch.randint(3, 11, (len(rows),), generator=generator).tolist()
            tokens = [fitting(model, [one], len(sources[n]))[0] for one, n in zip(drawn, sentences, strict=True)]
            prefixes = [[*prefixes[row], token] for row, token in zip(rows, tokens, strict=True)]
            stepped = model.step(torch.tensor(tokens), state)
            again = Ragged.from_lists([sources[number] for number in sentences])
            at_once = logits(model, again, Ragged.from_lists(prefixes))
            last = Ragged(at_once, Layout([len(prefix) for prefix in prefixes])).split()
            assert_same_scores(stepped, torch.stack([sentence[-1] for sentence in last]))


def test_gradients_reach_every_parameter_and_are_finite(any_model):
    batch = batch_for(any_model, [[5, 6, 7], [8, 9]], [[4, 5, 6, 7], [9, 10]])
    any_model.train()
    any_model(batch, smoothing=0.1).backward()
    for name, parameter in any_model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_the_loss_of_a_batch_is_the_sum_over_its_sentences(any_model):
    sources, targets = [[5, 6, 7], [8], [9, 3]], [[4, 5, 6, 7], [9, 10], [3]]
    together = batch_for(any_model, sources, targets)
    alone = [batch_for(any_model, [s], [t]) for s, t in zip(sources, targets, strict=True)]
    losses = [any_model(batch, smoothing=0.1) for batch in alone]
    torch.testing.assert_close(any_model(together, smoothing=0.1), sum(losses), **CLOSE)
    assert together.num_tokens == sum(batch.num_tokens for batch in alone) == together.labels.layout.total


# Each batch is cut into halves, so that both threads get the same number of them. How many a thread gets concerns no model,
# so that three batches are given to one of each family.
WITH_BATCHES = [
    pytest.param(*one.values, batches, id=f"{one.id}-{batches}", marks=one.marks)
    for one in tables_of(Model)
    for batches in ([1] if one.marks else [1, 3])
]


@pytest.mark.parametrize(("any_table", "batches"), WITH_BATCHES, indirect=["any_table"])
def test_two_threads_compute_the_gradient_that_one_computes_with_dropout_too(any_model, monkeypatch, threads, batches):
    monkeypatch.setattr("regard.data.batch.WORTH_HALVING", 2)
    model, config = any_model.train(), TrainConfig(clip_norm=0.0)
    batch = batch_for(model, [[5, 6, 7, 8], [9], [3, 4, 5, 3]], [[4, 9, 3, 3], [7, 7, 8], [5, 6]])
    ones = {name: Ragged(torch.ones_like(batch.source.values), batch.source.layout) for name in model.extras}
    extras = batch.extras or ones
    taken = [replace(batch, extras=extras)] * batches
    found = []
    for count in (1, 2, 2):
        threads(count)
        model.noise.seed(7, 3)
        gradients = GradientRecorder(model)
        (stats,) = read([training_step(DistributedModel(model, smoothing=0.1), gradients, taken, config, rate=0.0)])
        found.append((stats, gradients.seen))
    (one, alone), (two, together), (_, again) = found
    assert two.loss == pytest.approx(one.loss, rel=1e-5) and two.tokens == one.tokens == batch.num_tokens * batches
    for name, gradient in alone.items():
        torch.testing.assert_close(together[name], gradient, rtol=1e-3, atol=1e-6)
        # It does not matter which thread finishes first.
        assert torch.equal(together[name], again[name])


class GradientRecorder(CapturableOptimizer):
    """Takes the place of an optimizer, and keeps the gradients that it is given."""

    def __init__(self, model):
        super().__init__(model.parameters(), {"lr": 0.0})
        self.model = model

    def step(self, closure=None, *, excess=None, skip=None):
        found = {name: one.grad for name, one in self.model.named_parameters()}
        self.seen = {name: gradient.clone() for name, gradient in found.items() if gradient is not None}
