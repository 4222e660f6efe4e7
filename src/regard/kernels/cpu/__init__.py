"""Kernels for search on a CPU, in C: what a step computes besides its large products, each in one pass.

Each computes what a few lines of PyTorch in `nn.attention`, `nn.norms` and `decoding.ranking` compute. Those lines
remain the reference and the fallback. Kernels need a C compiler, and run in float32 on one thread each.

Shapes: R rows, D width, H heads, K width of a key, W of a value, G = sentences * H, Q rows per sentence (its beams),
        S slots, V vocabulary, B sentences, C entries to find.
"""

from __future__ import annotations

from ctypes import CDLL

import torch
from torch import Tensor

from regard import kernels
from regard.kernels.cpu.build import built

MOST_THREADS = 4  # with more threads, PyTorch's multithreaded kernels are faster


def usable(x: Tensor) -> bool:
    """Return whether these kernels can work on this tensor."""
    return (
        x.dtype is torch.float32
        and not x.is_cuda
        and torch.is_inference_mode_enabled()
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and kernels.are_allowed()
        and torch.get_num_threads() <= MOST_THREADS
        and built().library is not None
    )


def attend_step(q_RHK: Tensor, k_GSK: Tensor, v_GSW: Tensor, bias_GQS: Tensor) -> Tensor:
    """Return the attention of one token per row to its sentence's keys: [R, H * W].

    The bias must be the same for all heads of a sentence. It may have size 1 in any dimension.
    """
    (R, H, K), (G, S, W) = q_RHK.shape, v_GSW.shape
    Q = R * H // G
    q_RHK, k_GSK, v_GSW = _together(q_RHK), _together(k_GSK), _together(v_GSW)
    assert k_GSK.shape == (G, S, K) and bias_GQS.size(2) in (1, S), (q_RHK.shape, k_GSK.shape, bias_GQS.shape)
    assert all(one.dtype is torch.float32 for one in (q_RHK, k_GSK, v_GSW, bias_GQS)), "kernels are for float32"
    of_head, of_row, of_slot = (
        0 if size == 1 else stride for size, stride in zip(bias_GQS.shape, bias_GQS.stride(), strict=True)
    )
    out = q_RHK.new_empty(R, H * W)
    enough = library().look(
        *(q_RHK.data_ptr(), q_RHK.stride(0), k_GSK.data_ptr(), k_GSK.stride(0), v_GSW.data_ptr(), v_GSW.stride(0)),
        *(bias_GQS.data_ptr(), of_head * H, of_row, of_slot, out.data_ptr(), G // H, Q, H, S, K, W),
    )
    if not enough:
        raise MemoryError(f"no memory for the scores of {S} keys")
    return out


def write(entries_RHK: Tensor, slots_GSK: Tensor, start: int) -> None:
    """Write keys or values, Q per sentence, into their sentence's slots from `start` on."""
    (R, H, K), G = entries_RHK.shape, slots_GSK.size(0)
    entries_RHK = _together(entries_RHK)
    first = slots_GSK.data_ptr() + start * K * slots_GSK.element_size()
    library().write(entries_RHK.data_ptr(), entries_RHK.stride(0), first, slots_GSK.stride(0), G // H, R * H // G, H, K)


def add_norm(x_RD: Tensor, branch_RD: Tensor, weight_D: Tensor, bias_D: Tensor | None, *, eps: float) -> Tensor:
    """Return LayerNorm(x + branch), or RMSNorm if there is no bias. May overwrite `branch`."""
    assert x_RD.shape == branch_RD.shape and x_RD.dtype is branch_RD.dtype, (x_RD.dtype, branch_RD.dtype)
    x_RD, branch_RD = x_RD.contiguous(), branch_RD.contiguous()
    bias = None if bias_D is None else bias_D.data_ptr()
    places = (x_RD.data_ptr(), branch_RD.data_ptr(), weight_D.data_ptr(), bias)
    library().add_norm(*places, eps, x_RD.numel() // x_RD.size(-1), x_RD.size(-1))
    return branch_RD


def bounds_of(logits_RV: Tensor, *, normalized: bool) -> tuple[Tensor, Tensor | None]:
    """Return the largest entry of each group of each row, [R, groups], and if `normalized` the log-sum-exp of each row, [R].

    The matrix may be row-major or column-major.
    """
    R, V = logits_RV.shape
    side_by_side = logits_RV.stride() == (1, R) and R > 1
    logits_RV = logits_RV if side_by_side or logits_RV.stride(1) == 1 else logits_RV.contiguous()
    bounds = logits_RV.new_empty(R, -(-V // library().group()))
    normalizer = logits_RV.new_empty(R) if normalized else None
    find = library().bounds_of_columns if side_by_side else library().bounds_of_rows
    sums = None if normalizer is None else normalizer.data_ptr()
    find(logits_RV.data_ptr(), logits_RV.stride(1 if side_by_side else 0), bounds.data_ptr(), sums, R, V)
    return bounds, normalizer


def best_entries(
    logits_RV: Tensor, bounds_RG: Tensor, more_R: Tensor, *, beams: int, count: int, none: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best entries of each sentence's rows, plus their row's `more`: scores, entries, rows, [B, C], best first.

    No entry may exceed its group's bound. If there are too few entries, the rest are minus infinity and `none`.
    """
    R, V = logits_RV.shape
    B, more_R = R // beams, more_R.contiguous()
    assert more_R.shape == (R,) and more_R.dtype is torch.float32, (more_R.shape, more_R.dtype)
    kinds = (torch.float32, torch.int64, torch.int64)
    scores, entries, rows = (logits_RV.new_empty(B, count, dtype=kind) for kind in kinds)
    library().best_entries(
        *(logits_RV.data_ptr(), logits_RV.stride(0), logits_RV.stride(1), bounds_RG.data_ptr(), more_R.data_ptr()),
        *(scores.data_ptr(), entries.data_ptr(), rows.data_ptr(), B, beams, V, count, none),
    )
    return scores, entries, rows


def library() -> CDLL:
    """Return the compiled functions."""
    found = built().library
    assert found is not None, "call `usable` first"
    return found


def _together(x: Tensor) -> Tensor:
    """Return the tensor with its last two dimensions contiguous."""
    return x if x.stride()[1:] == (x.size(2), 1) else x.contiguous()
