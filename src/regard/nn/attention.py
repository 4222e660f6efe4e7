"""Multi-head attention (section 3.2.2): the same `attend` for the three places the paper uses it.

Self-attention of the encoder, masked self-attention of the decoder, and encoder-decoder attention. Each works on a whole
ragged batch in training, and one token a row in search, where the rows of one sentence's beams look into shared keys.

Shapes: N query tokens, M key tokens, D model width, H heads, K key width, V value width,
        B sentences, Q rows a sentence (its beams), R = B * Q rows, G = B * H, S keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.kernels import cpu
from regard.kernels.split_columns import split_columns
from regard.nn.attend import AttentionMask, Backend, attend, attend_explicit
from regard.nn.attention_log import current_log
from regard.nn.cache import KeyValueCache, StaticCache, by_head, by_row
from regard.nn.dropout import Dropout, Noise
from regard.nn.linear import Linear
from regard.nn.norms import Norm
from regard.nn.positions import Rotation

# Whether many small products are one call on a CPU. Without MKL they are a loop (LOG.md, "On a Neoverse N1").
BATCHED_PRODUCTS = torch.backends.mkl.is_available()


@dataclass(frozen=True)
class HeadShape:
    """How many heads, and how wide their queries and keys, and their values, are."""

    num_heads: int
    key_width: int
    value_width: int
    normed: bool = False  # queries and keys pass through an RMSNorm each (Henry et al. 2020)


class MultiHead(nn.Module):
    """What both kinds share: heads, dropout on the weights, and the output projection W^O. No biases, as published."""

    def __init__(self, width: int, shape: HeadShape, *, dropout: float, noise: Noise, backend: Backend) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = Dropout(dropout, noise)
        self.backend = backend
        self.output = Linear(shape.num_heads * shape.value_width, [width], bias=False)
        self.query_norm = Norm("rms", shape.key_width) if shape.normed else None
        self.key_norm = Norm("rms", shape.key_width) if shape.normed else None

    def look(self, q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, mask: AttentionMask) -> Tensor:
        """Attention over a whole batch, heads joined and projected: [N, D]."""
        drop = self.dropout if self.dropout.active else None
        seen = current_log()
        if seen is None:
            heads_NHV = attend(q_NHK, k_MHK, v_MHV, mask, backend=self.backend, drop=drop)
        else:
            heads_NHV, weights = attend_explicit(q_NHK, k_MHK, v_MHV, mask, drop)
            seen.add(self, weights)
        return self.output(heads_NHV.flatten(1))

    def attend_step(self, q_RHK: Tensor, k_GSK: Tensor, v_GSV: Tensor, bias_GQS: Tensor) -> Tensor:
        """Attention of one token a row into its sentence's keys, heads joined and projected: [R, D].

        For so few queries two batched products beat the fused kernel, where they are one call each.
        The bias may be wider than long.
        """
        if cpu.usable(q_RHK):
            return self.output(cpu.look(q_RHK, k_GSK, v_GSV, bias_GQS))
        num_sentences = k_GSK.size(0) // q_RHK.size(1)
        if not BATCHED_PRODUCTS and not q_RHK.is_cuda:
            return self.output(_look_fused(q_RHK, k_GSK, v_GSV, bias_GQS, num_sentences))
        q_GQK = by_head(q_RHK, num_sentences)
        scale = q_GQK.size(-1) ** -0.5
        scores_GQS = torch.baddbmm(bias_GQS, q_GQK, k_GSK.transpose(1, 2), alpha=scale)
        heads_GQV = torch.bmm(scores_GQS.softmax(dim=-1), v_GSV)
        return self.output(by_row(heads_GQV, num_sentences))


class SelfAttention(MultiHead):
    """Queries, keys and values of one sequence, from one projection."""

    def __init__(self, width: int, shape: HeadShape, *, dropout: float, noise: Noise, backend: Backend) -> None:
        super().__init__(width, shape, dropout=dropout, noise=noise, backend=backend)
        H, K, V = shape.num_heads, shape.key_width, shape.value_width
        self.project = Linear(width, [H * K, H * K, H * V], bias=False)

    def _split(self, projected: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        H, K, V = self.shape.num_heads, self.shape.key_width, self.shape.value_width
        q, k, v = split_columns(projected, [H * K, H * K, H * V])
        q_NHK, k_NHK, v_NHV = q.view(-1, H, K), k.view(-1, H, K), v.view(-1, H, V)
        q_NHK, k_NHK = _normed(q_NHK, self.query_norm), _normed(k_NHK, self.key_norm)
        return (q_NHK, k_NHK, v_NHV) if rotation is None else (rotation(q_NHK), rotation(k_NHK), v_NHV)

    def forward(self, x_ND: Tensor, mask: AttentionMask, rotation: Rotation | None = None) -> tuple[Tensor, Tensor]:
        """The branch, and the input again (`Linear.and_input`)."""
        projected, x_ND = self.project.and_input(x_ND)
        return self.look(*self._split(projected, rotation), mask), x_ND

    def step(
        self, x_RD: Tensor, cache: KeyValueCache | StaticCache, bias_GQS: Tensor, rotation: Rotation | None = None
    ) -> Tensor:
        """One more token a row: its keys and values join the cache, then it looks at all that the bias lets it see."""
        q_RHK, k_RHK, v_RHV = self._split(self.project(x_RD), rotation)
        keys, values = cache.append(k_RHK, v_RHV)
        return self.attend_step(q_RHK, keys, values, bias_GQS)


class CrossAttention(MultiHead):
    """Queries of the decoder, keys and values of the encoder's output."""

    def __init__(self, width: int, shape: HeadShape, *, dropout: float, noise: Noise, backend: Backend) -> None:
        super().__init__(width, shape, dropout=dropout, noise=noise, backend=backend)
        H, K, V = shape.num_heads, shape.key_width, shape.value_width
        self.query = Linear(width, [H * K], bias=False)
        self.memory = Linear(width, [H * K, H * V], bias=False)

    def keys_values(self, memory_MD: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output as keys [M, H, K] and values [M, H, V]; search computes them once a sentence."""
        H, K, V = self.shape.num_heads, self.shape.key_width, self.shape.value_width
        k, v = split_columns(self.memory(memory_MD), [H * K, H * V])
        return _normed(k.view(-1, H, K), self.key_norm), v.view(-1, H, V)

    def _queries(self, q: Tensor) -> Tensor:
        return _normed(q.view(-1, self.shape.num_heads, self.shape.key_width), self.query_norm)

    def forward(self, x_ND: Tensor, memory_MD: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor]:
        """The branch, and the input again (`Linear.and_input`)."""
        projected, x_ND = self.query.and_input(x_ND)
        return self.look(self._queries(projected), *self.keys_values(memory_MD), mask), x_ND

    def step(self, x_RD: Tensor, k_GSK: Tensor, v_GSV: Tensor, bias_GQS: Tensor) -> Tensor:
        """One token a row, into keys and values that all beams of a sentence share."""
        return self.attend_step(self._queries(self.query(x_RD)), k_GSK, v_GSV, bias_GQS)


class PositionalAttention(MultiHead):
    """Queries and keys of positions, values of the sequence: where to look, whatever stands there (Gu et al. 2018)."""

    def __init__(self, width: int, shape: HeadShape, *, dropout: float, noise: Noise, backend: Backend) -> None:
        super().__init__(width, shape, dropout=dropout, noise=noise, backend=backend)
        H, K, V = shape.num_heads, shape.key_width, shape.value_width
        self.places = Linear(width, [H * K, H * K], bias=False)
        self.value = Linear(width, [H * V], bias=False)

    def forward(self, x_ND: Tensor, places_ND: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor]:
        """The branch, and the input again (`Linear.and_input`)."""
        H, K, V = self.shape.num_heads, self.shape.key_width, self.shape.value_width
        v, x_ND = self.value.and_input(x_ND)
        q, k = split_columns(self.places(places_ND), [H * K, H * K])
        q_NHK, k_NHK = _normed(q.view(-1, H, K), self.query_norm), _normed(k.view(-1, H, K), self.key_norm)
        return self.look(q_NHK, k_NHK, v.view(-1, H, V), mask), x_ND


def _look_fused(q_RHK: Tensor, k_GSK: Tensor, v_GSV: Tensor, bias_GQS: Tensor, num_sentences: int) -> Tensor:
    """What `attend_step` projects, from PyTorch's fused kernel."""
    R, H, K = q_RHK.shape
    q_BHQK = q_RHK.view(num_sentences, -1, H, K).transpose(1, 2)
    k_BHSK, v_BHSV = k_GSK.unflatten(0, (num_sentences, H)), v_GSV.unflatten(0, (num_sentences, H))
    bias = bias_GQS[None] if bias_GQS.size(0) == 1 else bias_GQS.unflatten(0, (num_sentences, H))
    seen = bias.expand(-1, -1, q_BHQK.size(2), k_BHSK.size(2))
    heads_BHQV = F.scaled_dot_product_attention(q_BHQK, k_BHSK, v_BHSV, attn_mask=seen)
    return heads_BHQV.transpose(1, 2).reshape(R, -1)


def _normed(x_NHK: Tensor, norm: Norm | None) -> Tensor:
    """Each head's vector normed, where asked for."""
    return x_NHK if norm is None else norm(x_NHK.flatten(0, 1)).view(x_NHK.shape)
