"""What a decoder keeps during search: the protocols that all models share, and the states of a Transformer.

`TransformerState` grows with the output and shrinks when sentences are dropped. `StaticState` has room for a fixed number of
sentences, source tokens and steps, and masks what is not there; nothing in its step depends on a number that the host
knows, so a step can be captured as a CUDA graph. Both answer `StepState`, which is all that a step asks.

Shapes: B sentences, Q beams, R = B * Q rows, H heads, G = B * H, K head width, S slots of the past, one per step and beam.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from regard.data.ragged import Layout, Ragged
from regard.nn.cache import Ancestry, KeyValueCache, StaticCache, fill_up, fill_up_slots, of_sentences
from regard.nn.copying import CopyState
from regard.nn.layers import LayerState, Stack, TransformerDecoderLayer

MASKED = float("-inf")


Loaded = TypeVar("Loaded", bound="GrowingState", contravariant=True)


class DecoderState(Protocol):
    """What a decoder keeps of the rows that search extends."""

    def expand_beams(self) -> None:
        """Expand each sentence from one row to `beams` rows. Called once, after the first step; skipped for one beam."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue row rows[i].

        All rows of a sentence continue rows of one sentence. Sentences may be dropped, but keep their order.
        """
        ...


class GrowingState(DecoderState, Protocol):
    """A state that says how much it holds, so that a static state can be made for it."""

    num_sentences: int

    @property
    def num_slots(self) -> int:
        """Source slots per sentence, unused ones included."""
        ...


class LoadableState(Protocol[Loaded]):
    """A state whose tensors never change their shapes, and whose steps therefore always compute all of its rows."""

    def load(self, state: Loaded) -> None:
        """Start over with the source of a fresh state."""
        ...

    def take_over(self, other: Self, steps: int) -> None:
        """Continue from a state with room for fewer steps, after so many of them."""
        ...

    def reorder(self, rows: Tensor, *, dropped: bool) -> None:
        """Make row i continue row rows[i], for all rows. `dropped`: whether sentences move, because some were dropped."""
        ...


class StepState(Protocol):
    """What one step of the decoder asks of a state."""

    memory_bias: Tensor  # zero, or minus infinity where a source slot holds no token: [G, 1, slots]
    copied: CopyState | None  # for models that copy tokens of the source

    @property
    def layers(self) -> list[LayerState]: ...

    @property
    def num_positions(self) -> int:
        """A number that the next token's position is below."""
        ...

    def position(self) -> Tensor:
        """Return the position of the next token, which is the same in all rows: [1]."""
        ...

    def own_bias(self) -> Tensor:
        """Return zero for the past slots that each row may attend to, its next token's included: [G, Q, S]."""
        ...

    def advance(self) -> None:
        """Count one more token per row."""
        ...


class TransformerState:
    """A state whose tensors grow with the output."""

    copied: CopyState | None = None

    def __init__(
        self, layers: list[LayerState], source: Layout, *, num_heads: int, beams: int, last: int | None
    ) -> None:
        self.layers = layers
        self.num_sentences, self.num_heads = len(source.lengths), num_heads
        self.max_beams, self.beams = beams, 1  # after `expand_beams`, and now
        self.length = 0  # tokens read so far
        dtype = layers[0].keys.dtype if layers else torch.float32
        self.ancestry = Ancestry(source.device, dtype=dtype, last=last)
        holes_BS = ~source.mask
        bias_BS = torch.zeros(holes_BS.shape, dtype=dtype, device=source.device).masked_fill_(holes_BS, MASKED)
        self.memory_bias = fill_up(bias_BS).repeat_interleave(num_heads, dim=0)[:, None]  # [G, 1, slots]

    # What a step asks

    @property
    def num_positions(self) -> int:
        return self.length + 1

    def position(self) -> Tensor:
        return torch.full((1,), self.length, device=self.memory_bias.device)

    def own_bias(self) -> Tensor:
        return self.ancestry.grow(self.num_heads)

    def advance(self) -> None:
        self.length += 1

    # What search asks

    @property
    def num_slots(self) -> int:
        return self.memory_bias.size(-1)

    def expand_beams(self) -> None:
        self.beams = self.max_beams
        self.ancestry.expand_beams(self.num_sentences, self.beams)
        for layer in self.layers:
            layer.recent = [recent.repeat_interleave(self.beams, dim=0) for recent in layer.recent]

    def reorder(self, rows: Tensor) -> None:
        self.ancestry.reorder(rows)
        for layer in self.layers:
            layer.recent = [recent.index_select(0, rows) for recent in layer.recent]
        if rows.numel() < self.num_sentences * self.beams:
            self._keep(rows.view(-1, self.beams)[:, 0] // self.beams)

    def _keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these."""
        before, self.num_sentences = self.num_sentences, sentences.numel()
        for layer in self.layers:
            layer.own.keep(sentences)
            layer.keys = of_sentences(layer.keys, sentences, before)
            layer.values = of_sentences(layer.values, sentences, before)
        self.memory_bias = of_sentences(self.memory_bias, sentences, before)
        if self.copied is not None:
            self.copied = self.copied.of(sentences)


def start_decoder(
    decoder: Stack[TransformerDecoderLayer], memory: Ragged, *, num_heads: int, window: int | None, beams: int
) -> TransformerState:
    """Return the state before the first token. Keys and values of the memory are computed here, once per sentence."""
    layers = []
    last = None if window is None else window + 1
    num_sentences = len(memory.layout.lengths)
    for layer in decoder:
        k_MHK, v_MHV = layer.cross_attention.keys_values(memory.values)
        k_GSK = fill_up_slots(memory.layout.pad(k_MHK).transpose(1, 2).flatten(0, 1))
        v_GSV = fill_up_slots(memory.layout.pad(v_MHV).transpose(1, 2).flatten(0, 1))
        recent = layer.feed_forward.start(num_sentences)
        layers.append(LayerState(KeyValueCache(num_sentences, beams=beams, last=last), k_GSK, v_GSV, recent))
    return TransformerState(layers, memory.layout, num_heads=num_heads, beams=beams, last=last)


class StaticState:
    """A state with room for `sentences` of at most `slots` source tokens, and for `steps` tokens of each of their beams.

    With a window the whole past keeps its slots, and what lies before the window is masked.
    """

    memory_bias: Tensor
    num_heads: int
    max_beams: int
    copied: CopyState | None = None

    def __init__(
        self, like: TransformerState | StaticState, *, sentences: int, slots: int, steps: int, window: int | None
    ) -> None:
        bias, Q = like.memory_bias, like.max_beams
        self.num_sentences, self.num_heads, self.num_positions = sentences, like.num_heads, steps
        self.max_beams = self.beams = Q  # all beams from the first step on
        device, dtype, G = bias.device, bias.dtype, sentences * like.num_heads
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._place = torch.arange(Q, device=device)  # the slots of the next tokens
        self._own = torch.full((Q, Q), MASKED, dtype=dtype, device=device).fill_diagonal_(0.0)
        self._window = window
        self._step_of_slot = torch.arange(steps, device=device).repeat_interleave(Q)
        self._past = torch.full((sentences, Q, steps * Q), MASKED, dtype=dtype, device=device)
        # Zero until a state is loaded: a softmax in which all is masked is NaN.
        self.memory_bias = torch.zeros((G, 1, slots), dtype=dtype, device=device)
        self.layers: list[LayerState] = []
        self._caches: list[StaticCache] = []
        for layer in like.layers:
            (_, _, K), V = layer.keys.shape, layer.values.size(-1)
            own = StaticCache(bias.new_zeros(G, steps * Q, K), bias.new_zeros(G, steps * Q, V), self._place, sentences)
            keys, values = bias.new_zeros(G, slots, K), bias.new_zeros(G, slots, V)
            self.layers.append(LayerState(own, keys, values, []))
            self._caches.append(own)

    # What a step asks

    def position(self) -> Tensor:
        return self._position

    def own_bias(self) -> Tensor:
        own = self._own.expand(self.num_sentences, -1, -1)
        bias = self._past.index_copy_(2, self._place, own)
        if self._window is not None:
            bias = bias.masked_fill(self._step_of_slot < self._position - self._window, MASKED)
        return bias.repeat_interleave(self.num_heads, dim=0)

    def advance(self) -> None:
        self._position += 1
        self._place += self.beams

    # What search asks

    def load(self, state: TransformerState) -> None:
        """Start over with the source of a fresh state. Sentences that it does not have become copies of its first."""
        self._position.zero_()
        self._place.copy_(torch.arange(self.beams, device=self._place.device))
        self._past.fill_(MASKED)
        slots, count = state.num_slots, state.num_sentences
        sentences = torch.arange(self.num_sentences, device=self._place.device)
        sentences = sentences.masked_fill(sentences >= count, 0)
        self.memory_bias.fill_(MASKED)[:, :, :slots] = of_sentences(state.memory_bias, sentences, count)
        for own, layer in zip(self.layers, state.layers, strict=True):
            own.keys.zero_()[:, :slots] = of_sentences(layer.keys, sentences, count)
            own.values.zero_()[:, :slots] = of_sentences(layer.values, sentences, count)

    def take_over(self, other: StaticState, steps: int) -> None:
        """Continue from a state with room for fewer steps, after so many of them."""
        used = steps * self.beams
        self._position.copy_(other._position)
        self._place.copy_(other._place)
        self._past.fill_(MASKED)[:, :, :used] = other._past[:, :, :used]
        self.memory_bias.copy_(other.memory_bias)
        for cache, before in zip(self._caches, other._caches, strict=True):
            cache.keys[:, :used] = before.keys[:, :used]
            cache.values[:, :used] = before.values[:, :used]
        for layer, old in zip(self.layers, other.layers, strict=True):
            layer.keys.copy_(old.keys)
            layer.values.copy_(old.values)

    def reorder(self, rows: Tensor, *, dropped: bool) -> None:
        """Make row i continue row rows[i], for all rows. `dropped`: whether sentences move, because some were dropped."""
        past = self._past.flatten(0, 1).index_select(0, rows)
        self._past.copy_(past.unflatten(0, (-1, self.beams)))
        if not dropped:
            return
        sentences, B = rows.view(-1, self.beams)[:, 0] // self.beams, self.num_sentences
        self.memory_bias.copy_(of_sentences(self.memory_bias, sentences, B))
        for layer in self.layers:
            layer.own.keep(sentences)
            layer.keys.copy_(of_sentences(layer.keys, sentences, B))
            layer.values.copy_(of_sentences(layer.values, sentences, B))
