"""The kernels for search on a CPU, each against what PyTorch computes."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

from regard import kernels
from regard.decoding.ranking import Ranking, log_normalizer
from regard.kernels import cpu
from regard.kernels.cpu.build import built
from regard.nn.linear import PackedMatrix

pytestmark = pytest.mark.skipif(built().library is None, reason=f"no kernels for the CPU: {built().note}")
NEVER = float("-inf")
GROUP = 64  # entries that have one bound


@pytest.fixture(autouse=True)
def as_in_search():
    with torch.inference_mode():
        yield


def attention(q_RHK, k_GSK, v_GSW, bias_GQS):
    """The formula, row by row."""
    (R, H, K), G = q_RHK.shape, k_GSK.size(0)
    Q, rows = R * H // G, []
    bias_GQS = bias_GQS.expand(G, Q, k_GSK.size(1))
    for row in range(R):
        heads = []
        for h in range(H):
            head = row // Q * H + h
            scores = k_GSK[head] @ q_RHK[row, h] / math.sqrt(K) + bias_GQS[head, row % Q]
            heads.append(scores.softmax(0) @ v_GSW[head])
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize(("K", "W"), [(64, 64), (16, 16), (5, 3), (20, 40)])
@pytest.mark.parametrize(("B", "Q", "H", "S"), [(3, 4, 2, 21), (1, 1, 1, 1), (2, 1, 3, 16)])
def test_attention_of_single_tokens(generator, B, Q, H, S, K, W):
    q = torch.randn(B * Q, 2, H, K, generator=generator)[:, 1]  # a part of a wider projection
    k, v = (torch.randn(B * H, S + 3, size, generator=generator)[:, 2 : S + 2] for size in (K, W))
    seen = torch.rand(B, Q, S, generator=generator) < 0.4
    seen[:, :, -1] = True
    bias = torch.zeros(B, Q, S).masked_fill(~seen, NEVER).repeat_interleave(H, dim=0)
    one_for_all = torch.randn(B, 1, S, generator=generator).repeat_interleave(H, dim=0)
    for one in (bias, one_for_all, bias[:1, :1], torch.zeros(1, 1, 1)):
        torch.testing.assert_close(cpu.attend_step(q, k, v, one), attention(q, k, v, one), rtol=1e-5, atol=1e-6)


def test_keys_are_written_into_the_slots_of_their_sentence(generator):
    entries = torch.randn(6, 2, 7, generator=generator)  # two sentences of three beams, two heads
    slots = torch.zeros(4, 10, 7)
    cpu.write(entries, slots, 5)
    expected = torch.zeros(2, 2, 10, 7)
    expected[:, :, 5:8] = entries.view(2, 3, 2, 7).transpose(1, 2)
    assert torch.equal(slots.view(2, 2, 10, 7), expected)


@pytest.mark.parametrize("width", [1, 16, 77, 256])
def test_norms_of_a_sum(generator, width):
    x, branch, weight, bias = (torch.randn(*size, generator=generator) for size in [(9, width)] * 2 + [(width,)] * 2)
    layer = F.layer_norm(x + branch, (width,), weight, bias, 1e-6)
    rms = F.rms_norm(x + branch, (width,), weight, 1e-6)
    torch.testing.assert_close(cpu.add_norm(x, branch.clone(), weight, bias, eps=1e-6), layer, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(cpu.add_norm(x, branch.clone(), weight, None, eps=1e-6), rms, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 7, 24, 130])
@pytest.mark.parametrize("size", [1, 50, 64, 1000])
@pytest.mark.parametrize("side_by_side", [False, True])
def test_bounds_and_normalizers(generator, rows, size, side_by_side):
    logits = 8 * torch.randn(rows, size, generator=generator)
    logits[0, 0] = NEVER if size > 1 else 3.0
    laid_out = logits.t().contiguous().t() if side_by_side else logits
    bounds, normalizer = cpu.bounds_of(laid_out, normalized=True)
    padded = F.pad(logits, (0, -size % GROUP), value=NEVER)
    assert torch.equal(bounds, padded.view(rows, -1, GROUP).amax(-1))
    torch.testing.assert_close(normalizer.double(), logits.double().logsumexp(-1), rtol=1e-6, atol=1e-5)
    assert cpu.bounds_of(laid_out, normalized=False)[1] is None


def test_normalizers_of_extremes():
    logits = torch.tensor([[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4], [0.0, -90.0, NEVER]])
    expected = [1e4 + math.log(2), -1e4 + math.log(3), 0.0]
    assert cpu.bounds_of(logits, normalized=True)[1].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize(("beams", "count"), [(1, 1), (4, 8), (3, 6)])
def test_the_best_of_a_sentences_rows(generator, beams, count, side_by_side):
    logits, logp = torch.randn(5 * beams, 1000, generator=generator), torch.randn(5 * beams, generator=generator)
    laid_out = logits.t().contiguous().t() if side_by_side else logits.clone()
    ranking = Ranking(laid_out, normalized=True)
    laid_out[:, 7] = NEVER  # forbidden after the bounds were found
    scores, entries, rows = ranking.best(logp, beams=beams, count=count, filler=2)
    allowed = torch.cat([logits[:, :7], torch.full((len(logits), 1), NEVER), logits[:, 8:]], dim=1)
    every = (allowed + logp[:, None]).view(5, -1)
    assert torch.equal(scores, every.topk(count).values)
    own = entries + (rows - torch.arange(0, 5 * beams, beams)[:, None]) * 1000
    assert torch.equal(every.gather(1, own), scores)


def test_missing_entries_have_a_score_of_minus_infinity():
    logits = torch.tensor([[0.0, 1.0, NEVER]])
    scores, entries, rows = Ranking(logits, normalized=False).best(torch.zeros(1), beams=1, count=4, filler=2)
    assert scores.tolist() == [[1.0, 0.0, NEVER, NEVER]]
    assert entries[0, :2].tolist() == [1, 0] and rows.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("rows", "width", "out"), [(2, 1, 1), (9, 3, 5), (31, 256, 101), (40, 1100, 33), (300, 64, 16)]
)
@pytest.mark.parametrize("column_by_column", [False, True])
def test_products(generator, rows, width, out, column_by_column):
    x, weight = torch.randn(rows, width, generator=generator), torch.randn(out, width, generator=generator)
    bias = torch.randn(out, generator=generator)
    packed = PackedMatrix(weight.t().contiguous().t() if column_by_column else weight)
    expected, near = x.double() @ weight.double().t(), {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(packed.times(x).double(), expected, **near)
    torch.testing.assert_close(packed.times(x, bias).double(), expected + bias, **near)
    torch.testing.assert_close(packed.times(x, bias, relu=True).double(), (expected + bias).relu(), **near)
    wider = torch.randn(rows, width + 5, generator=generator)
    wider[:, :width] = x
    assert torch.equal(packed.times(wider[:, :width]), packed.times(x))


def test_a_row_of_a_product_does_not_depend_on_the_other_rows(generator):
    packed, x = PackedMatrix(torch.randn(77, 600, generator=generator)), torch.randn(300, 600, generator=generator)
    together = packed.times(x)
    for some in ([0], [299], [5, 100, 200], list(range(299, -1, -1))):
        assert torch.equal(packed.times(x[some]), together[some])


def test_threads_that_pack_a_matrix_at_the_same_time_get_the_same_product(generator):
    weight, x = torch.randn(500, 300, generator=generator), torch.randn(40, 300, generator=generator)
    expected = PackedMatrix(weight).times(x)

    def multiply(packed):
        with torch.inference_mode():
            return packed.times(x)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(30):
            packed = PackedMatrix(weight)
            assert all(torch.equal(found, expected) for found in pool.map(multiply, [packed] * 8))


def test_nan_is_passed_on():
    x = torch.tensor([[float("nan"), 1.0], [1.0, 1.0]])
    product = PackedMatrix(torch.ones(3, 2)).times(x)
    assert product[0].isnan().all() and product[1].tolist() == [2.0, 2.0, 2.0]
    assert cpu.bounds_of(torch.tensor([[float("nan"), 0.0, 1.0]]), normalized=True)[1].isnan().all()
    assert log_normalizer(torch.tensor([[float("nan"), 0.0]])).isnan().all()


def test_kernels_are_used_in_inference_mode_and_float32_only(generator):
    x = torch.randn(4, 8, generator=generator)
    assert cpu.usable(x) and not cpu.usable(x.double())
    with kernels.allowed(False):
        assert not cpu.usable(x)
    with torch.inference_mode(False):
        assert not cpu.usable(torch.zeros(4, 8))
    with torch.autocast("cpu", torch.bfloat16):  # products are bfloat16 there
        assert not cpu.usable(x)


def test_kernels_work_with_another_default_dtype(generator):
    logits = torch.randn(4, 100, generator=generator)
    expected = logits.logsumexp(-1)
    torch.set_default_dtype(torch.float64)
    try:
        normalizer = cpu.bounds_of(logits, normalized=True)[1]
        product = PackedMatrix(torch.ones(3, 100, dtype=torch.float32)).times(logits)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(normalizer, expected)
    torch.testing.assert_close(product, logits.sum(-1, keepdim=True).expand(4, 3))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(AssertionError):
        PackedMatrix(torch.zeros(3, 4)).times(torch.zeros(2, 5))
    with pytest.raises(AssertionError):
        cpu.add_norm(torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.bfloat16), torch.ones(4), None, eps=1e-6)
    with pytest.raises(AssertionError):
        cpu.attend_step(torch.zeros(1, 1, 4), torch.zeros(1, 9, 4), torch.zeros(1, 9, 4), torch.zeros(1, 1, 5))


def test_kernels_are_not_used_with_many_threads(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: cpu.MOST_THREADS + 1)
    assert not cpu.usable(torch.zeros(4, 8))
