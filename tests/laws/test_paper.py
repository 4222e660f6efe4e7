"""`examples/paper.py`, which follows the paper line by line, and our fast Transformer are the same function.

The same weights give the same logits, the same loss and the same gradient of every weight, in float64. Sentences differ in
length, so that one model sees padding and the other does not.
"""

import importlib.util
from pathlib import Path

import pytest
import torch

from regard.data.batch import make_batch
from regard.models.encoder_decoder import TransformerConfig
from regard.models.transformer import Transformer
from regard.nn import sinusoids

PAPER = Path(__file__).parents[2] / "examples" / "paper.py"
EXACT = {"rtol": 1e-9, "atol": 1e-11}
V = 23
SIZES = {
    "base in small": {"N": 6, "d_model": 32, "d_ff": 128, "h": 8},
    "one head": {"N": 1, "d_model": 8, "d_ff": 8, "h": 1},
    "narrow heads": {"N": 2, "d_model": 12, "d_ff": 20, "h": 6},
    "no layers": {"N": 0, "d_model": 8, "d_ff": 8, "h": 2},
}
# Token ids of each sentence, without BOS and EOS.
SOURCES = [[5, 6, 7, 8, 9, 10, 11], [12], [13, 14, 15, 5], [5, 5]]
TARGETS = [[16, 17], [18, 19, 20, 21, 22, 5, 6, 7, 8], [9], [10, 11, 12, 13]]


@pytest.fixture(scope="module")
def paper():
    spec = importlib.util.spec_from_file_location("paper", PAPER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=SIZES.values(), ids=SIZES.keys())
def models(request, paper):
    """The paper's model with random weights, and ours with the same ones. Neither drops anything."""
    sizes = request.param
    with torch.random.fork_rng():
        torch.manual_seed(2)
        theirs = paper.Transformer(V, **sizes, P_drop=0.0).double()
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter += 0.1 * torch.randn(parameter.shape)  # else biases are zero and the weights of norms are one
    config = TransformerConfig(
        width=sizes["d_model"], num_layers=sizes["N"], num_heads=sizes["h"], hidden=sizes["d_ff"], dropout=0.0
    )
    ours = Transformer(config, source_size=V, target_size=V).double()
    ours.load_state_dict(in_our_names(theirs, lambda parameter: parameter.detach()))
    return theirs, ours


def in_our_names(theirs, value_of):
    """A value for each of our parameters, made of the values of the paper's parameters."""

    def stacked(*linears):
        return torch.cat([value_of(linear.weight) for linear in linears])

    values = {"target_embedding": value_of(theirs.E), "source_embedding": value_of(theirs.E)}  # one matrix in both
    for stack in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(theirs, stack)):
            own, name = layer.self_attention, f"{stack}.{number}"
            values[f"{name}.attention.project.weight"] = stacked(own.W_Q, own.W_K, own.W_V)
            values[f"{name}.attention.output.weight"] = value_of(own.W_O.weight)
            around = ["attention", "feed_forward"]
            if stack == "decoder":
                across = layer.cross_attention
                values[f"{name}.cross_attention.query.weight"] = value_of(across.W_Q.weight)
                values[f"{name}.cross_attention.memory.weight"] = stacked(across.W_K, across.W_V)
                values[f"{name}.cross_attention.output.weight"] = value_of(across.W_O.weight)
                around.insert(1, "cross_attention")
            for ours, linear in (("inner", layer.feed_forward.W_1), ("outer", layer.feed_forward.W_2)):
                values[f"{name}.feed_forward.{ours}.weight"] = value_of(linear.weight)
                values[f"{name}.feed_forward.{ours}.bias"] = value_of(linear.bias)
            for sublayer, add_norm in zip(around, layer.add_norm, strict=True):
                values[f"{name}.around_{sublayer}.norm.weight"] = value_of(add_norm.norm.weight)
                values[f"{name}.around_{sublayer}.norm.bias"] = value_of(add_norm.norm.bias)
    return values


def padded(sentences, paper):
    rows = [torch.tensor(ids) for ids in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=paper.PAD)


def inputs(paper):
    """Source, target and labels as the paper's model takes them."""
    source = padded([[*ids, paper.EOS] for ids in SOURCES], paper)
    target = padded([[paper.BOS, *ids] for ids in TARGETS], paper)
    labels = padded([[*ids, paper.EOS] for ids in TARGETS], paper)
    return source, target, labels


def test_the_same_weights_give_the_same_logits(models, paper):
    theirs, ours = models
    source, target, labels = inputs(paper)
    batch = make_batch(SOURCES, TARGETS)
    expected = theirs(source, target)[labels != paper.PAD]
    torch.testing.assert_close(ours.decode(batch.target, ours.encode(batch.source)), expected, **EXACT)
    assert expected.std() > 0.1


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_same_weights_give_the_same_loss_and_gradients(models, paper, smoothing):
    theirs, ours = models
    source, target, labels = inputs(paper)
    expected = paper.smoothed_loss(theirs(source, target), labels, epsilon_ls=smoothing)
    loss = ours(make_batch(SOURCES, TARGETS), smoothing=smoothing)
    torch.testing.assert_close(loss, expected, **EXACT)
    expected.backward()
    loss.backward()
    gradients = in_our_names(theirs, lambda parameter: parameter.grad)
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], **EXACT)
        assert parameter.grad.abs().max() > 1e-6, name


def test_every_weight_of_the_paper_is_one_of_ours(models):
    theirs, ours = models
    assert ours.num_parameters() == sum(parameter.numel() for parameter in theirs.parameters())


def test_sinusoids_are_those_of_the_paper(paper):
    assert torch.equal(sinusoids(100, 32), paper.positional_encoding(100, 32))


def test_the_program_has_at_most_200_lines():
    assert len(PAPER.read_text(encoding="utf-8").splitlines()) <= 200
