"""Label-smoothed cross-entropy: of logits, or of an output layer whose logits are never all in memory.

The smoothed target has 1 - ε for the right token, plus ε/V for each of the V tokens (Szegedy et al. 2015; section 5.4).

Shapes: N tokens, D width, V vocabulary, C tokens of a chunk.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard import kernels
from regard.data.ragged import Ragged
from regard.errors import DataError
from regard.messages import counted
from regard.nn.device import cast_weight, product_dtype
from regard.nn.sequences import Sequences, to_ragged


def cross_entropy(logits_NV: Tensor, labels_N: Tensor, *, smoothing: float) -> Tensor:
    """Return the summed smoothed cross-entropy of logits: the reference for `linear_cross_entropy`.

    Tokens with a negative label do not count.
    """
    logp_NV = logits_NV.to(_wide(logits_NV)).log_softmax(dim=-1)
    right_N = logp_NV.gather(1, labels_N.long().clamp(min=0)[:, None])[:, 0]
    losses_N = -(1 - smoothing) * right_N - smoothing * logp_NV.mean(dim=-1)
    return losses_N.masked_fill(labels_N < 0, 0.0).sum()


def label_smoothed_cross_entropy(
    logits: Sequences,
    labels: Sequences,
    mask: Tensor | None = None,
    *,
    smoothing: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Return the cross-entropy of a batch, per token or summed, without gradients of padding.

    Logits are ragged, or padded [B, T, V]; labels are ragged, or [B, T]. The mask, [B, T], is True for labels that count.
    """
    logits_NV, labels_N = (
        one.values if isinstance(one, Ragged) else to_ragged(one, mask).values for one in (logits, labels)
    )
    if logits_NV.size(0) != labels_N.size(0):
        raise DataError(f"there are logits of {counted(logits_NV.size(0), 'token')} but labels of {labels_N.size(0)}")
    total = cross_entropy(logits_NV, labels_N, smoothing=smoothing)
    return total / labels_N.size(0) if reduction == "mean" else total


def linear_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, labels_N: Tensor, *, smoothing: float, bias_V: Tensor | None = None
) -> Tensor:
    """Return the summed smoothed cross-entropy of hidden @ weightᵀ + bias, computed for one chunk of tokens at a time.

    Tokens with a negative label do not count.
    """
    if not kernels.usable(hidden_ND) and bool((labels_N < 0).any()):
        hidden_ND, labels_N = hidden_ND[labels_N >= 0], labels_N[labels_N >= 0]
    return _LinearCrossEntropy.apply(hidden_ND, weight_VD, bias_V, labels_N, smoothing)  # type: ignore[no-untyped-call]


def _wide(x: Tensor) -> torch.dtype:
    """Return the precision of what is not a product: float32, or float64 for float64 numbers."""
    return torch.promote_types(x.dtype, torch.float32)


CHUNK_LOGITS = 2**20  # logits in memory at a time: they stay in a CPU's cache between the passes over them
CHUNK_LOGITS_GPU = 2**28  # enough to fill a GPU's processors, few enough for its memory


class Wanted(NamedTuple):
    """Whose gradients are computed: frozen weights need none."""

    hidden: bool
    weight: bool
    bias: bool


class _LinearCrossEntropy(torch.autograd.Function):
    """Compute the loss and all gradients in one pass over the chunks, so that no logits are kept for the backward pass.

    With p = softmax(logits), the gradient of the logits is p - ε/V - (1 - ε)·onehot. Only p is a full matrix: in float32
    the other two terms enter the gradients through a column sum and a gather, without touching V entries per token.
    """

    @staticmethod
    def forward(ctx, hidden_ND, weight_VD, bias_V, labels_N, smoothing):  # type: ignore[no-untyped-def]
        dtype = product_dtype(hidden_ND)
        # The casts are explicit: products in `dtype`, everything else in float32.
        with torch.autocast(hidden_ND.device.type, enabled=False):
            hidden, weight = hidden_ND.to(dtype), cast_weight(weight_VD, dtype)
            compute = _fused_loss_and_gradients if kernels.usable(hidden) else _loss_and_gradients
            bias = None if bias_V is None else bias_V.detach().to(_wide(hidden))
            total, *gradients = compute(
                hidden, weight, bias, labels_N, smoothing, wanted=Wanted(*ctx.needs_input_grad[:3])
            )
        ctx.gradients = gradients
        ctx.dtypes = [None if one is None else one.dtype for one in (hidden_ND, weight_VD, bias_V)]
        return total

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        assert ctx.gradients is not None, "the gradient of this loss can be computed only once"
        gradients = zip(ctx.gradients, ctx.dtypes, strict=True)
        ctx.gradients = None  # they are scaled in place, because they are as large as the output layer
        return *(None if one is None else one.mul_(scale).to(dtype) for one, dtype in gradients), None, None


def _loss_and_gradients(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, smoothing: float, *, wanted: Wanted
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the summed loss, and those of its gradients with respect to hidden, weight and bias that are wanted."""
    V = weight_VD.size(0)
    wide = _wide(hidden_ND)
    total = hidden_ND.new_zeros((), dtype=wide)
    grad_hidden = torch.empty_like(hidden_ND) if wanted.hidden else None
    grad_weight = torch.zeros_like(weight_VD, dtype=wide) if wanted.weight else None
    grad_bias = torch.zeros_like(bias_V) if wanted.bias and bias_V is not None else None
    columns_D = weight_VD.sum(dim=0)
    chunk = max(1, (CHUNK_LOGITS if hidden_ND.device.type == "cpu" else CHUNK_LOGITS_GPU) // V)
    for begin in range(0, hidden_ND.size(0), chunk):
        hidden_CD, labels_C = hidden_ND[begin : begin + chunk], labels_N[begin : begin + chunk]
        logits_CV = torch.mm(hidden_CD, weight_VD.t()).to(wide)
        if bias_V is not None:
            logits_CV += bias_V
        right_C, best_C = logits_CV.gather(1, labels_C[:, None])[:, 0], logits_CV.amax(dim=1)
        p_CV = torch.softmax(logits_CV, dim=-1, out=logits_CV)
        mean_C = (hidden_CD @ columns_D).to(wide) / V
        if bias_V is not None:
            mean_C += bias_V.mean()
        # The best token's p is exp(best - log Z). Taking differences first keeps the digits of a likely token's small loss.
        missed_C = (1 - smoothing) * (best_C - right_C) + smoothing * (best_C - mean_C)
        total += (missed_C - p_CV.amax(dim=1).log()).sum()
        if not any(wanted):
            continue
        if grad_bias is not None:
            shares_C = p_CV.new_full(labels_C.shape, smoothing - 1)
            grad_bias += p_CV.sum(dim=0).sub_(len(labels_C) * smoothing / V).index_add_(0, labels_C, shares_C)
        if hidden_ND.dtype == wide:
            if grad_hidden is not None:
                out_CD = torch.mm(p_CV, weight_VD, out=grad_hidden[begin : begin + chunk])
                right_CD = weight_VD.index_select(0, labels_C)
                out_CD.sub_(right_CD, alpha=1 - smoothing).sub_(columns_D, alpha=smoothing / V)
            if grad_weight is not None:
                grad_weight.addmm_(p_CV.t(), hidden_CD).index_add_(0, labels_C, hidden_CD, alpha=smoothing - 1)
        else:  # near p = 1 the difference must be taken before p is rounded to half precision
            p_CV.sub_(smoothing / V).scatter_add_(
                1, labels_C[:, None], p_CV.new_full((len(labels_C), 1), smoothing - 1)
            )
            gradient_CV = p_CV.to(hidden_ND.dtype)
            if grad_hidden is not None:
                torch.mm(gradient_CV, weight_VD, out=grad_hidden[begin : begin + chunk])
            if grad_weight is not None:
                grad_weight += torch.mm(gradient_CV.t(), hidden_CD)
    if grad_weight is not None and hidden_ND.dtype == wide:
        grad_weight.sub_(hidden_ND.sum(dim=0), alpha=smoothing / V)
    return total, grad_hidden, grad_weight, grad_bias


def _fused_loss_and_gradients(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, smoothing: float, *, wanted: Wanted
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return what `_loss_and_gradients` returns, by a kernel that overwrites logits with their gradient.

    Tokens with a negative label do not count.
    """
    from regard.kernels.linear import product_float32
    from regard.kernels.loss import cross_entropy_, empty_logits

    N, V = hidden_ND.size(0), weight_VD.size(0)
    total = hidden_ND.new_zeros((), dtype=torch.float32)
    grad_hidden = torch.empty_like(hidden_ND) if wanted.hidden else None
    grad_weight = None
    grad_bias = torch.zeros_like(bias_V) if wanted.bias and bias_V is not None else None
    num_chunks = max(1, -(-N * V // CHUNK_LOGITS_GPU))
    chunk = -(-N // num_chunks)
    for begin in range(0, N, chunk):
        hidden_CD, labels_C = hidden_ND[begin : begin + chunk], labels_N[begin : begin + chunk]
        slope_CV = torch.mm(hidden_CD, weight_VD.t(), out=empty_logits(hidden_CD, V))
        if bias_V is not None:
            slope_CV += bias_V.to(slope_CV.dtype)
        total += cross_entropy_(slope_CV, labels_C, smoothing=smoothing, gradient=any(wanted)).sum()
        if grad_hidden is not None:
            torch.mm(slope_CV, weight_VD, out=grad_hidden[begin : begin + chunk])
        if wanted.weight:
            grad_weight = product_float32(slope_CV.t(), hidden_CD, onto=grad_weight)
        if grad_bias is not None:
            grad_bias += slope_CV.sum(dim=0, dtype=grad_bias.dtype)
    return total, grad_hidden, grad_weight, grad_bias
