"""What a model is: the contract that training and search rely on, and nothing else.

    memory = model.encode(source)                once a sentence
    logits = model.decode(target, memory)        training: all positions at once
    state = model.start(memory, beams=4)         search: `beams` rows a sentence
    logits = model.step(tokens, state)           search: one more token a row
    state.reorder(rows)                          search: each row goes on from the row it names

Shapes: N target tokens, V vocabulary, B sentences, R = B * beams rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from torch import Tensor, nn

from regard.data.ragged import Ragged
from regard.nn.dropout import Noise


class State(Protocol):
    """What a model remembers of the rows being written."""

    def reorder(self, rows: Tensor) -> None:
        """Makes row i go on from row rows[i]. All rows of a sentence come from one sentence; sentences may be left out."""
        ...


class Seq2Seq(nn.Module, ABC):
    """A model that reads one sequence and writes another, token by token."""

    width: int  # d_model: the paper's learning rate scales with it
    max_length: int | None = None  # most tokens of a sequence, EOS among them; None: no limit

    def __init__(self) -> None:
        super().__init__()
        self.noise = Noise()  # of all dropout in this model; the trainer seeds it for each step

    @abstractmethod
    def encode(self, source: Ragged) -> Any:
        """What the decoder gets to know of the source; opaque to training and search."""

    @abstractmethod
    def hidden(self, target: Ragged, memory: Any) -> Tensor:
        """What the decoder makes of each target prefix, before the output layer: [N, D]."""

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """The output layer: [..., D] to logits [..., V]."""

    @property
    def output_weight(self) -> Tensor | None:
        """The output layer's matrix [V, D] where that is all it is; lets the loss be computed without whole logits."""
        return None

    @property
    def fixed_shapes(self) -> bool:
        """Whether training needs no sentence lengths on the host, so that one recorded step serves all batches."""
        return False

    def decode(self, target: Ragged, memory: Any) -> Tensor:
        """Logits of the token that follows each target prefix: [N, V]."""
        return self.project(self.hidden(target, memory))

    @abstractmethod
    def start(self, memory: Any, *, beams: int) -> State:
        """The state before the first token, with `beams` rows for each sentence."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Logits of the next token of each row, [R, V], given its last one, [R]; the state moves on by one."""

    def num_parameters(self) -> int:
        """Trainable numbers, tied ones counted once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
