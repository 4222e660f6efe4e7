"""What a model is: the contract that training and search rely on, and nothing else.

    memory = model.encode(source)                once a sentence
    loss = model(batch, smoothing=0.1)           training

A `Seq2Seq` writes token by token:

    logits = model.decode(target, memory)        all positions at once
    state = model.start(memory, beams=4)         search: one row a sentence
    logits = model.step(tokens, state)           search: one more token a row
    state.expand_beams()                                search: `beams` rows a sentence, which all go on from its one
    state.reorder(rows)                          search: each row goes on from the row it names

An `NonAutoregressive` writes all tokens together, and may go over them again:

    written = model.write(memory, ...)           a few candidates a sentence

Shapes: N target tokens, V vocabulary, B sentences, R rows: one a sentence, then `beams`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import kernels
from regard.data.batch import Batch
from regard.data.batching import Indices
from regard.data.ragged import Ragged
from regard.nn.cross_entropy import cross_entropy, linear_cross_entropy
from regard.nn.dropout import Noise
from regard.nn.int8 import Int8Matrix
from regard.nn.linear import Linear, for_search


class Model(nn.Module, ABC):
    """A model that reads one sequence and writes another."""

    width: int  # d_model: the paper's learning rate scales with it
    max_length: int | None = None  # most tokens of a sequence, EOS among them; None: no limit
    non_autoregressive = False  # whether it is an `NonAutoregressive`
    similar_lengths = (
        False  # whether packed batches should be of sentences of like length, because they become rectangles
    )
    extras: tuple[str, ...] = ()  # names of what else a batch must hold (`Batch.extras`)

    def __init__(self) -> None:
        super().__init__()
        self.noise = Noise()  # of all dropout in this model; the trainer seeds it for each step

    @abstractmethod
    def encode(self, source: Ragged) -> Any:
        """What the decoder gets to know of the source; opaque to training and search."""

    @abstractmethod
    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        """Return the loss of a batch, summed over the labels that count (`batch.num_tokens`)."""

    def cannot_write(self, source_lengths: Indices, target_lengths: Indices) -> NDArray[np.bool_]:
        """For pairs of so many tokens (EOS not counted), True where the model has no room for the target."""
        return np.zeros(len(source_lengths), dtype=np.bool_)

    @property
    def output_weight(self) -> Tensor | None:
        """The output layer's matrix [V, D] where that is all it is; lets the loss be computed without whole logits."""
        return None

    @property
    def static_shapes(self) -> bool:
        """Whether training needs no sentence lengths on the host, so that a recorded step serves all batches of a shape."""
        return False

    def prepare_for_inference(self, *, int8: bool = False) -> int:
        """From now on matrices are multiplied as search does it fastest: for good, and without gradients.

        Large ones as 8-bit integers if asked to (`nn.int8`), on a CPU; how many.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear) and not module.weight.is_cuda:
                # Column by column, which a library multiplies faster with few rows.
                module.weight.data = module.weight.data.t().contiguous().t()
            if isinstance(module, Linear):
                module.for_search = for_search(module.weight, int8=int8)
        return sum(
            isinstance(module, Linear) and isinstance(module.for_search, Int8Matrix) for module in self.modules()
        )

    def num_parameters(self) -> int:
        """Trainable numbers, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


class DecoderState(Protocol):
    """What a model remembers of the rows being written."""

    def expand_beams(self) -> None:
        """Makes each sentence's one row as many as there are beams: once, after the first step; not where there is one."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Makes row i go on from row rows[i].

        All rows of a sentence come from one sentence. Sentences may be left out, but do not change places.
        """
        ...


class Seq2Seq(Model):
    """A model that writes token by token."""

    @abstractmethod
    def hidden(self, target: Ragged, memory: Any) -> Tensor:
        """What the decoder makes of each target prefix, before the output layer: [N, D]."""

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """The output layer: [..., D] to logits [..., V]."""

    def decode(self, target: Ragged, memory: Any) -> Tensor:
        """Logits of the token that follows each target prefix: [N, V]."""
        return self.project(self.hidden(target, memory))

    def forward(self, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
        assert batch.target is not None, "a decoder reads a target"
        hidden_ND = self.hidden(batch.target, self.encode(batch.source))
        labels_N, weight_VD = batch.labels.values, self.output_weight
        if weight_VD is None or not kernels.usable(hidden_ND):
            # these know no dummy tokens: they get the real ones, in front
            hidden_ND, labels_N = hidden_ND[: batch.num_tokens], labels_N[: batch.num_tokens]
        if weight_VD is None:
            return cross_entropy(self.project(hidden_ND), labels_N, smoothing=smoothing)
        return linear_cross_entropy(hidden_ND, weight_VD, labels_N, smoothing=smoothing)

    @property
    def has_static_state(self) -> bool:
        """Whether a step can be recorded: whether there is a `static_state(like, sentences, slots, steps)`.

        That is a state for `step` that never changes its shape, with room for so many of each; it is made in the likeness
        of a state of `start`, and can `load` one (`models.static_state`).
        """
        return False

    @abstractmethod
    def start(self, memory: Any, *, beams: int) -> DecoderState:
        """Return the state before the first token, with one row per sentence; `expand_beams` makes it `beams` rows."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Logits of the next token of each row, [R, V], given its last one, [R]; the state moves on by one."""


class Output(NamedTuple):
    """Tokens without BOS and EOS, and the mean log-probability that the model gives them."""

    ids: list[int]
    score: float


class NonAutoregressive(Model):
    """A model that writes all tokens together."""

    non_autoregressive = True

    @abstractmethod
    def write(
        self,
        memory: Any,
        *,
        limits: Sequence[int],
        candidates: int,
        iterations: int,
        check: Callable[[], None] = lambda: None,
    ) -> list[list[Output]]:
        """For each sentence up to so many translations of at most `limits` tokens, the likeliest first.

        Models that go over what they wrote do so `iterations` times, the first included, and call `check` before each;
        it raises to stop them.
        """
