"""`regard.nn` on its own: it equals PyTorch's modules, and padded, ragged and flat batches give the same numbers."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import regard.nn as rnn
from regard.errors import ConfigError, DataError
from regard.nn import AttentionMask, HeadShape, Layout, MultiHeadAttention, Ragged, to_padded, to_ragged
from regard.nn.feedforward import ConvFeedForward

B, T, S, D, H = 4, 7, 5, 16, 4
LENGTHS, MEMORY_LENGTHS = torch.tensor([7, 1, 4, 6]), torch.tensor([2, 5, 5, 1])
MASK, MEMORY_MASK = torch.arange(T) < LENGTHS[:, None], torch.arange(S) < MEMORY_LENGTHS[:, None]


@pytest.fixture(autouse=True)
def _float64():
    """Everything is exact enough to compare tightly, and seeded."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        yield
    torch.set_default_dtype(before)


def gradients_of(out, tensors):
    """The gradients of a weighted sum of the output, so that no two entries have the same one."""
    weight = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return torch.autograd.grad((out * weight).sum(), tensors)


# Against PyTorch


def attentions(bias):
    """Our module and PyTorch's, with the same weights."""
    ours = MultiHeadAttention(D, HeadShape(H, D // H, D // H, bias=bias))
    theirs = nn.MultiheadAttention(D, H, bias=bias, batch_first=True)
    copy_attention(theirs, ours, bias)
    return ours, theirs


def copy_attention(theirs, ours, bias):
    with torch.no_grad():
        ours.project.weight.copy_(theirs.in_proj_weight)
        ours.output.weight.copy_(theirs.out_proj.weight)
        if bias:
            for one in (theirs.in_proj_bias, theirs.out_proj.bias):
                one.normal_()
            ours.project.bias.copy_(theirs.in_proj_bias)
            ours.output.bias.copy_(theirs.out_proj.bias)


def parameters_of(ours, theirs):
    """The parameters of both modules, in the same order."""
    names = {"project.weight": "in_proj_weight", "output.weight": "out_proj.weight"}
    names |= {"project.bias": "in_proj_bias", "output.bias": "out_proj.bias"}
    found = dict(ours.named_parameters())
    return list(found.values()), [theirs.get_parameter(names[name]) for name in found]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_self_attention_equals_pytorchs(bias, causal, masked):
    ours, theirs = attentions(bias)
    x, mask = torch.randn(B, T, D, requires_grad=True), MASK if masked else None
    hidden = nn.Transformer.generate_square_subsequent_mask(T, dtype=x.dtype) if causal else None
    padding = torch.zeros(B, T).masked_fill(~MASK, float("-inf")) if masked else None
    found = ours(x, mask, causal=causal)
    expected = theirs(x, x, x, key_padding_mask=padding, attn_mask=hidden, need_weights=False)[0]
    if masked:
        assert torch.all(found[~MASK] == 0)
        expected = expected.masked_fill(~MASK[:, :, None], 0.0)  # PyTorch computes outputs for padding too
    torch.testing.assert_close(found, expected)
    our_parameters, their_parameters = parameters_of(ours, theirs)
    for one, other in zip(
        gradients_of(found, [x, *our_parameters]), gradients_of(expected, [x, *their_parameters]), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_cross_attention_equals_pytorchs(bias, masked):
    ours, theirs = attentions(bias)
    x, memory = torch.randn(B, T, D, requires_grad=True), torch.randn(B, S, D, requires_grad=True)
    found = ours(x, memory=memory, memory_mask=MEMORY_MASK if masked else None)
    padding = ~MEMORY_MASK if masked else None
    expected = theirs(x, memory, memory, key_padding_mask=padding, need_weights=False)[0]
    torch.testing.assert_close(found, expected)
    our_parameters, their_parameters = parameters_of(ours, theirs)
    ours_all, theirs_all = [x, memory, *our_parameters], [x, memory, *their_parameters]
    for one, other in zip(gradients_of(found, ours_all), gradients_of(expected, theirs_all), strict=True):
        torch.testing.assert_close(one, other)


def copy_linear(theirs, ours):
    with torch.no_grad():
        ours.weight.copy_(theirs.weight)
        ours.bias.copy_(theirs.bias)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_an_encoder_layer_equals_pytorchs(order):
    heads = HeadShape(H, D // H, D // H, bias=True)
    ours = rnn.TransformerEncoderLayer(D, heads, 32, dropout=0.0, norm_order=order)
    options = {"layer_norm_eps": 1e-6, "norm_first": order == "pre", "batch_first": True}
    theirs = nn.TransformerEncoderLayer(D, H, 32, dropout=0.0, **options)
    copy_attention(theirs.self_attn, ours.attention, bias=True)
    copy_linear(theirs.linear1, ours.feed_forward.inner)
    copy_linear(theirs.linear2, ours.feed_forward.outer)
    x = torch.randn(B, T, D)
    expected = theirs(x, src_key_padding_mask=~MASK).masked_fill(~MASK[:, :, None], 0.0)
    torch.testing.assert_close(ours(x, MASK), expected)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_a_decoder_layer_equals_pytorchs(order):
    heads = HeadShape(H, D // H, D // H, bias=True)
    ours = rnn.TransformerDecoderLayer(D, heads, 32, dropout=0.0, norm_order=order)
    options = {"layer_norm_eps": 1e-6, "norm_first": order == "pre", "batch_first": True}
    theirs = nn.TransformerDecoderLayer(D, H, 32, dropout=0.0, **options)
    copy_attention(theirs.self_attn, ours.attention, bias=True)
    across = theirs.multihead_attn
    with torch.no_grad():
        across.in_proj_bias.normal_()
        ours.cross_attention.query.weight.copy_(across.in_proj_weight[:D])
        ours.cross_attention.query.bias.copy_(across.in_proj_bias[:D])
        ours.cross_attention.memory.weight.copy_(across.in_proj_weight[D:])
        ours.cross_attention.memory.bias.copy_(across.in_proj_bias[D:])
    copy_linear(across.out_proj, ours.cross_attention.output)
    copy_linear(theirs.linear1, ours.feed_forward.inner)
    copy_linear(theirs.linear2, ours.feed_forward.outer)
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    causal = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    expected = theirs(
        x, memory, tgt_mask=causal, tgt_key_padding_mask=~MASK, memory_key_padding_mask=~MEMORY_MASK
    ).masked_fill(~MASK[:, :, None], 0.0)
    torch.testing.assert_close(ours(x, memory, MASK, MEMORY_MASK), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_equals_pytorchs(smoothing, reduction):
    logits, labels = torch.randn(B, T, 11, requires_grad=True), torch.randint(11, (B, T))
    options = {"smoothing": smoothing, "reduction": reduction}
    found = rnn.label_smoothed_cross_entropy(logits, labels, MASK, **options)
    ragged = rnn.label_smoothed_cross_entropy(to_ragged(logits, MASK), to_ragged(labels, MASK), **options)
    expected = nn.functional.cross_entropy(
        logits.flatten(0, 1),
        labels.masked_fill(~MASK, -100).flatten(),
        label_smoothing=smoothing,
        reduction=reduction,
    )
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ragged, expected)
    torch.testing.assert_close(gradients_of(found, [logits]), gradients_of(expected, [logits]))


# Padded, ragged and flat


def in_every_form(module, x, mask, **options):
    """What the module makes of a padded batch, of the ragged one and of the flat one, each as a ragged batch."""
    layout = to_ragged(x, mask).layout
    padded = module(x, mask, **options)
    assert padded.shape[:2] == mask.shape and torch.all(padded[~mask] == 0)
    ragged, flat = module(to_ragged(x, mask), **options), to_ragged(x, mask).values
    assert ragged.layout.lengths == layout.lengths
    where = AttentionMask(layout, **options) if takes_attention_mask(module) else layout
    return to_ragged(padded, mask).values, ragged.values, module(flat, where)


def takes_attention_mask(module):
    return isinstance(module, MultiHeadAttention | rnn.TransformerEncoderLayer)


WIDE = HeadShape(H, 6, 10, normed=True, rotary=True, bias=True)
MODULES = {
    "attention": (lambda: MultiHeadAttention(D, H), {}),
    "causal attention": (lambda: MultiHeadAttention(D, H), {"causal": True}),
    "window": (lambda: MultiHeadAttention(D, H), {"window": 1}),
    "rotary attention": (lambda: MultiHeadAttention(D, WIDE), {"causal": True}),
    "explicit": (lambda: MultiHeadAttention(D, H, backend="explicit"), {"causal": True}),
    "encoder layer": (lambda: rnn.TransformerEncoderLayer(D, H, 32, dropout=0.0), {}),
    "language model layer": (
        lambda: rnn.TransformerEncoderLayer(
            D, WIDE, 32, dropout=0.0, norm="rms", norm_order="pre", feed_forward="swiglu"
        ),
        {"causal": True},
    ),
    "convolutional layer": (lambda: rnn.TransformerEncoderLayer(D, H, 32, dropout=0.0, feed_forward="conv"), {}),
    "relu": (lambda: rnn.FeedForward(D, 32), {}),
    "gelu": (lambda: rnn.FeedForward(D, 32, "gelu"), {}),
    "swiglu": (lambda: rnn.FeedForward(D, 32, "swiglu"), {}),
    "conv": (lambda: ConvFeedForward(D, 32, causal=True), {}),
    "sinusoid": (lambda: rnn.Positions("sinusoid", D), {}),
    "learned": (lambda: rnn.Positions("learned", D, max_positions=8), {}),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("padding", ["right", "left", "scattered"])
def test_padded_ragged_and_flat_batches_give_the_same(name, padding):
    make, options = MODULES[name]
    module = make()
    mask = {"right": MASK, "left": MASK.flip(1), "scattered": MASK[:, torch.randperm(T)]}[padding]
    x = torch.randn(B, T, D, requires_grad=True)
    outputs = in_every_form(module, x, mask, **options)
    parameters = list(module.parameters())
    for out in outputs[1:]:
        torch.testing.assert_close(out, outputs[0])
    padded, *others = (gradients_of(out, [x, *parameters]) for out in outputs)
    assert torch.all(padded[0][~mask] == 0)
    for other in others:
        torch.testing.assert_close(other, padded)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_take_any_shape_and_ragged_batches(kind):
    norm, x = rnn.Norm(kind, D), torch.randn(B, T, D)
    torch.testing.assert_close(norm(to_ragged(x)).values, norm(x).flatten(0, 1))
    torch.testing.assert_close(norm(x.flatten(0, 1)), norm(x).flatten(0, 1))


@pytest.mark.parametrize("feed_forward", ["relu", "conv"])
def test_a_decoder_layer_gives_the_same_for_padded_ragged_and_flat_batches(feed_forward):
    layer = rnn.TransformerDecoderLayer(D, WIDE, 32, dropout=0.0, feed_forward=feed_forward)
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    x_ragged, memory_ragged = to_ragged(x, MASK), to_ragged(memory, MEMORY_MASK)
    padded = layer(x, memory, MASK, MEMORY_MASK)
    ragged = layer(x_ragged, memory_ragged)
    own, across = AttentionMask(x_ragged.layout, causal=True), AttentionMask(x_ragged.layout, memory_ragged.layout)
    flat = layer(x_ragged.values, memory_ragged.values, own, across)
    assert torch.all(padded[~MASK] == 0)
    torch.testing.assert_close(ragged.values, padded[MASK])
    torch.testing.assert_close(flat, padded[MASK])
    torch.testing.assert_close(layer(x_ragged, memory, memory_mask=MEMORY_MASK).values, flat)


def test_cross_attention_gives_the_same_for_padded_ragged_and_flat_batches():
    attention, x, memory = MultiHeadAttention(D, H), torch.randn(B, T, D), torch.randn(B, S, D)
    x_ragged, memory_ragged = to_ragged(x, MASK), to_ragged(memory, MEMORY_MASK)
    padded = attention(x, MASK, memory=memory, memory_mask=MEMORY_MASK)
    torch.testing.assert_close(attention(x_ragged, memory=memory_ragged).values, padded[MASK])
    across = AttentionMask(x_ragged.layout, memory_ragged.layout)
    flat = attention(x_ragged.values, memory=memory_ragged.values, memory_mask=across)
    torch.testing.assert_close(flat, padded[MASK])


def test_padding_and_back():
    x = torch.randn(B, T, D)
    padded, mask = to_padded(to_ragged(x, MASK))
    assert torch.equal(mask, MASK)
    assert torch.equal(padded, x.masked_fill(~MASK[:, :, None], 0.0))
    assert to_ragged(torch.tensor([[5, 6, 0], [7, 0, 0]]), torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()).as_lists() == [
        [5, 6],
        [7],
    ]


def test_a_row_of_padding_alone_changes_nothing_for_the_others():
    attention, x = MultiHeadAttention(D, H), torch.randn(B, T, D, requires_grad=True)
    mask = MASK.clone()
    mask[1] = False
    out = attention(x, mask)
    kept = torch.tensor([0, 2, 3])
    torch.testing.assert_close(out[kept], attention(x[kept], mask[kept]))
    assert torch.all(out[1] == 0)
    (gradient,) = gradients_of(out, [x])
    assert gradient.isfinite().all()


def test_captured_weights_have_no_padding():
    attention = MultiHeadAttention(D, H)
    with rnn.capture_attention() as log:
        attention(torch.randn(B, T, D), MASK)
    ((weights,),) = log.calls.values()
    assert [list(one.shape) for one in weights] == [[H, n, n] for n in LENGTHS.tolist()]


# Dropout


def test_dropout_of_a_module_alone_follows_the_global_seed():
    layer, x = rnn.TransformerEncoderLayer(D, H, 32, dropout=0.3, attention_dropout=0.3), torch.randn(B, T, D)
    torch.manual_seed(1)
    first, second = layer(x), layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)
    assert torch.equal(layer.eval()(x), layer(x))


def test_dropout_of_a_module_alone_keeps_the_mean():
    out = rnn.Dropout(0.25)(torch.ones(1000, 1000))
    kept = out[out != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 4 / 3), rtol=1e-6, atol=0.0)
    assert kept.numel() / out.numel() == pytest.approx(0.75, abs=0.002)  # four standard deviations of a million draws


def test_recomputed_activations_see_the_same_dropout():
    layer, x = rnn.TransformerEncoderLayer(D, H, 32, dropout=0.3), torch.randn(B, T, D, requires_grad=True)
    torch.manual_seed(1)
    plain = gradients_of(layer(x), [x])
    torch.manual_seed(1)
    torch.testing.assert_close(gradients_of(checkpoint(layer, x, use_reentrant=False), [x]), plain)


def test_layers_copy_and_load_as_modules_do():
    layer, x = rnn.TransformerDecoderLayer(D, H, 32, dropout=0.0), torch.randn(B, T, D)
    other = rnn.TransformerDecoderLayer(D, H, 32, dropout=0.0)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, x), layer(x, x))
    assert torch.equal(copy.deepcopy(layer)(x, x), layer(x, x))


def test_hooks_on_sub_layers_are_called():
    layer, seen = rnn.TransformerEncoderLayer(D, H, 32), []
    for module in (layer.attention, layer.feed_forward):
        module.register_forward_hook(lambda module, *_: seen.append(module))
    layer(torch.randn(B, T, D))
    assert seen == [layer.attention, layer.feed_forward]


# Mistakes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, x: a(x, MASK.double()), r"type torch.float64 .* give a boolean mask of shape \[4, 7\]"),
        (lambda a, x: a(x, MASK[:, :3]), r"a mask of shape \[4, 3\] .* shape \[4, 7, 16\]"),
        (lambda a, x: a(x.flatten(0, 1)), r"\[28, 16\] is not a padded batch; give \[B, T, D\]"),
        (
            lambda a, x: a(x.flatten(0, 1), AttentionMask(Layout([3]))),
            r"\[28, 16\] was given with a layout of 3 tokens",
        ),
        (lambda a, x: a(to_ragged(x), MASK), "no padding, but a boolean mask was given"),
        (lambda a, x: a(x, memory=x[:2]), "the batch has 4 sentences but the memory has 2"),
        (lambda a, x: a(x, memory=x, causal=True), "causal and window are for self-attention"),
        (lambda a, x: a(to_ragged(x), AttentionMask(Layout([7] * 4)), causal=True), "give them to AttentionMask"),
    ],
)
def test_a_mistake_is_explained(call, message):
    with pytest.raises(DataError, match=message):
        call(MultiHeadAttention(D, H), torch.randn(B, T, D))


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ConfigError, match="width is 10, not a multiple of 4 heads"):
        MultiHeadAttention(10, 4)


def test_labels_of_another_length_are_refused():
    logits, labels = Ragged(torch.zeros(3, 5), Layout([3])), Ragged(torch.zeros(2, dtype=torch.int64), Layout([2]))
    with pytest.raises(DataError, match="logits of 3 tokens but labels of 2"):
        rnn.label_smoothed_cross_entropy(logits, labels)
