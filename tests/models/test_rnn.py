"""Recurrent models: packing, and attention with its window, checked by hand."""

import numpy as np
import pytest
import torch

from regard.data.batch import ADDED, collate_pairs
from regard.data.batch_sampler import Position
from regard.data.columns import Column, pair_columns
from regard.data.packing import PackedLoader
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models import build_model
from regard.nn.alignment import Alignment, Annotations
from regard.nn.dropout import Noise
from regard.nn.recurrent import Recurrent, TimeOrder, ends_of, top


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_ragged_batch_gives_what_pytorch_gives_for_each_sentence_alone(kind, generator):
    layers = Recurrent(kind, 4, 6, 2, dropout=0.0, noise=Noise(), bidirectional=True)
    x = torch.randn(9, 4, generator=generator)
    layout = Layout([2, 5, 1, 1])
    together = layers(x, TimeOrder(layout))
    last = ends_of(together, layout, bidirectional=True)
    for row, (part, out) in enumerate(zip(x.split([2, 5, 1, 1]), together.split([2, 5, 1, 1]), strict=True)):
        alone = part
        for layer in layers.layers:
            alone, final = layer(alone)
        torch.testing.assert_close(out, alone)
        hidden = final[0] if kind == "lstm" else final
        torch.testing.assert_close(last[row], hidden.flatten())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_single_steps_give_what_the_layer_gives_at_once(kind, generator):
    layers = Recurrent(kind, 4, 6, 2, dropout=0.0, noise=Noise())
    x = torch.randn(7, 4, generator=generator)
    at_once = layers(x, TimeOrder(Layout([7])))
    state = torch.zeros(2, layers.num_parts, 1, 6)
    for place in range(7):
        out, state = layers.step(x[place : place + 1], state)
        torch.testing.assert_close(out[0], at_once[place])
    torch.testing.assert_close(top(state), at_once[-1:])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(
    "table",
    [
        {"attention": "none", "bidirectional": False},
        {"attention": "general", "input_feeding": False},
        {"attention": "additive", "num_layers": 2},
        {"attention": "concat", "window": 2},
    ],
    ids=lambda table: table["attention"],
)
def test_a_static_batch_gives_the_loss_and_the_gradients_of_a_ragged_one(table, cell):
    """Dummy tokens and empty sentences at the end of a packed batch change nothing."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 12, (2, 8))
    ids = [random.integers(3, 50, one.sum()).astype(np.int32) for one in lengths]
    sides = pair_columns(
        *(Column(one, np.concatenate([[0], of.cumsum()])) for one, of in zip(ids, lengths, strict=True))
    )
    loader = PackedLoader(
        lambda epoch: sides, collate_pairs, added=ADDED, budget=128, max_length=20, seed=1, similar_lengths=True
    )
    packed, _ = next(loader.batches(Position()))
    assert packed.num_tokens < packed.shape.tokens("target") and packed.shape.examples > 9
    torch.manual_seed(0)
    table = {"kind": "rnn", "width": 12, "hidden": 16, "cell": cell, "dropout": 0.0, **table}
    model = build_model(table, source_size=50, target_size=50)
    found = []
    for batch in (packed.unpack(), collate_pairs(sides, loader.plan(0)[1][0])):
        model.zero_grad()
        loss = model(batch, smoothing=0.1)
        loss.backward()
        found.append((loss.detach(), {name: one.grad.clone() for name, one in model.named_parameters()}))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def source_of(lengths, width, generator):
    return Ragged(torch.randn(sum(lengths), width, generator=generator), Layout(lengths))


def test_dot_attention_by_hand():
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    source = Annotations.made_of(keys, torch.tensor([[3.0, 0.0], [0.0, 5.0]]), Layout([2]))
    # Scores (log 3, 0): weights 3/4 and 1/4.
    read, weights = Alignment("dot", 2, 2)(torch.tensor([[[3.0, 1.0]]]).log(), source)
    torch.testing.assert_close(weights, torch.tensor([[[0.75, 0.25]]]))
    torch.testing.assert_close(read, torch.tensor([[[2.25, 1.25]]]))


def test_additive_attention_is_bahdanaus_formula(generator):
    alignment = Alignment("additive", 4, 4)
    source, state = source_of([3, 2], 4, generator), torch.randn(2, 1, 4, generator=generator)
    _, weights = alignment(state, alignment.annotate(source))
    for row, annotations in enumerate(source.split()):
        ws = alignment.of_state.weight @ state[row, 0] + alignment.of_state.bias
        scores = torch.stack([alignment.v @ torch.tanh(ws + alignment.of_source.weight @ h) for h in annotations])
        torch.testing.assert_close(weights[row, 0, : len(annotations)], scores.softmax(0))
        assert not weights[row, 0, len(annotations) :].any()


def test_a_local_window_attends_around_its_predicted_position_only():
    alignment = Alignment("dot", 2, 2, window=2)
    source = Annotations.made_of(torch.zeros(9, 2), torch.zeros(9, 2), Layout([9]))
    # Untrained, the predicted position is the middle, 4. Equal scores give 1/5 each, times a bell of width 1.
    _, weights = alignment(torch.zeros(1, 1, 2), source)
    expected = torch.tensor([0, 0, 2.0, 1.0, 0.0, 1.0, 2.0, 0, 0]).pow(2).neg().div(2).exp() / 5
    expected[[0, 1, 7, 8]] = 0.0
    torch.testing.assert_close(weights[0, 0], expected)


def test_without_attention_only_the_summary_reaches_the_decoder():
    table = {"kind": "rnn", "width": 8, "hidden": 8, "attention": "none"}
    model = build_model(table, source_size=9, target_size=9).eval()
    memory = model.encode(Ragged.from_lists([[4, 5, 2]]))
    target = Ragged.from_lists([[1, 4]])
    before = model.decode(target, memory)
    memory.source.values.data.zero_()
    assert torch.equal(before, model.decode(target, memory))


def test_an_odd_hidden_width_is_refused():
    with pytest.raises(ConfigError, match="hidden is 7"):
        build_model({"kind": "rnn", "hidden": 7}, source_size=9, target_size=9)


@pytest.mark.slow
def test_the_presets_have_the_originals_sizes():
    with torch.device("meta"):  # without their 100 million numbers
        bahdanau, luong = (
            build_model({"kind": "rnn", "preset": preset}, source_size=9, target_size=9)
            for preset in ("bahdanau", "luong")
        )
    assert bahdanau.encoder.layers[0].hidden_size == 1000  # each direction
    assert bahdanau.decoder.layers[0].hidden_size == 1000
    assert bahdanau.source_embedding.shape == (9, 620)
    assert len(luong.encoder.layers) == 4 and not luong.encoder.layers[0].bidirectional
