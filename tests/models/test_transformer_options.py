"""Options of the Transformer that models of other toolkits need, each by what it computes."""

import math

import pytest
import torch

from regard.data.batch import make_batch
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.models.cmlm import Cmlm
from regard.models.nat import Nat
from regard.models.transformer import Transformer
from regard.nn.cross_entropy import cross_entropy, linear_cross_entropy
from regard.nn.feedforward import FeedForward
from regard.nn.norms import Norm
from regard.nn.positions import Positions, sinusoids
from regard.text.tokenizer import BOS, EOS

SIZES = {"source_size": 11, "target_size": 11}
SMALL = {"width": 8, "num_layers": 1, "num_heads": 2, "hidden": 12, "dropout": 0.0}


def small(**options):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Transformer(**SMALL, **options, **SIZES).eval()


def logits(model, source=(5, 6, EOS), target=(BOS, 7, 8)):
    with torch.no_grad():
        return model.decode(Ragged.from_lists([list(target)]), model.encode(Ragged.from_lists([list(source)])))


def test_halves_are_the_papers_sinusoids_with_all_sines_first():
    paper, halves = sinusoids(50, 8), sinusoids(50, 8, kind="sinusoid-halves")
    assert torch.equal(halves, torch.cat([paper[:, 0::2], paper[:, 1::2]], dim=1))


def test_log_sinusoids_end_at_one_ten_thousandth():
    table = sinusoids(3, 6, kind="sinusoid-log")
    # Frequencies of three sines are 1, 1/100 and 1/10000.
    expected = [math.sin(2.0), math.sin(0.02), math.sin(0.0002), math.cos(2.0), math.cos(0.02), math.cos(0.0002)]
    assert table[2].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["sinusoid", "sinusoid-halves", "sinusoid-log"])
def test_positions_may_begin_with_another_number_also_after_the_table_has_grown(kind):
    positions, places = Positions(kind, 8, max_positions=4, first=2), torch.arange(9)
    added = positions.add(torch.zeros(9, 8), places, 9)
    assert torch.equal(added, sinusoids(11, 8, kind=kind)[2:])


def test_an_output_bias_is_added_to_the_logits():
    model = small(output_bias=True)
    before = logits(model)
    bias = torch.arange(11.0)
    with torch.no_grad():
        model.output_bias.copy_(bias)
    torch.testing.assert_close(logits(model), before + bias)


@pytest.mark.parametrize("packed", [False, True])
def test_search_adds_the_output_bias(packed):
    model = small(output_bias=True)
    with torch.no_grad():
        model.output_bias.normal_()
    fast = model.for_inference() if packed else model
    expected = logits(model)[0]
    with torch.inference_mode():
        state = fast.start(fast.encode(Ragged.from_lists([[5, 6, EOS], [5, 6, EOS]])), beams=1)
        found = fast.step(torch.tensor([BOS, BOS]), state)
    torch.testing.assert_close(found, expected.expand(2, -1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loss_with_a_bias_and_its_gradients_are_those_of_the_logits(smoothing, dtype, generator):
    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    hidden, weight, bias = draw(6, 4), draw(9, 4), draw(9)
    labels = torch.tensor([0, 3, -1, 8, 3, 1])
    expected = cross_entropy(hidden @ weight.t() + bias, labels, smoothing=smoothing)
    slopes = torch.autograd.grad(expected, (hidden, weight, bias))
    found = linear_cross_entropy(hidden, weight, labels, smoothing=smoothing, bias_V=bias)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(2 * found, (hidden, weight, bias)), slopes, strict=True):
        torch.testing.assert_close(one, 2 * other)


def test_a_decoder_may_begin_with_the_embedding_of_another_id():
    own, other = small(), small(start_id=EOS)
    assert not torch.allclose(logits(own), logits(other))
    with torch.no_grad():
        own.target_embedding[BOS] = other.target_embedding[EOS]
    # The output layer is tied: column BOS has changed with the row.
    columns = [column for column in range(11) if column != BOS]
    assert torch.equal(logits(own)[:, columns], logits(other)[:, columns])


def test_a_start_that_is_no_id_is_refused():
    with pytest.raises(ConfigError, match="start_id is 11, but there are 11 ids"):
        small(start_id=11)


def test_an_encoder_may_leave_out_the_end_of_a_source():
    own, other = small(), small(source_eos=False)
    torch.testing.assert_close(logits(own, source=(5, 6)), logits(other, source=(5, 6, EOS)))
    # What has only an end keeps it: attention needs something to look at.
    torch.testing.assert_close(logits(own, source=(EOS,)), logits(other, source=(EOS,)))
    assert own.static_shapes and not other.static_shapes


def test_embeddings_may_be_left_as_they_are():
    scaled, plain = small(), small(scale_embeddings=False, tie="none")
    with torch.no_grad():
        for name, parameter in scaled.named_parameters():
            dict(plain.named_parameters())[name].copy_(parameter)
        plain.source_embedding.copy_(scaled.source_embedding * math.sqrt(8))
        plain.target_embedding.copy_(scaled.target_embedding * math.sqrt(8))
        plain.output.copy_(scaled.target_embedding)
    torch.testing.assert_close(logits(plain), logits(scaled))


def test_a_stack_ends_in_a_norm_if_norms_come_first_or_if_asked():
    ends = {
        (order, wanted): [
            name for name, _ in small(norm_order=order, final_norm=wanted).named_parameters() if "der_norm" in name
        ]
        for order in ("pre", "post")
        for wanted in (None, True, False)
    }
    assert {key for key, names in ends.items() if len(names) == 4} == {("pre", None), ("pre", True), ("post", True)}
    assert all(len(names) in (0, 4) for names in ends.values())


def test_the_epsilon_of_norms_is_added_to_the_variance():
    x = torch.tensor([[1.0, -1.0]])  # its variance is 1
    assert Norm("layer", 2, eps=3.0)(x).tolist() == [[0.5, -0.5]]
    model = small(norm_eps=0.5)
    assert {one.eps for one in model.modules() if isinstance(one, Norm)} == {0.5}


def test_silu_is_x_times_its_sigmoid():
    layer = FeedForward(1, 1, "silu")
    with torch.no_grad():
        layer.inner.weight.fill_(1.0)
        layer.outer.weight.fill_(1.0)
    assert layer(torch.tensor([[2.0]])).item() == pytest.approx(2 / (1 + math.exp(-2)))


def test_every_projection_of_attention_may_have_a_bias():
    names = {name for name, _ in small(attention_bias=True).named_parameters()} - {
        name for name, _ in small().named_parameters()
    }
    assert names == {
        "encoder.0.attention.project.bias",
        "encoder.0.attention.output.bias",
        "decoder.0.attention.project.bias",
        "decoder.0.attention.output.bias",
        "decoder.0.cross_attention.query.bias",
        "decoder.0.cross_attention.memory.bias",
        "decoder.0.cross_attention.output.bias",
    }


def test_a_start_is_for_models_that_output_token_by_token():
    with pytest.raises(ConfigError, match="start_id and source_eos are for models that output token by token"):
        Cmlm(**SMALL, start_id=EOS, **SIZES)


def test_training_lowers_the_loss_of_a_model_with_all_options():
    options = {"attention_bias": True, "output_bias": True, "feed_forward": "silu", "positions": "sinusoid-log"}
    model = small(**options, start_id=EOS, first_position=2, scale_embeddings=False).train()
    batch = make_batch([[5, 6], [7]], [[8, 9, 3], [4]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("make", [Transformer, Nat])
def test_a_gain_scales_the_initial_weights_that_add_to_the_residual_stream(make):
    models = []
    for gain in (1.0, 0.5):
        torch.manual_seed(1)
        models.append(make(**SMALL, **SIZES, sublayer_gain=gain))
    scaled = set()
    for (name, one), half in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        if torch.equal(one, half):
            continue
        torch.testing.assert_close(half, one / 2)
        scaled.add(name)
    # W^O of each attention and W2 of each feed-forward layer; nothing else.
    own = ["encoder.0.attention", "decoder.0.attention", "decoder.0.cross_attention"]
    own += ["decoder.0.positional"] if make is Nat else []
    feed_forward = {f"{side}.0.feed_forward.outer.weight" for side in ("encoder", "decoder")}
    assert scaled == {f"{name}.output.weight" for name in own} | feed_forward


def test_a_gain_of_zero_is_refused():
    with pytest.raises(ConfigError, match=r"sublayer_gain is 0\.0; it must be above 0"):
        small(sublayer_gain=0)
