"""What a `Translator` asks of a model, whatever computes it: PyTorch (`torch_backend`) or the engine (`engine.backend`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import SearchOptions
from regard.decoding.constraints import Demands
from regard.decoding.hypothesis import Check, SearchResults, TokenScores, never_stop

if TYPE_CHECKING:
    from regard.models.base import Model

Row = tuple[Sequence[int], Sequence[int]]  # ids of a source and of a hypothesis, both without EOS


class ForcedTrace(NamedTuple):
    """What a model says of a given output: its T positions, the S source tokens that the encoder reads, H heads."""

    logp: NDArray[np.float32]  # of each token: [T]
    columns: NDArray[np.int32]  # the likeliest tokens at each position: [T, best]
    values: NDArray[np.float32]  # their log-probabilities
    encoder: Sequence[NDArray[np.float32]]  # attention of each layer: [H, S, S]
    decoder: Sequence[NDArray[np.float32]]  # [H, T, T]
    between: Sequence[NDArray[np.float32]]  # [H, T, S]


class Backend(ABC):
    """A model for search. Sources are lists of ids that end in EOS."""

    @property
    @abstractmethod
    def eos(self) -> int:
        """The id that ends an output."""

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """The most tokens of a sequence, EOS included; None: no limit."""

    @property
    @abstractmethod
    def never(self) -> tuple[int, ...]:
        """The columns that are never output."""

    @property
    @abstractmethod
    def reads_source_eos(self) -> bool:
        """Whether the encoder reads the EOS behind a source."""

    @property
    def copies(self) -> bool:
        """Whether ids behind its vocabulary are words of the source (`text.unknown_words`)."""
        return False

    @property
    def non_autoregressive(self) -> bool:
        """Whether it outputs all tokens at once."""
        return False

    @property
    def shares_batches(self) -> bool:
        """Whether searches of several threads share batches, so that they are best started at once."""
        return False

    @property
    def num_members(self) -> int:
        """The number of models that are searched together."""
        return 1

    @property
    @abstractmethod
    def model(self) -> Model:
        """The model as a module of PyTorch, for what search does not do. The engine loads it when it is first asked for."""

    @abstractmethod
    def num_parameters(self) -> int:
        """Return the number of values in all parameters, tied ones counted once."""

    @abstractmethod
    def search(
        self,
        sources: Sequence[list[int]],
        *,
        options: SearchOptions,
        demands: Demands | None = None,
        check: Check = never_stop,
    ) -> Iterator[SearchResults]:
        """Yield the `nbest` best outputs of sources as they are found, with the index of each source, in any order.

        `check` is called between steps. Raise DecodeError if a source has no output with a finite score.
        """

    @abstractmethod
    def stream(
        self,
        source: list[int],
        *,
        options: SearchOptions,
        on_token: Callable[[list[int]], None],
        demands: Demands | None = None,
        check: Check = never_stop,
    ) -> list[int]:
        """Return the output of greedy search for one source. `on_token` receives the output so far after each token."""

    @abstractmethod
    def forced_scores(
        self,
        sources: Sequence[list[int]],
        outputs: Sequence[list[int]],
        *,
        temperature: float | None = None,
        tokens: int,
        check: Check = never_stop,
    ) -> list[TokenScores]:
        """Return the log-probability of each token of given outputs, with `tokens` of them in a batch at most.

        Outputs end in EOS, unless there was no room for it, and have at least one token. With a temperature there are also
        those of logits that are divided by it.
        """

    def forced_trace(self, source: list[int], output: list[int], *, best: int) -> ForcedTrace | None:
        """Return the attention and the likeliest tokens of a given output; None: the module of PyTorch records them.

        The output ends in EOS, unless there was no room for it.
        """
        return None

    @abstractmethod
    def refuse_shortlist(self) -> None:
        """Raise DecodeError if the tokens of an output cannot be restricted to a shortlist."""

    @abstractmethod
    def refuse_coverage(self) -> None:
        """Raise DecodeError if the model has no attention over the source."""

    @abstractmethod
    def coverage_penalties(self, rows: Sequence[Row], *, tags: int = 0, budget: int = 8192) -> list[float]:
        """Return the sum over source tokens of log(min(attention that the token gets, 1)), for each hypothesis.

        The first `tags` tokens of a source and its EOS do not count. A batch has at most `budget` tokens.
        """
