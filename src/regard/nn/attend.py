"""Attention(Q, K, V) = softmax(QKᵀ/√d) V over flat batches: one function, four backends that compute the same.

explicit   the paper's formula, one sentence at a time; also returns the weights; the reference for the others
sdpa       PyTorch's fused kernel on a padded copy; for CPUs, and for what the next two do not support
varlen     `torch.nn.attention.varlen`, without padding; CUDA, half precision
tiled      our kernel, which puts several short sentences into one tile (`kernels.attention`); CUDA, half precision, Triton

Shapes: N query tokens, M key tokens, H heads, K width of a key, V width of a value,
        B sentences, T longest query sentence, S longest key sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard import kernels
from regard.config.transformer import AttentionBackend
from regard.data.ragged import Layout
from regard.errors import ConfigError
from regard.kernels import Ranges
from regard.nn.banded import attend_banded, block_size
from regard.nn.dropout import Dropout
from regard.nn.positions import Rotation


class AttentionMask:
    """Which keys each query may attend to: those of its own sentence that are not in the future or outside the window.

    Use one AttentionMask for all layers of a stack: what is derived from it is computed once.

    queries   the layout of the queries
    keys      the layout of the keys; that of the queries if None
    causal    whether later positions are hidden
    window    how many positions are visible on each side of a query's own; all if None
    """

    def __init__(
        self, queries: Layout, keys: Layout | None = None, *, causal: bool = False, window: int | None = None
    ) -> None:
        self.queries = queries
        self.keys = queries if keys is None else keys
        self.causal = causal
        self.window = window
        self._rotations: dict[int, Rotation] = {}
        assert self.queries.num_sentences == self.keys.num_sentences, "queries and keys are from different batches"

    def allowed(self, num_queries: int, num_keys: int) -> Tensor | None:
        """Return True where a query may attend to a key of its sentence: [num_queries, num_keys]; None if everywhere."""
        if not self.causal and self.window is None:
            return None
        device = self.queries.device
        distance = torch.arange(num_keys, device=device) - torch.arange(num_queries, device=device)[:, None]
        allowed = torch.ones_like(distance, dtype=torch.bool)
        if self.causal:
            allowed &= distance <= 0
        if self.window is not None:
            allowed &= distance.abs() <= self.window
        return allowed

    @property
    def banded(self) -> bool:
        """Whether the window is so small that attention by blocks (`nn.banded`) is less work."""
        own = self.keys is self.queries and self.window is not None
        return own and 3 * block_size(self.window or 0) < self.queries.longest

    @cached_property
    def bias(self) -> Tensor | None:
        """Zero where a padded query may attend to a key, else minus infinity: [B or 1, 1, T, S]. None without limits."""
        T, S = self.queries.longest, self.keys.longest
        allowed = self.allowed(T, S)
        if not self.keys.even:
            real_keys = self.keys.mask[:, None, :]
            allowed = real_keys.expand(-1, T, -1) if allowed is None else allowed & real_keys
            if self.window is not None:
                # Padding after a short sentence may see no key at all. Let it see all, for a finite softmax.
                allowed = allowed | ~self.queries.mask[:, :, None]
        if allowed is None:
            return None
        bias = torch.zeros(allowed.shape, device=allowed.device).masked_fill_(~allowed, float("-inf"))
        return bias.view(-1, 1, T, S)

    @cached_property
    def ranges(self) -> Ranges:
        """The range of keys that each query sees, and the range of queries that see each key."""
        seen = _range_of_each(self.queries, self.keys)
        seen_by = _range_of_each(self.keys, self.queries)
        if self.causal or self.window is not None:
            place = torch.arange(self.queries.total, dtype=torch.int32, device=self.queries.device)
            before = after = self.window
            if self.causal:
                after = 0
            seen = _narrow(seen, place, before, after)
            seen_by = _narrow(seen_by, place, after, before)
        return Ranges(*seen, *seen_by)

    def rotation(self, head_width: int) -> Rotation:
        """Return the rotary positions of the queries, for self-attention. Computed once per head width."""
        if head_width not in self._rotations:
            self._rotations[head_width] = Rotation(self.queries.positions, head_width)
        return self._rotations[head_width]


def _range_of_each(tokens: Layout, others: Layout) -> tuple[Tensor, Tensor]:
    """Return for each token where the sentence of the same number begins and ends in the other layout."""
    offsets, sentences = others.offsets, tokens.sentences
    return offsets.index_select(0, sentences), offsets.index_select(0, sentences + 1)


def _narrow(
    limits: tuple[Tensor, Tensor], place: Tensor, before: int | None, after: int | None
) -> tuple[Tensor, Tensor]:
    """Return the ranges limited to this many tokens before and after each token's own place."""
    first, end = limits
    first = first if before is None else torch.maximum(first, place - before)
    return first, end if after is None else torch.minimum(end, place + after + 1)


def attend(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHV: Tensor,
    mask: AttentionMask,
    *,
    backend: AttentionBackend = "auto",
    drop: Dropout | None = None,
) -> Tensor:
    """Return for each query the weighted mean of the values that it may attend to: [N, H, V]. `drop` drops weights."""
    if backend == "auto":
        backend = pick_backend(q_NHK, v_MHV, drop)
    if backend == "tiled":
        if not tiled_fits(q_NHK, v_MHV):
            raise ConfigError(
                "tiled attention needs a GPU, Triton, half precision and heads of width 256 or less; use attention=auto"
            )
        from regard.kernels.attention import attend_tiled

        return attend_tiled(q_NHK, k_MHK, v_MHV, mask.ranges, None if drop is None else drop.draw(q_NHK.device))
    if backend == "varlen":
        assert drop is None, "varlen attention has no dropout on its weights"
        if not varlen_fits(q_NHK, v_MHV):
            raise ConfigError(
                "varlen attention needs a GPU, half precision and heads of one width up to 256; use attention=auto"
            )
        return _attend_varlen(q_NHK, k_MHK, v_MHV, mask)
    if mask.banded:
        inner = partial(_sdpa if backend == "sdpa" else _written_out, drop=drop)
        assert mask.window is not None
        return attend_banded(q_NHK, k_MHK, v_MHV, mask.ranges, mask.window, causal=mask.causal, inner=inner)
    if backend == "sdpa":
        return _attend_sdpa(q_NHK, k_MHK, v_MHV, mask, drop)
    return attend_explicit(q_NHK, k_MHK, v_MHV, mask, drop)[0]


def pick_backend(q_NHK: Tensor, v_MHV: Tensor, drop: Dropout | None = None) -> AttentionBackend:
    """Return the fastest backend that supports these inputs."""
    if tiled_fits(q_NHK, v_MHV):
        return "tiled"
    return "varlen" if drop is None and varlen_fits(q_NHK, v_MHV) else "sdpa"


def tiled_fits(q_NHK: Tensor, v_MHV: Tensor) -> bool:
    """Return whether our kernel supports these inputs."""
    half = q_NHK.dtype in (torch.bfloat16, torch.float16) or kernels.interpreted()
    return half and kernels.usable(q_NHK) and max(q_NHK.size(-1), v_MHV.size(-1)) <= kernels.WIDEST_HEAD


def attend_explicit(
    q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, mask: AttentionMask, drop: Dropout | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return what `attend` returns, and the weights of each sentence: [H, queries, keys]."""
    outputs, all_weights = [], []
    queries, keys = list(mask.queries.lengths), list(mask.keys.lengths)
    for q, k, v in zip(q_NHK.split(queries), k_MHK.split(keys), v_MHV.split(keys), strict=True):
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        scores = (
            q @ k.transpose(1, 2) * q.size(-1) ** -0.5
        )  # keeps the variance near 1 at any head width (section 3.2.1)
        allowed = mask.allowed(scores.size(1), scores.size(2))
        if allowed is not None:
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = scores.softmax(dim=-1)
        all_weights.append(weights)
        outputs.append(((weights if drop is None else drop(weights)) @ v).transpose(0, 1))
    return torch.cat(outputs), all_weights


def _attend_sdpa(q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, mask: AttentionMask, drop: Dropout | None) -> Tensor:
    q_BHTK = mask.queries.pad(q_NHK).transpose(1, 2)
    k_BHSK = mask.keys.pad(k_MHK).transpose(1, 2)
    v_BHSV = mask.keys.pad(v_MHV).transpose(1, 2)
    bias = mask.bias if mask.bias is None else mask.bias.to(q_NHK.dtype)
    out_BHTV = _sdpa(q_BHTK, k_BHSK, v_BHSV, bias, drop=drop)
    return mask.queries.unpad(out_BHTV.transpose(1, 2))


def _sdpa(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, bias: Tensor | None, *, drop: Dropout | None) -> Tensor:
    if drop is not None:
        # The fused kernel would draw its own randomness.
        return _written_out(q_BHTK, k_BHSK, v_BHSV, bias, drop=drop)
    with _without_cudnn() if q_BHTK.is_cuda else nullcontext():
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, attn_mask=bias)


@contextmanager
def _without_cudnn() -> Iterator[None]:
    """Disable PyTorch's cuDNN attention inside the context.

    Its masked backward pass can return NaN on H100 and H200 since PyTorch 2.11 (pytorch issue 196678).
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def _written_out(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, bias: Tensor | None, *, drop: Dropout | None
) -> Tensor:
    scores = q_BHTK @ k_BHSK.transpose(2, 3) * q_BHTK.size(-1) ** -0.5
    weights = (scores if bias is None else scores + bias).softmax(dim=-1)
    return (weights if drop is None else drop(weights)) @ v_BHSV


def varlen_fits(q_NHK: Tensor, v_MHV: Tensor) -> bool:
    """Return whether PyTorch's varlen kernel supports these inputs: CUDA, half precision, keys and values of one width."""
    half, width = q_NHK.dtype in (torch.bfloat16, torch.float16), q_NHK.size(-1)
    fits = width == v_MHV.size(-1) and width % 8 == 0 and width <= 256  # widths that flash kernels support
    return q_NHK.is_cuda and half and fits and _varlen() is not None


@cache
def _varlen() -> tuple[Callable[..., Any], bool] | None:
    """Return PyTorch's varlen kernel and whether it takes a window, or None if this PyTorch has no such kernel."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn, "window_size" in inspect.signature(varlen_attn).parameters


def _attend_varlen(q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, mask: AttentionMask) -> Tensor:
    found = _varlen()
    assert found is not None, "this PyTorch has no varlen attention"
    varlen_attn, takes_window = found
    left = -1 if mask.window is None else mask.window
    right = 0 if mask.causal else left
    if takes_window:
        limits: dict[str, Any] = {"window_size": (left, right)}
    else:  # PyTorch 2.10 has no window, and a separate option for causal attention
        assert mask.window is None, "this PyTorch's varlen attention has no window"
        limits = {"is_causal": mask.causal}
    out: Tensor = varlen_attn(
        q_NHK.contiguous(), k_MHK.contiguous(), v_MHV.contiguous(),  # unaligned views can fault
        mask.queries.offsets, mask.keys.offsets, mask.queries.longest, mask.keys.longest, **limits,
    )  # fmt: skip
    return out
