"""Our kernels compute what a few lines of PyTorch compute.

They run on a GPU, or in Triton's interpreter: `TRITON_INTERPRET=1 pytest tests/kernels/test_kernels.py`.
`test_interpreter.py` does so if there is no GPU.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard import kernels
from regard.data.batch import ADDED, collate_pairs
from regard.data.batch_sampler import Position
from regard.data.columns import Column, pair_columns
from regard.data.packed_rows import unpack
from regard.data.packing import PackedLoader
from regard.data.ragged import Layout
from regard.data.word_alignment import Aligner
from regard.kernels import Drop, Ranges
from regard.models import build_model
from regard.nn.attend import AttentionMask, attend_explicit
from tests.kernels.reference import kept, mask, weight_mask

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(
    not (kernels.installed() and (DEVICE == "cuda" or kernels.interpreted())),
    reason="needs Triton, and a GPU or TRITON_INTERPRET=1",
)
pytestmark = needs_kernels

QUERIES, KEYS = [5, 70, 1, 30, 90], [9, 3, 40, 130, 2]
PATTERNS = {
    "own sentence": {},
    "causal": {"causal": True},
    "window": {"window": 2},
    "causal window": {"causal": True, "window": 3},
    "encoder-decoder": {"keys": Layout(KEYS, DEVICE)},
}


# What training computes in on a GPU. The interpreter has no bfloat16.
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
in_each_precision = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def close(left, right, dtype=torch.float32):
    """Compare within a precision. On a GPU, also float32 products may be rounded as bfloat16 is."""
    error = ((left.double() - right.double()).norm() / right.double().norm().clamp(min=1e-30)).item()
    assert error < (1e-5 if DEVICE == "cpu" and dtype == torch.float32 else 1e-2), error


def heads(tokens, width, dtype=DTYPES[0]):
    return torch.randn(tokens, 2, width, device=DEVICE).to(dtype).requires_grad_()


def rounded(*shape, dtype):
    """Random numbers in a precision, and the same ones in float32."""
    given = torch.randn(*shape, device=DEVICE).to(dtype).requires_grad_()
    return given, given.detach().float().requires_grad_()


WIDTHS = {"full tiles": (16, 32), "padded tiles": (8, 24), "wide heads": (256, 256)}
# The interpreter is slow: one case in half precision.
ATTENTIONS = [
    pytest.param(name, widths, dtype, id=f"{name}, {tiles}, {dtype}")
    for name in PATTERNS
    for tiles, widths in WIDTHS.items()
    for dtype in DTYPES
    if DEVICE == "cuda" or dtype == torch.float32 or (name, tiles) == ("causal", "padded tiles")
]


@pytest.mark.parametrize(("name", "widths", "dtype"), ATTENTIONS)
def test_tiled_attention_is_the_explicit_one_forward_and_backward(name, widths, dtype):
    from regard.kernels.attention import attend_tiled

    torch.manual_seed(0)
    pattern = AttentionMask(Layout(QUERIES, DEVICE), **PATTERNS[name])
    K, V = widths
    N, M = pattern.queries.total, pattern.keys.total
    q, k, v = heads(N, K, dtype), heads(M, K, dtype), heads(M, V, dtype)
    slope = torch.randn(N, 2, V, device=DEVICE).to(dtype)
    tiled = attend_tiled(q, k, v, pattern.ranges)
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    explicit, _ = attend_explicit(*doubles, pattern)
    assert tiled.dtype == dtype
    close(tiled, explicit, dtype)
    ours = torch.autograd.grad(tiled, (q, k, v), slope)
    for left, right in zip(ours, torch.autograd.grad(explicit, doubles, slope.double()), strict=True):
        close(left, right, dtype)


def test_a_query_that_sees_no_key_gets_zeros_and_no_nan():
    from regard.kernels.attention import attend_tiled

    q, k, v = heads(3, 16), heads(3, 16), heads(3, 16)
    first, end = torch.tensor([0, 1, 1]), torch.tensor([1, 1, 3])
    ranges = Ranges(*(x.int().to(DEVICE) for x in (first, end, torch.tensor([0, 2, 2]), torch.tensor([1, 3, 3]))))
    out = attend_tiled(q, k, v, ranges)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    gradients = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(one.isfinite().all() for one in gradients)


def test_dropout_on_the_weights_forward_and_backward():
    from regard.kernels.attention import attend_tiled

    torch.manual_seed(0)
    pattern, rate = AttentionMask(Layout([70], DEVICE), causal=True), 0.25
    q, k, v = heads(70, 16), heads(70, 16), heads(70, 32)
    drop = Drop(torch.tensor([7], dtype=torch.int32, device=DEVICE), 3, rate)
    ours = attend_tiled(q, k, v, pattern.ranges, drop)
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    scores = torch.einsum("nhk,mhk->hnm", doubles[0], doubles[1]) / 4
    scores = scores.masked_fill(~torch.ones(70, 70, device=DEVICE).tril().bool(), float("-inf"))
    weights = scores.softmax(-1) * weight_mask(2, 70, 70, 70, 7, 3, rate).to(DEVICE)
    reference = torch.einsum("hnm,mhv->nhv", weights, doubles[2])
    close(ours, reference)
    slope = torch.randn(70, 2, 32, device=DEVICE).to(q.dtype)
    expected = torch.autograd.grad(reference, doubles, slope.double())
    for left, right in zip(torch.autograd.grad(ours, (q, k, v), slope), expected, strict=True):
        close(left, right)


@in_each_precision
def test_embeddings_with_positions_and_dropout(dtype):
    from regard.kernels.embedding import embed

    torch.manual_seed(0)
    table = torch.randn(20, 24, device=DEVICE, requires_grad=True)
    positions = torch.randn(9, 24, device=DEVICE)
    ids, places = torch.randint(0, 20, (37,), device=DEVICE), torch.randint(0, 9, (37,), device=DEVICE)
    drop = Drop(torch.tensor([11], dtype=torch.int32, device=DEVICE), 4, 0.3)
    ours = embed(ids, table, places, positions, scale=3.0, drop=drop, dtype=dtype)
    reference = (table[ids] * 3.0 + positions[places]) * mask((37, 24), 11, 4, 0.3).to(DEVICE)
    close(ours, reference, dtype)
    slope = torch.randn_like(ours)
    found, expected = (torch.autograd.grad(one, table, slope.to(one.dtype))[0] for one in (ours, reference))
    assert found.dtype == torch.float32
    close(found, expected, dtype)


@pytest.mark.parametrize("bias", [True, False], ids=["layer norm", "rms norm"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("width", [48, 64])
@in_each_precision
def test_add_norm_is_the_norm_of_the_sum(bias, rate, width, dtype):
    from regard.kernels.residual import add_norm

    torch.manual_seed(0)
    (x, wide_x), (branch, wide_branch) = (rounded(37, width, dtype=dtype) for _ in range(2))
    weight, shift = (torch.randn(width, device=DEVICE, requires_grad=True) for _ in range(2))
    drop = Drop(torch.tensor([77], dtype=torch.int32, device=DEVICE), 3, rate) if rate else None
    parameters = [weight, shift] if bias else [weight]
    ours = add_norm(x, branch, weight, shift if bias else None, eps=1e-6, drop=drop)
    total = wide_x + wide_branch * (mask((37, width), 77, 3, rate).to(DEVICE) if rate else 1.0)
    plain = F.layer_norm(total, (width,), weight, shift, 1e-6) if bias else F.rms_norm(total, (width,), weight, 1e-6)
    close(ours, plain, dtype)
    slope = torch.randn_like(ours)
    expected = torch.autograd.grad(plain, [wide_x, wide_branch, *parameters], slope.float())
    for left, right in zip(torch.autograd.grad(ours, [x, branch, *parameters], slope), expected, strict=True):
        close(left, right, dtype)


def test_dropout_keeps_its_share_at_every_rate_and_place():
    for site, rate in ((1, 0.1), (2, 0.5), (60, 0.3)):
        share = kept(torch.arange(10**6), 1234, site, rate).double().mean().item()
        assert share == pytest.approx(1 - rate, abs=4 * (rate * (1 - rate) / 10**6) ** 0.5)
    masks = [kept(torch.arange(10**5), 1234, site, 0.5).double().numpy() for site in (1, 2)]
    assert np.corrcoef(*masks)[0, 1] == pytest.approx(0.0, abs=0.013)  # 4 sigma
    assert np.corrcoef(masks[0][1:], masks[0][:-1])[0, 1] == pytest.approx(0.0, abs=0.013)


def test_add_dropout_and_its_gradient():
    from regard.kernels.residual import add_dropout

    x, branch = (torch.randn(5, 40, device=DEVICE, requires_grad=True) for _ in range(2))
    drop = Drop(torch.tensor([1234], dtype=torch.int32, device=DEVICE), 2, 0.5)
    ours, reference = add_dropout(x, branch, drop), x + branch * mask((5, 40), 1234, 2, 0.5).to(DEVICE)
    close(ours, reference)
    slope = torch.randn_like(reference)
    expected = torch.autograd.grad(reference, (x, branch), slope)
    for left, right in zip(torch.autograd.grad(ours, (x, branch), slope), expected, strict=True):
        close(left, right)


@pytest.mark.parametrize("vocabulary", [50, 4096, 5000])
@in_each_precision
def test_cross_entropy_and_its_gradient_are_those_of_pytorch(vocabulary, dtype):
    from regard.kernels.loss import cross_entropy_, empty_logits

    torch.manual_seed(0)
    logits = (torch.randn(20, vocabulary, device=DEVICE) * 3).to(dtype).float().requires_grad_()
    labels = torch.randint(0, vocabulary, (20,), device=DEVICE)
    labels[3] = -1
    plain = F.cross_entropy(logits, labels, label_smoothing=0.1, ignore_index=-1, reduction="none")
    (gradient,) = torch.autograd.grad(plain.sum(), logits)
    ours = empty_logits(logits.to(dtype), vocabulary).copy_(logits.detach())
    losses = cross_entropy_(ours, labels, smoothing=0.1, gradient=True)
    close(losses, plain)
    close(ours, gradient, dtype)
    assert losses[3] == 0 and not ours[3].any()


def cast(weight, bias, dtype=torch.float32):
    """The weights that are multiplied."""
    return weight.detach().to(dtype), bias.detach().to(dtype)


@pytest.mark.parametrize("relu", [True, False])
@in_each_precision
def test_a_linear_layer_and_its_gradients(relu, dtype):
    from regard.kernels.linear import linear

    torch.manual_seed(0)
    (x, wide_x), weight, bias = (
        rounded(37, 24, dtype=dtype),
        *(torch.randn(*s, device=DEVICE).to(dtype).float().requires_grad_() for s in ((40, 24), (40,))),
    )
    ours, plain = linear(x, weight, bias, cast(weight, bias, dtype), relu=relu), F.linear(wide_x, weight, bias)
    plain = F.relu(plain) if relu else plain
    close(ours, plain, dtype)
    slope = torch.randn_like(ours)
    expected = torch.autograd.grad(plain, (wide_x, weight, bias), slope.float())
    found = torch.autograd.grad(ours, (x, weight, bias), slope)
    assert [one.dtype for one in found] == [dtype, torch.float32, torch.float32]
    for left, right in zip(found, expected, strict=True):
        close(left, right, dtype)


@pytest.mark.parametrize("relu", [True, False])
def test_the_gradients_of_a_product_and_of_its_input_are_added(relu):
    from regard.kernels.linear import linear_and_input

    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*s, device=DEVICE, requires_grad=True) for s in ((37, 24), (24, 24), (24,)))
    product, again = linear_and_input(x, weight, bias, cast(weight, bias), relu=relu)
    plain = F.relu(F.linear(x, weight, bias)) if relu else F.linear(x, weight, bias)
    inputs, slope = (x, weight, bias), torch.randn_like(plain)
    expected = torch.autograd.grad(x * 3 + plain, inputs, slope)
    for left, right in zip(torch.autograd.grad(again * 3 + product, inputs, slope), expected, strict=True):
        close(left, right)


def test_a_gradient_shared_by_both_results_is_not_overwritten_while_it_is_read():
    from regard.kernels.linear import linear_and_input

    torch.manual_seed(0)
    x, weight = (torch.randn(24, 24, device=DEVICE, requires_grad=True) for _ in range(2))
    slope = torch.randn_like(x)
    expected = torch.autograd.grad(x + F.linear(x, weight), (x, weight), slope)
    product, again = linear_and_input(x, weight, None, (weight.detach(), None))
    for left, right in zip(torch.autograd.grad(again + product, (x, weight), slope), expected, strict=True):
        close(left, right)


@pytest.mark.parametrize("shape", [(2, 300, 40), (1, 1, 512), (3, 128, 16)])
def test_rows_are_summed(shape):
    from regard.kernels.common import sum_rows

    partial = torch.randn(shape, device=DEVICE)
    close(sum_rows(partial), partial.sum(dim=1))


VARIANTS = {
    "paper": {},
    "modern": {"norm_order": "pre", "norm": "rms", "positions": "rotary", "feed_forward": "swiglu", "qk_norm": True},
    "window, convolution": {"window": 2, "feed_forward": "conv"},
    "nothing tied": {"tie": "none", "positions": "learned"},
    "narrow keys": {"key_width": 4},
    "as in Marian": {
        "attention_bias": True,
        "output_bias": True,
        "feed_forward": "silu",
        "positions": "sinusoid-halves",
        "norm_eps": 1e-5,
    },
    "as in fairseq": {
        "attention_bias": True,
        "positions": "sinusoid-log",
        "first_position": 2,
        "start_id": 2,
        "scale_embeddings": False,
        "final_norm": True,
    },
    "convolutions": {
        "kind": "convs2s",
        "width": 32,
        "encoder": [[32, 3], [48, 5]],
        "decoder": [[32, 3], [48, 2]],
        "dropout": 0.0,
    },
    "dilated convolutions": {"kind": "bytenet", "width": 32, "sets": 1, "dropout": 0.0, "extra": 2},
    "recurrent, with input feeding": {"kind": "rnn", "width": 32, "hidden": 32, "num_layers": 2, "dropout": 0.0},
    "recurrent, without input feeding": {
        "kind": "rnn",
        "width": 32,
        "hidden": 32,
        "cell": "lstm",
        "attention": "general",
        "input_feeding": False,
        "dropout": 0.0,
    },
    "recurrent, local attention": {
        "kind": "rnn",
        "width": 32,
        "hidden": 32,
        "attention": "concat",
        "window": 2,
        "dropout": 0.0,
    },
    "recurrent, without attention": {
        "kind": "rnn",
        "width": 32,
        "hidden": 32,
        "attention": "none",
        "bidirectional": False,
        "dropout": 0.0,
    },
    "mask-predict": {"kind": "cmlm"},
    "fertilities": {"kind": "nat"},
}


# The interpreter is slow: there, few tokens and few columns are enough.
BUDGET = 128 if DEVICE == "cuda" else 48
WIDE = [(512, 1536), (2048, 512)] if DEVICE == "cuda" else [(3000, 20)]


@pytest.mark.parametrize("half", DTYPES if DEVICE == "cuda" else [None], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_packed_batch_through_our_kernels_has_the_loss_and_gradients_of_plain_pytorch(name, half):
    random = np.random.default_rng(0)
    lengths = random.integers(1, 20, (2, 30))
    stores = [
        Column(random.integers(3, 50, one.sum()).astype(np.int32), np.concatenate([[0], one.cumsum()]))
        for one in lengths
    ]
    sides = pair_columns(*stores)
    if name == "fertilities":
        sides = Aligner.learn(sides, max_length=50).add_to(sides)
    loader = PackedLoader(lambda epoch: sides, collate_pairs, added=ADDED, budget=BUDGET, max_length=50, seed=1)
    batch, _ = next(loader.batches(Position()))
    packed, plain = (
        unpack(batch.row.to(DEVICE), batch.shape, batch.num_tokens),
        collate_pairs(sides, loader.plan(0)[1][0]),
    )
    table = {"kind": "transformer", "width": 32, "num_layers": 2, "num_heads": 2, "hidden": 48, "dropout": 0.0}
    torch.manual_seed(0)
    own = VARIANTS[name].get("kind") in ("convs2s", "bytenet", "rnn")  # these have no layers of attention
    model = build_model(VARIANTS[name] if own else {**table, **VARIANTS[name]}, source_size=50, target_size=50)
    if "attention_bias" in VARIANTS[name]:
        # Biases are zero at first, which would hide a kernel that leaves them out.
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if key.endswith("bias"):
                    parameter.normal_(std=0.3)
    model.train(name != "mask-predict")  # then all tokens are masked, instead of random ones
    assert model.static_shapes

    def passed(batch, device, *, ours):
        with kernels.allowed(ours):
            model.to(device).zero_grad()
            with torch.autocast("cuda", half, enabled=device == "cuda"):
                loss = model(batch, smoothing=0.1)
            loss.backward()
            # Gradients move with the model when it changes its device: keep copies.
            gradients = {key: one.grad.clone().cpu() for key, one in model.named_parameters()}
            return loss.item(), gradients

    loss, gradients = passed(plain, "cpu", ours=False)

    def errors(found):
        return {key: ((found[key] - one).norm() / one.norm().clamp(min=1e-12)).item() for key, one in gradients.items()}

    our_loss, our_gradients = passed(packed, DEVICE, ours=True)
    assert our_loss == pytest.approx(loss, rel=1e-2 if DEVICE == "cuda" else 1e-5)
    allowed = dict.fromkeys(gradients, 1e-4)
    if DEVICE == "cuda":  # in half precision, which may be about as far from float32 as plain PyTorch is in it
        on_gpu = plain.to(torch.device(DEVICE))
        plainly = errors(passed(on_gpu, DEVICE, ours=False)[1])
        allowed = {key: min(0.05 + 2 * error, 0.5) for key, error in plainly.items()}
    for key, error in errors(our_gradients).items():
        assert error < allowed[key], (key, error, allowed[key])


@in_each_precision
@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize(("width_in", "width_out"), [*WIDE, (40, 7)])
def test_a_product_of_few_rows_is_that_of_pytorch(rows, width_in, width_out, dtype):
    from regard.kernels.few_rows import linear_few_rows

    x, weight = (
        torch.randn(rows, 2 * width_in, device=DEVICE)[:, :width_in],
        torch.randn(width_out, width_in, device=DEVICE),
    )
    x, weight, bias = x.to(dtype), weight.to(dtype), torch.randn(width_out, device=DEVICE).to(dtype)
    close(linear_few_rows(x, weight, None), F.linear(x.float(), weight.float()), dtype)
    expected = F.linear(x.float(), weight.float(), bias.float()).relu()
    close(linear_few_rows(x, weight, bias, relu=True), expected, dtype)
