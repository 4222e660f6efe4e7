"""What the layers of a decoder read and write during a search on the device, in tensors that keep their addresses.

A CUDA graph of a step then serves every search that fits: how far the search is and how much room its outputs have are
numbers on the device. Each sentence has a place. Rows come in groups, one group per sentence and one row per beam, and
`places` says which sentence a group belongs to: where sentences are finished, a smaller graph continues with the others,
and nothing is moved.

Nothing is copied when a beam continues another one either: each row knows at which beam its ancestor was at each step.

Shapes: B groups, Q beams, R = B * Q rows, P places, T steps that there is room for, M source tokens, L layers, H heads,
        K width of a key, V width of a value, S source tokens of the longest sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from regard import kernels


class Number(IntEnum):
    """The places of the numbers that the kernels read on the device."""

    POSITION = 0  # of the next token
    STEPS = 1  # T
    MIN_LENGTH = 2
    EARLY_STOPPING = 3  # 0: False, 1: True, 2: never
    NBEST = 4


@dataclass(frozen=True)
class DecoderShape:
    """What a pool must know of a decoder."""

    num_layers: int
    num_heads: int
    key_width: int
    value_width: int
    window: int | None
    dtype: torch.dtype
    device: torch.device


class DecoderPool:
    """Keys, values and ancestors of all rows, and the keys and values of the sources.

    There is room for `sentences`, for `slots` of one row and step each, and for `tokens` of the sources.
    """

    def __init__(self, shape: DecoderShape, *, beams: int, sentences: int, slots: int, tokens: int) -> None:
        self.shape, self.beams = shape, beams
        self.sentences, self.slots, self.tokens = sentences, slots, tokens
        L, H, K, V = shape.num_layers, shape.num_heads, shape.key_width, shape.value_width
        self.keys = torch.zeros(L, slots * H * K, dtype=shape.dtype, device=shape.device)
        self.values = torch.zeros(L, slots * H * V, dtype=shape.dtype, device=shape.device)
        # Of each token: for each layer the keys of all heads, then their values.
        self.memory = torch.zeros(tokens, L, H * (K + V), dtype=shape.dtype, device=shape.device)
        self.numbers = self._integers(len(Number))
        self.offsets = self._integers(sentences + 2)  # of the tokens of each place
        self.places = torch.arange(sentences, dtype=torch.int32, device=shape.device)
        self.ancestors = self._integers(slots)  # [P, Q, T]
        self.steps = 0  # T, for the host
        self.longest = 0  # S, for the host

    def _integers(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32, device=self.shape.device)

    def position(self) -> Tensor:
        """Return the position of the next token, which is the same in all rows: [1]."""
        return self.numbers[:1]

    def attend_past(self, layer: int, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor) -> Tensor:
        """Add one token per row, and return its attention to its past and itself: [R, H * V]."""
        keys, values = self.keys[layer], self.values[layer]
        if kernels.usable(q_RHK):
            from regard.kernels.step_attention import attend_past

            return attend_past(
                q_RHK, k_RHK, v_RHV, keys, values, ancestors=self.ancestors, places=self.places, numbers=self.numbers,
                beams=self.beams, window=self.shape.window,
            )  # fmt: skip
        (R, H, K), V, Q, T = q_RHK.shape, v_RHV.size(2), self.beams, self.steps
        places, position = self.places[: R // Q].long(), int(self.numbers[Number.POSITION])
        begin = 0 if self.shape.window is None else max(0, position - self.shape.window)
        used = self.slots // (Q * T) * Q * T
        keys_PTQHK, values_PTQHV = (
            keys[: used * H * K].view(-1, T, Q, H, K),
            values[: used * H * V].view(-1, T, Q, H, V),
        )
        keys_PTQHK[places, position] = k_RHK.view(-1, Q, H, K)
        values_PTQHV[places, position] = v_RHV.view(-1, Q, H, V)
        own_BQ1 = torch.arange(Q, device=places.device).expand(len(places), Q)[:, :, None]
        past_BQT = self.ancestors[:used].view(-1, Q, T)[places][:, :, begin:position].long()
        seen = (
            places[:, None, None],
            torch.arange(begin, position + 1, device=places.device),
            torch.cat([past_BQT, own_BQ1], dim=2),
        )
        scores = torch.einsum("bqhk,bqthk->bqht", q_RHK.view(-1, Q, H, K) * K**-0.5, keys_PTQHK[seen])
        return torch.einsum("bqht,bqthv->bqhv", scores.softmax(dim=-1), values_PTQHV[seen]).reshape(R, -1)

    def attend_memory(self, layer: int, q_RHK: Tensor) -> Tensor:
        """Return the attention of one token per row to the source of its sentence: [R, H * V]."""
        memory_MW, V = self.memory[:, layer], self.shape.value_width
        if kernels.usable(q_RHK):
            from regard.kernels.step_attention import attend_memory

            return attend_memory(
                q_RHK, memory_MW, offsets=self.offsets, places=self.places, beams=self.beams, value_width=V
            )
        (R, H, K), Q = q_RHK.shape, self.beams
        places = self.places[: R // Q].long()
        begin_B1, end_B1 = self.offsets[places][:, None], self.offsets[places + 1][:, None]
        token_BS = begin_B1 + torch.arange(self.longest, device=places.device)
        absent_BS = token_BS >= end_B1
        k_BSW, v_BSW = memory_MW[token_BS.masked_fill(absent_BS, 0)].split([H * K, H * V], dim=2)
        scores = torch.einsum("bqhk,bshk->bqhs", q_RHK.view(-1, Q, H, K) * K**-0.5, k_BSW.unflatten(2, (H, K)))
        weights = scores.masked_fill_(absent_BS[:, None, None], float("-inf")).softmax(dim=-1).nan_to_num_(0.0)
        return torch.einsum("bqhs,bshv->bqhv", weights, v_BSW.unflatten(2, (H, V))).reshape(R, -1)

    def take_over(self, other: DecoderPool, steps: int) -> None:
        """Continue from a pool with room for fewer steps, with room for `steps`."""
        copy_steps(self.ancestors, other.ancestors, self.beams, other.steps, steps)
        H, K, V = self.shape.num_heads, self.shape.key_width, self.shape.value_width
        for layer in range(self.shape.num_layers):
            copy_steps(self.keys[layer], other.keys[layer], 1, other.steps, steps, width=self.beams * H * K)
            copy_steps(self.values[layer], other.values[layer], 1, other.steps, steps, width=self.beams * H * V)
        self.memory[: other.tokens] = other.memory
        self.offsets[: len(other.offsets)] = other.offsets
        self.places[: len(other.places)] = other.places
        self.numbers.copy_(other.numbers)
        self.numbers[Number.STEPS].fill_(steps)  # an assignment would wait for the device
        self.steps = steps
        self.longest = other.longest


def copy_steps(to: Tensor, of: Tensor, rows: int, before: int, after: int, *, width: int = 1) -> None:
    """Copy a tensor of `rows` per place, with `before` steps of so many entries each, to one that has room for `after`."""
    entries = rows * before * width
    old = of[: of.numel() // entries * entries].view(-1, before, width)
    new = to[: to.numel() // (rows * after * width) * (rows * after * width)].view(-1, after, width)
    count = min(len(old), len(new))
    new[:count, :before] = old[:count]
