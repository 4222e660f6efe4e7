"""The memory of an entity network against the paper's formulas, and what its batches must not change."""

import math

import pytest
import torch

from regard.models.entnet import EntNet
from regard.models.reader import Reader
from regard.models.story_model import Story
from regard.nn.attention_log import capture_attention
from regard.nn.entities import EntityAnswer, EntityMemory
from tests.laws.conftest import story_batch


def memory(slots=3, width=4):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = EntityMemory(slots, width, init_std=0.5)
        torch.nn.init.normal_(made.slope)
    return made


def by_formula(memory, sentences):
    """Equations 2 to 5 for one story: a loop over sentences and slots."""
    slots = [key / key.square().sum().sqrt() for key in memory.keys]
    gates = []
    for s in sentences:
        gates.append([])
        for j, (w, h) in enumerate(zip(memory.keys, slots, strict=True)):
            gate = 1 / (1 + torch.exp(-(s @ h + s @ w)))
            x = memory.U @ h + memory.V @ w + memory.W @ s
            candidate = torch.where(x > 0, x, memory.slope * x)
            h = h + gate * candidate
            slots[j] = h / h.square().sum().sqrt()
            gates[-1].append(gate)
    return torch.stack(slots), torch.tensor(gates)


@torch.no_grad()
def test_the_memory_follows_the_formulas_of_the_paper():
    made, stories = memory(), torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(2))
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    with capture_attention() as log:
        found = made(stories.transpose(0, 1).contiguous(), real.t())
    for b, length in enumerate((5, 3)):
        slots, gates = by_formula(made, stories[b, :length])
        torch.testing.assert_close(found[b], slots)
        torch.testing.assert_close(log.calls[made][0][b][0, :length], gates)
    assert (log.calls[made][0][1][0, 3:] == 0).all()


@torch.no_grad()
def test_one_update_by_hand():
    made = EntityMemory(2, 2, init_std=0.0)
    made.keys.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    made.W.copy_(torch.eye(2))
    s = torch.tensor([[[0.0, math.log(3) / 2]]])
    # The second slot: s · h + s · w is ln 3, so the gate is 3/4; the first slot: 0, so 1/2.
    first, second = made(s, torch.tensor([[True]]))[0]
    up = 0.5 * math.log(3) / 2
    assert first.tolist() == pytest.approx([1 / math.hypot(1, up), up / math.hypot(1, up)])
    assert second.tolist() == pytest.approx([0, 1])


@torch.no_grad()
def test_an_answer_by_hand():
    made = EntityAnswer(2, 1, init_std=0.0)
    made.H.copy_(2 * torch.eye(2))
    made.R.copy_(torch.tensor([[1.0, 10.0]]))
    made.slope.fill_(0.5)
    slots = torch.tensor([[[1.0, 0.0], [0.0, -1.0]]])
    # q · h is ln 3 and 0: the weights are 3/4 and 1/4, u is (3/4, -1/4), and q + H u is (ln 3 + 3/2, -1/2).
    logits = made(torch.tensor([[math.log(3), 0.0]]), slots)
    assert logits.item() == pytest.approx(math.log(3) + 1.5 - 0.25 * 10)


@torch.no_grad()
@pytest.mark.parametrize("kind", [EntNet, Reader])
def test_the_order_of_sentences_matters(kind):
    with torch.random.fork_rng():
        torch.manual_seed(4)
        sizes = {"num_heads": 2, "hidden": 16, "num_layers": 1} if kind is Reader else {"slots": 3, "init_std": 0.5}
        model = kind(source_size=11, num_labels=5, width=8, **sizes).eval()
    told, other_way = [[3, 4], [5, 6], [7]], [[5, 6], [3, 4], [7]]
    one, other = model.answers(story_batch([told, other_way])).tolist()
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 1e-3


def test_a_sentence_is_the_sum_of_its_words_times_the_masks_of_their_places():
    model = EntNet(source_size=9, num_labels=2, width=2, slots=1, max_words=2)
    with torch.no_grad():
        model.embedding.copy_(torch.arange(9.0)[:, None].expand(9, 2))
        model.masks.copy_(torch.tensor([[1.0, 2.0], [10.0, 20.0], [3.0, 4.0], [5.0, 6.0]]))
    found = model._sentences(Story.of(story_batch([[[3, 4, 5], [6]], [[7], [8], [2, 3]]])))
    # The third word of a sentence shares the mask of the second; the question has the last two masks.
    expected = [[[93.0, 186.0], [18.0, 24.0], [0.0, 0.0]], [[7.0, 14.0], [8.0, 16.0], [21.0, 26.0]]]
    assert found.transpose(0, 1).tolist() == expected


def test_labels_that_are_missing_cost_nothing():
    model = EntNet(source_size=9, num_labels=3, width=4, slots=2)
    both, one = story_batch([[[3], [4]], [[5], [6]]]), story_batch([[[3], [4]]])
    both.labels.values[:] = torch.tensor([1, -1])
    one.labels.values[:] = 1
    assert model(both).item() == pytest.approx(model(one).item(), rel=1e-5)
