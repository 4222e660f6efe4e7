"""Multi-head attention (section 3.2.2).

`SelfAttention`, `CrossAttention` and `PositionalAttention` are sub-layers of our models. They take flat tensors, and have a
`step` for search: one token per row, where the beams of a sentence share its keys. They return their output and their input
(see `Linear.and_input`). `MultiHeadAttention` is for use on its own, over batches in any form. All call `attend`.

Shapes: N query tokens, M key tokens, D model width, H heads, K key width, V value width,
        B sentences, Q rows per sentence (its beams), R = B * Q rows, G = B * H, S keys.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config.transformer import AttentionBackend, HeadShape
from regard.errors import ConfigError, DataError
from regard.kernels.split_columns import split_columns
from regard.messages import counted
from regard.nn.attend import AttentionMask, attend, attend_explicit
from regard.nn.attention_log import ENCODER_DECODER, POSITIONS, AttentionKind, current_log
from regard.nn.cache import KeyValueCache, StaticCache, by_head, by_row
from regard.nn.decoder_pool import DecoderPool
from regard.nn.dropout import Dropout, Noise
from regard.nn.linear import Linear
from regard.nn.norms import Norm
from regard.nn.positions import Rotation
from regard.nn.sequences import Sequences, Tokens, flatten

# Whether a batched product is one call on a CPU. Without MKL it is a loop (LOG.md, "On a Neoverse N1").
BATCHED_PRODUCTS = torch.backends.mkl.is_available()


def head_shape(width: int, heads: int | HeadShape) -> HeadShape:
    """Return the shape of this many heads that share the width equally, or the shape given."""
    if isinstance(heads, HeadShape):
        return heads
    if heads < 1 or width % heads:
        raise ConfigError(f"width is {width}, not a multiple of {heads} heads; give a HeadShape for other widths")
    return HeadShape(heads, width // heads, width // heads)


class MultiHead(nn.Module):
    """What all kinds share: heads, dropout on the weights, and the output projection W^O."""

    kind: AttentionKind | None = None  # None: self-attention, of an encoder or a decoder

    def __init__(
        self,
        width: int,
        shape: HeadShape,
        *,
        dropout: float,
        noise: Noise | None = None,
        backend: AttentionBackend = "auto",
    ) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = Dropout(dropout, noise)
        self.backend = backend
        self.output = Linear(shape.num_heads * shape.value_width, [width], bias=shape.bias)
        self.query_norm = Norm("rms", shape.key_width) if shape.normed else None
        self.key_norm = Norm("rms", shape.key_width) if shape.normed else None

    def attend_batch(self, q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, mask: AttentionMask) -> Tensor:
        """Return the attention of a whole batch, heads joined and projected: [N, D]."""
        drop = self.dropout if self.dropout.active else None
        log = current_log()
        if log is None:
            heads_NHV = attend(q_NHK, k_MHK, v_MHV, mask, backend=self.backend, drop=drop)
        else:
            heads_NHV, weights = attend_explicit(q_NHK, k_MHK, v_MHV, mask, drop)
            log.add(self, weights, self.kind)
            log.products[self] = (q_NHK.detach(), k_MHK.detach())
        return self.output(heads_NHV.flatten(1))

    def attend_step(self, q_RHK: Tensor, k_GSK: Tensor, v_GSV: Tensor, bias_GQS: Tensor) -> Tensor:
        """Return the attention of one token per row to its sentence's keys, heads joined and projected: [R, D].

        For so few queries two batched products are faster than the fused kernel, if each of them is one call.
        The bias may have size 1 in its first two dimensions.
        """
        num_sentences = k_GSK.size(0) // q_RHK.size(1)
        if not BATCHED_PRODUCTS and not q_RHK.is_cuda:
            return self.output(_attend_step_fused(q_RHK, k_GSK, v_GSV, bias_GQS, num_sentences))
        q_GQK = by_head(q_RHK, num_sentences)
        scale = q_GQK.size(-1) ** -0.5
        scores_GQS = torch.baddbmm(bias_GQS, q_GQK, k_GSK.transpose(1, 2), alpha=scale)
        heads_GQV = torch.bmm(scores_GQS.softmax(dim=-1), v_GSV)
        return self.output(by_row(heads_GQV, num_sentences))

    def _queries(self, q: Tensor) -> Tensor:
        """[N, H * K] to normed queries [N, H, K]."""
        return _normed(q.view(-1, self.shape.num_heads, self.shape.key_width), self.query_norm)

    def _keys(self, k: Tensor) -> Tensor:
        """[M, H * K] to normed keys [M, H, K]."""
        return _normed(k.view(-1, self.shape.num_heads, self.shape.key_width), self.key_norm)

    def _values(self, v: Tensor) -> Tensor:
        """[M, H * V] to [M, H, V]."""
        return v.view(-1, self.shape.num_heads, self.shape.value_width)

    @property
    def _widths(self) -> tuple[int, int]:
        """Widths of the keys and of the values of all heads."""
        return self.shape.num_heads * self.shape.key_width, self.shape.num_heads * self.shape.value_width


class SelfAttention(MultiHead):
    """Attention whose queries, keys and values come from one sequence, by one projection."""

    def __init__(
        self,
        width: int,
        shape: HeadShape,
        *,
        dropout: float,
        noise: Noise | None = None,
        backend: AttentionBackend = "auto",
    ) -> None:
        super().__init__(width, shape, dropout=dropout, noise=noise, backend=backend)
        keys, values = self._widths
        self.project = Linear(width, [keys, keys, values], bias=shape.bias)

    def _split(self, projected: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = self._widths
        q, k, v = split_columns(projected, [keys, keys, values])
        q_NHK, k_NHK, v_NHV = self._queries(q), self._keys(k), self._values(v)
        return (q_NHK, k_NHK, v_NHV) if rotation is None else (rotation(q_NHK), rotation(k_NHK), v_NHV)

    def forward(self, x_ND: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor]:
        """Return the output and the input."""
        rotation = mask.rotation(self.shape.key_width) if self.shape.rotary else None
        projected, x_ND = self.project.and_input(x_ND)
        return self.attend_batch(*self._split(projected, rotation), mask), x_ND

    def step(
        self, x_RD: Tensor, cache: KeyValueCache | StaticCache, bias_GQS: Tensor, rotation: Rotation | None = None
    ) -> Tensor:
        """Return the output for one more token per row, and add its key and value to the cache."""
        q_RHK, k_RHK, v_RHV = self._split(self.project(x_RD), rotation)
        keys, values = cache.append(k_RHK, v_RHV)
        return self.attend_step(q_RHK, keys, values, bias_GQS)

    def step_in_pool(self, x_RD: Tensor, pool: DecoderPool, layer: int, rotation: Rotation | None = None) -> Tensor:
        """Return what `step` returns. The keys and values are those of a layer of the pool."""
        return self.output(pool.attend_past(layer, *self._split(self.project(x_RD), rotation)))


class CrossAttention(MultiHead):
    """Attention whose queries come from the decoder, and whose keys and values come from the encoder's output."""

    kind = ENCODER_DECODER

    def __init__(
        self,
        width: int,
        shape: HeadShape,
        *,
        dropout: float,
        noise: Noise | None = None,
        backend: AttentionBackend = "auto",
    ) -> None:
        super().__init__(width, shape, dropout=dropout, noise=noise, backend=backend)
        keys, values = self._widths
        self.query = Linear(width, [keys], bias=shape.bias)
        self.memory = Linear(width, [keys, values], bias=shape.bias)

    def keys_values(self, memory_MD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys [M, H, K] and values [M, H, V] of the encoder's output. Search computes them once per sentence."""
        k, v = split_columns(self.memory(memory_MD), self._widths)
        return self._keys(k), self._values(v)

    def write_keys_values(self, memory_MD: Tensor, out_MW: Tensor) -> None:
        """Write what `keys_values` returns into a matrix: for each token the keys of all heads, then their values."""
        if memory_MD.is_cuda and self.key_norm is None:
            bias: Tensor | None = self.memory.bias
            torch.mm(memory_MD, self.memory.weight.t(), out=out_MW)
            if bias is not None:
                out_MW += bias
            return
        k_MHK, v_MHV = self.keys_values(memory_MD)
        torch.cat([k_MHK.flatten(1), v_MHV.flatten(1)], dim=1, out=out_MW)

    def forward(self, x_ND: Tensor, memory_MD: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor]:
        """Return the output and the input."""
        projected, x_ND = self.query.and_input(x_ND)
        return self.attend_batch(self._queries(projected), *self.keys_values(memory_MD), mask), x_ND

    def step(self, x_RD: Tensor, k_GSK: Tensor, v_GSV: Tensor, bias_GQS: Tensor) -> Tensor:
        """Return the output for one token per row. All beams of a sentence share its keys and values."""
        return self.attend_step(self._queries(self.query(x_RD)), k_GSK, v_GSV, bias_GQS)

    def step_in_pool(self, x_RD: Tensor, pool: DecoderPool, layer: int) -> Tensor:
        """Return what `step` returns. The keys and values are those of a layer of the pool."""
        return self.output(pool.attend_memory(layer, self._queries(self.query(x_RD))))


class PositionalAttention(MultiHead):
    """Attention whose queries and keys come from positions, and whose values come from the sequence (Gu et al. 2018)."""

    kind = POSITIONS

    def __init__(
        self,
        width: int,
        shape: HeadShape,
        *,
        dropout: float,
        noise: Noise | None = None,
        backend: AttentionBackend = "auto",
    ) -> None:
        super().__init__(width, shape, dropout=dropout, noise=noise, backend=backend)
        keys, values = self._widths
        self.places = Linear(width, [keys, keys], bias=shape.bias)
        self.value = Linear(width, [values], bias=shape.bias)

    def forward(self, x_ND: Tensor, places_ND: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor]:
        """Return the output and the input."""
        keys, _ = self._widths
        v, x_ND = self.value.and_input(x_ND)
        q, k = split_columns(self.places(places_ND), [keys, keys])
        return self.attend_batch(self._queries(q), self._keys(k), self._values(v), mask), x_ND


class MultiHeadAttention(SelfAttention):
    """Multi-head attention for use on its own: to the sequence itself, or to a memory.

    >>> attention = MultiHeadAttention(512, heads=8)
    >>> y = attention(x, mask, causal=True)                             # x [B, T, D], mask [B, T], True for real tokens
    >>> y = attention(x, mask, memory=encoded, memory_mask=source_mask)
    >>> y = attention(ragged)                                           # a Ragged of [N, D]

    `project.weight` stacks the rows of W^Q, W^K and W^V, as `in_proj_weight` of `torch.nn.MultiheadAttention` does;
    `output.weight` is W^O. Without `noise`, dropout uses PyTorch's global generators.
    """

    def __init__(
        self,
        width: int,
        heads: int | HeadShape,
        *,
        dropout: float = 0.0,
        noise: Noise | None = None,
        backend: AttentionBackend = "auto",
    ) -> None:
        super().__init__(width, head_shape(width, heads), dropout=dropout, noise=noise, backend=backend)

    def forward(  # type: ignore[override]
        self,
        x: Sequences,
        mask: Tensor | AttentionMask | None = None,
        *,
        memory: Sequences | None = None,
        memory_mask: Tensor | AttentionMask | None = None,
        causal: bool = False,
        window: int | None = None,
    ) -> Sequences:
        """Return the output in the form of x (see `nn.sequences`).

        `causal` hides later positions, and `window` those that are more than this far away; both are for self-attention.
        An AttentionMask as `mask` (self-attention) or as `memory_mask` replaces both, and gives a flat tensor its layout.
        """
        if memory is None:
            tokens, own = flatten_own(x, mask, causal=causal, window=window)
            return tokens.restore(super().forward(tokens.values, own)[0])
        if causal or window is not None:
            raise DataError("causal and window are for self-attention; leave them out, or leave out the memory")
        given = memory_mask if isinstance(memory_mask, AttentionMask) else mask
        tokens = flatten(x, given.queries if isinstance(given, AttentionMask) else given)
        memory_MD, across = flatten_memory(tokens, memory, memory_mask)
        keys, values = self._widths
        q, kv = self._project(tokens.values, 0, keys), self._project(memory_MD, keys, 2 * keys + values)
        k, v = kv.split([keys, values], dim=-1)
        return tokens.restore(self.attend_batch(self._queries(q), self._keys(k), self._values(v), across))

    def _project(self, x_ND: Tensor, begin: int, end: int) -> Tensor:
        """Return these columns of the projection."""
        bias = self.project.bias
        return F.linear(x_ND, self.project.weight[begin:end], None if bias is None else bias[begin:end])


def flatten_own(
    x: Sequences, mask: Tensor | AttentionMask | None, *, causal: bool, window: int | None
) -> tuple[Tokens, AttentionMask]:
    """Return the real tokens of a batch, and the mask of self-attention."""
    if not isinstance(mask, AttentionMask):
        tokens = flatten(x, mask)
        return tokens, AttentionMask(tokens.layout, causal=causal, window=window)
    if causal or window is not None:
        raise DataError("an AttentionMask was given together with causal or window; give them to AttentionMask instead")
    return flatten(x, mask.queries), mask


def flatten_memory(
    tokens: Tokens, memory: Sequences, memory_mask: Tensor | AttentionMask | None
) -> tuple[Tensor, AttentionMask]:
    """Return the real tokens of the memory, [M, D], and the mask of cross-attention to them."""
    if isinstance(memory_mask, AttentionMask):
        return flatten(memory, memory_mask.keys).values, memory_mask
    found = flatten(memory, memory_mask)
    if found.layout.num_sentences != tokens.layout.num_sentences:
        raise DataError(
            f"the batch has {counted(tokens.layout.num_sentences, 'sentence')} but the memory has "
            f"{found.layout.num_sentences}; give one memory per sentence"
        )
    return found.values, AttentionMask(tokens.layout, found.layout)


def _attend_step_fused(q_RHK: Tensor, k_GSK: Tensor, v_GSV: Tensor, bias_GQS: Tensor, num_sentences: int) -> Tensor:
    """Return what `attend_step` projects, computed by PyTorch's fused kernel."""
    R, H, K = q_RHK.shape
    q_BHQK = q_RHK.view(num_sentences, -1, H, K).transpose(1, 2)
    k_BHSK, v_BHSV = k_GSK.unflatten(0, (num_sentences, H)), v_GSV.unflatten(0, (num_sentences, H))
    bias = bias_GQS[None] if bias_GQS.size(0) == 1 else bias_GQS.unflatten(0, (num_sentences, H))
    seen = bias.expand(-1, -1, q_BHQK.size(2), k_BHSK.size(2))
    heads_BHQV = F.scaled_dot_product_attention(q_BHQK, k_BHSK, v_BHSV, attn_mask=seen)
    return heads_BHQV.transpose(1, 2).reshape(R, -1)


def _normed(x_NHK: Tensor, norm: Norm | None) -> Tensor:
    """Return each head's vectors, normed if there is a norm."""
    return x_NHK if norm is None else norm(x_NHK.flatten(0, 1)).view(x_NHK.shape)
