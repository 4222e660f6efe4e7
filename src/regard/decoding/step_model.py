"""What search asks of a model, wherever its logits are: in PyTorch's tensors, on a GPU, or in the memory of the engine.

Search itself runs on the host, in numpy. It gives numbers to the model with `place`, in one copy, and receives the few
numbers that it decides by. Logits stay where they are.

Shapes: B sentences, R rows: B, then B * beams; V columns of the scores, C candidates per sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
Placed = Any  # an array as the model reads it


class Distribution(Protocol):
    """Which part of the model's distribution is drawn from: options of samples."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int | None: ...
    @property
    def top_p(self) -> float | None: ...
    @property
    def epsilon(self) -> float | None: ...


class Chosen(NamedTuple):
    """A token per row."""

    tokens: Integers
    logp: Floats | None  # of each; None if the scores were prepared without
    placed: Placed  # the tokens, as the model reads them


class Scores(Protocol):
    """The logits of one step, [R, V]. Entries can be made impossible, and put back, but not raised."""

    def __len__(self) -> int: ...

    def repeat(self, times: int) -> Scores:
        """Return the scores with so many copies of each row, one after the other."""

    def prepare(self, *, normalized: bool) -> None:
        """Get ready to rank entries; with `normalized` by log-probabilities. Call it before entries are made impossible."""

    def ban_columns(self, columns: Sequence[int]) -> None:
        """Make columns impossible in all rows."""

    def ban_rows(self, rows: Sequence[int]) -> None:
        """Make all entries of some rows impossible."""

    def ban(self, rows: Sequence[int] | Integers, columns: Sequence[int] | Integers) -> None:
        """Make single entries impossible."""

    def take(self, rows: Sequence[int], columns: Sequence[int]) -> Any:
        """Return entries, as `put` takes them."""

    def put(self, rows: Sequence[int], columns: Sequence[int], values: Any) -> None:
        """Set entries to what they were before."""

    def likeliest(self) -> list[int]:
        """Return the column of the largest entry of each row."""

    def choose(self) -> Chosen:
        """Return the likeliest token of each row."""

    def draw(self, options: Distribution, numbers: NDArray[np.float64]) -> Chosen:
        """Return a token per row, given a random number from 0 to 1 for each."""

    def best(self, logp: Placed, *, beams: int, count: int, filler: int) -> tuple[Floats, Integers, Integers]:
        """Return the best continuations of each sentence's rows: scores, tokens and rows, [B, C], best first.

        `logp` are the log-probabilities of the rows so far. Where a small vocabulary has too few entries, there are fewer
        than `count`, or the rest are minus infinity; those may be reported as the token `filler`.
        """

    def continued(self, logp: Placed, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-probabilities of these rows after these tokens."""


class SearchState(Protocol):
    """The state of a search in the model."""

    def expand_beams(self) -> None:
        """Expand each sentence from one row to `beams` rows. Called once, after the first step."""

    def reorder(self, rows: Placed) -> None:
        """Let row i continue row rows[i]. Whole sentences may be dropped."""


class OutputColumns(Protocol):
    """What search has to know of the columns of the scores."""

    @property
    def eos(self) -> int: ...  # the column that ends an output
    @property
    def never(self) -> tuple[int, ...]: ...  # columns that are never output


class StepModel(OutputColumns, Protocol):
    """A model that outputs one token after another."""

    @property
    def bos(self) -> int: ...  # the token that the decoder reads first
    @property
    def max_length(self) -> int | None: ...  # most tokens of a sequence, EOS included; None: no limit

    def place(self, *arrays: NDArray[Any]) -> Sequence[Placed]:
        """Return arrays of one shape and type as the model reads them."""

    def source_ids(self, source: Any) -> list[list[int]]:
        """Return the ids of each sentence, from which random numbers follow."""

    def with_vocabularies(self, vocabularies: Sequence[Integers]) -> StepModel:
        """Return a model for one batch, whose sentences output tokens of these vocabularies alone."""

    def encode(self, source: Any) -> Any:
        """Return what the decoder reads of a batch of sources; opaque to search."""

    def start(self, memory: Any, *, beams: int) -> Any:
        """Return the state before the first token, a `SearchState` with one row per sentence."""

    def step(self, tokens: Placed, state: Any) -> Scores:
        """Return the scores of each row's next token, given its last one, and advance the state."""
