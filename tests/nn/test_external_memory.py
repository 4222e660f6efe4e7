"""The equations of the Neural Turing Machine, with numbers that can be worked out by hand."""

import math

import pytest
import torch

from regard.data.ragged import Ragged
from regard.models.ntm import CONSTANT, SMALLEST_NORM, Ntm
from regard.nn.external_memory import content_weights, interpolate, read, sharpen, shift, write


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected), rtol=1e-4, atol=1e-5)


def by_content(memory, key, strength):
    weights = content_weights(
        torch.tensor([memory]), torch.tensor([[key]]), torch.tensor([[strength]]), smallest_norm=1e-4
    )
    return weights[0, 0]


def test_content_compares_directions_and_the_strength_sharpens_the_comparison():
    # The cosines are 1 and 0, whatever the lengths of the vectors.
    e = math.exp(2.0)
    close(by_content([[3.0, 0.0], [0.0, 0.5]], [2.0, 0.0], 2.0), [e / (e + 1), 1 / (e + 1)])
    close(by_content([[3.0, 0.0], [0.0, 0.5]], [2.0, 0.0], 0.0), [0.5, 0.5])
    # cos 45° = sqrt(1/2), and cos 135° is its negative.
    share = 1 / (1 + math.exp(-2 * math.sqrt(0.5)))
    close(by_content([[1.0, 1.0], [-1.0, 1.0]], [1.0, 0.0], 1.0), [share, 1 - share])


def test_an_empty_location_is_like_no_key():
    e = math.exp(1.0)
    close(by_content([[0.0, 0.0], [1.0, 0.0]], [1.0, 0.0], 1.0), [1 / (1 + e), e / (1 + e)])


def test_the_gate_chooses_between_the_step_before_and_the_content():
    before, content = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
    for gate in (0.0, 0.25, 1.0):
        close(interpolate(before, content, torch.tensor([[gate]])), [[[1 - gate, gate]]])


@pytest.mark.parametrize(
    ("shares", "moved"),
    [
        ([0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]),
        ([0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]),  # +1, around the end
        ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]),  # -1
        ([0.1, 0.7, 0.2], [0.2, 0.0, 0.1, 0.7]),
    ],
)
def test_a_shift_moves_the_weight_around_the_memory(shares, moved):
    close(shift(torch.tensor([[[0.0, 0.0, 0.0, 1.0]]]), torch.tensor([[shares]])), [[moved]])


def test_sharpening_raises_weights_to_a_power():
    weights = torch.tensor([[[0.6, 0.3, 0.1]]])
    close(sharpen(weights, torch.tensor([[1.0]])), weights)
    close(sharpen(weights, torch.tensor([[2.0]])), [[[0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46]]])


def test_reading_is_a_mean_of_locations():
    memory = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
    close(read(memory, torch.tensor([[[0.25, 0.75], [1.0, 0.0]]])), [[[2.5, 5.0], [1.0, 2.0]]])


def test_writing_erases_and_then_adds_where_the_weights_are():
    memory = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    erase, add = torch.tensor([[[1.0, 0.5]]]), torch.tensor([[[10.0, 20.0]]])
    close(write(memory, torch.tensor([[[1.0, 0.0]]]), erase, add), [[[10.0, 21.0], [3.0, 4.0]]])
    # 3 · (1 - 0.5 · 1) + 0.5 · 10 and 4 · (1 - 0.5 · 0.5) + 0.5 · 20
    close(write(memory, torch.tensor([[[0.0, 0.5]]]), erase, add), [[[1.0, 2.0], [6.5, 13.0]]])


def test_all_heads_erase_before_any_adds():
    memory = torch.tensor([[[8.0]]])
    found = write(
        memory, torch.tensor([[[1.0], [1.0]]]), torch.tensor([[[0.5], [0.5]]]), torch.tensor([[[1.0], [2.0]]])
    )
    close(found, [[[8.0 * 0.5 * 0.5 + 1.0 + 2.0]]])


def plain_loop(model, ids):
    """The logits of one sequence, with one number of the memory at a time."""
    config, logits = model.config, []
    L, M, H = config.locations, config.location_width, 2
    memory = [[CONSTANT] * M for _ in range(L)]
    weights = [[1.0] + [0.0] * (L - 1) for _ in range(H)]
    reads = model.first_reads.tanh()
    hidden, cell = torch.zeros(config.width), torch.zeros(config.width)
    for channels in model.channels(torch.tensor(ids)):
        sums = model.input(channels) + model.from_reads(reads)
        if config.controller == "lstm":
            entry, forget, candidate, leave = (sums + model.recurrent(hidden)).chunk(4)
            cell = forget.sigmoid() * cell + entry.sigmoid() * candidate.tanh()
            hidden = leave.sigmoid() * cell.tanh()
        else:
            hidden = sums.tanh()
        numbers = model.heads(hidden)
        keys, add = numbers[: 2 * M].tanh().view(2, M).tolist(), numbers[2 * M : 3 * M].tanh().tolist()
        erase, gates = numbers[3 * M : 4 * M].sigmoid().tolist(), numbers[4 * M : 4 * M + 2].sigmoid().tolist()
        rest = numbers[4 * M + 2 :]
        softplus = torch.nn.functional.softplus(rest[:4]).tolist()
        strengths, powers = softplus[:2], [1 + one for one in softplus[2:]]
        shares = rest[4:].view(2, 3).softmax(dim=-1).tolist()
        for head in range(H):
            scores = []
            for row in memory:
                product = sum(k * m for k, m in zip(keys[head], row, strict=True))
                norms = math.hypot(*keys[head]) * math.hypot(*row, SMALLEST_NORM)
                scores.append(math.exp(strengths[head] * product / norms))
            mixed = [
                gates[head] * score / sum(scores) + (1 - gates[head]) * old
                for score, old in zip(scores, weights[head], strict=True)
            ]
            back, stay, on = shares[head]
            moved = [back * mixed[(i + 1) % L] + stay * mixed[i] + on * mixed[i - 1] for i in range(L)]
            raised = [one ** powers[head] for one in moved]
            weights[head] = [one / sum(raised) for one in raised]
        reads = torch.tensor([sum(weights[0][i] * memory[i][m] for i in range(L)) for m in range(M)])
        for i in range(L):
            w = weights[1][i]
            memory[i] = [memory[i][m] * (1 - w * erase[m]) + w * add[m] for m in range(M)]
        logits.append(model.output(torch.cat([hidden, reads])))
    return torch.stack(logits)


@pytest.mark.parametrize("controller", ["feed-forward", "lstm"])
@torch.no_grad()
def test_the_model_computes_what_a_plain_loop_computes(controller):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Ntm(input_width=4, output_width=3, width=8, locations=5, location_width=3, controller=controller)
        for parameter in model.parameters():
            parameter.normal_()
    sequences = [[5, 9, 8, 0, 0], [3, 8, 0]]
    found = model.logits(Ragged.from_lists(sequences)).values.split([5, 3])
    for one, ids in zip(found, sequences, strict=True):
        torch.testing.assert_close(one, plain_loop(model, ids), rtol=1e-3, atol=1e-4)
