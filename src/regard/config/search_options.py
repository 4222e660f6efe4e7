"""The options of search: in a recipe the `[decode]` table, in Python an argument of each call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

import msgspec

from regard.config.struct import LARGEST, Struct, between
from regard.errors import DecodeError, did_you_mean


class _BadOption(DecodeError, ValueError):
    """A DecodeError that msgspec takes for a ValueError: read from a recipe, the same value gives a ConfigError."""


T = TypeVar("T")


class _Default:
    """The default of an option, which tells an option that was left out from one that was given the same value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def _default(value: T) -> T:
    return cast(T, _Default(value))


class _KnownNames(type(msgspec.Struct)):  # type: ignore[misc]
    """Refuses options with an unknown name before msgspec does, whose TypeError names no known one."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        for name in given:
            if name not in cls.__struct_fields__:
                raise DecodeError(f"{cls.__name__} has no option {name!r}; {did_you_mean(name, cls.__struct_fields__)}")
        return super().__call__(*args, **given)


SWITCHES = ("scores", "early_stopping", "protect")  # options that are True or False
LengthPenaltyKind = Literal["wu", "power"]


class SearchOptions(Struct, metaclass=_KnownNames, frozen=True, dict=True):
    """How to search; in a recipe the `[decode]` table. The defaults are the paper's (section 6.1).

    Options remember which of them were given. Where there is a recipe, `with_given` takes the others from it.
    """

    beam: int = _default(4)  # hypotheses per sentence; 1: greedy search
    length_penalty: float = _default(0.6)  # alpha of the length penalty; 0: none
    # What divides the log-probability of n tokens, EOS included. "wu": ((5 + n) / 6)^alpha (Wu et al. 2016). "power":
    # n^alpha, as in Hugging Face's generate and in CTranslate2.
    length_penalty_kind: LengthPenaltyKind = _default("wu")
    # Stop when `beam` outputs have ended. False: continue until the best open one, at its length so far, scores no higher
    # than the worst of the `beam` best, as Hugging Face's generate does by default.
    early_stopping: bool = _default(True)
    max_extra: int = _default(50)  # the longest output has the tokens of the source and this many more
    tokens: int = _default(8192)  # source tokens per batch, times the beam
    max_source: int = _default(1024)  # longer sources are cut, with a warning
    # Whether URLs, numbers, tags and other protected spans come back as they are; unset: if the model has placeholders.
    # True also reports those that the output of any other model lacks.
    protect: bool | None = _default(None)
    iterations: int = _default(10)  # of models that refine their output (mask-predict)
    nbest: int = _default(1)  # hypotheses per source
    min_length: int = _default(0)  # fewest output tokens, without EOS
    max_length: int | None = _default(None)  # most output tokens for any source
    scores: bool = _default(True)  # False lets greedy search skip them, which saves a pass over the vocabulary

    per_call: ClassVar[tuple[str, ...]] = ("nbest", "min_length", "max_length", "scores")
    BOUNDS: ClassVar[dict[str, tuple[int, int]]] = {
        "beam": (1, 1000),
        "length_penalty": (0, 100),
        "max_extra": (0, 10_000),
        "tokens": (1, 2**24),
        "max_source": (1, 100_000),
        "iterations": (1, 1000),
        "nbest": (1, 1000),
        "min_length": (0, LARGEST),
        "max_length": (1, LARGEST),
    }

    def __post_init__(self) -> None:
        given = {}
        for name, value in msgspec.structs.asdict(self).items():
            if isinstance(value, _Default):
                msgspec.structs.force_setattr(self, name, value.value)
            else:
                given[name] = value
        self.__dict__["given"] = given
        for name, value in given.items():
            _refuse_other_type(name, value)
        try:
            super().__post_init__()
        except ValueError as error:
            raise _BadOption(str(error)) from error

    @property
    def given(self) -> Mapping[str, Any]:
        """The options that were given, by name."""
        found: Mapping[str, Any] = self.__dict__["given"]
        return found

    def __copy__(self) -> SearchOptions:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SearchOptions, **self.given), ()

    def check(self) -> None:
        for name, (least, most) in self.BOUNDS.items():
            between(self, least, most, name)
        # Without a beam of their own, options are checked when they are combined with those of a recipe.
        if "beam" in self.given and self.nbest > self.beam:
            raise ValueError(
                f"nbest is {self.nbest}, but beam is {self.beam}; ask for at most {self.beam}, or for a wider beam"
            )

    def replace(self, **changes: int | float | str | None) -> SearchOptions:
        """Return a copy with these options given as well. One that is None stays as it is."""
        return SearchOptions(**{**self.given, **{name: one for name, one in changes.items() if one is not None}})

    def with_given(self, options: SearchOptions | None) -> SearchOptions:
        """Return these options, except those that were given in `options`: all of them, checked together."""
        passed: Any = options
        if not isinstance(passed, SearchOptions | None):
            example = passed if isinstance(passed, Mapping) else {"beam": 8}
            call = ", ".join(f"{name}={value!r}" for name, value in example.items())
            raise DecodeError(f"options is of type {type(passed).__name__}; give options=SearchOptions({call})")
        return SearchOptions(**{**msgspec.structs.asdict(self), **(options.given if options else {})})

    def limit(self, source_length: int) -> int:
        """Return the most output tokens, without EOS, for a source of this many tokens."""
        limit = source_length + self.max_extra
        return max(1, limit if self.max_length is None else min(limit, self.max_length))


def _refuse_other_type(name: str, value: Any) -> None:
    """Raise DecodeError if a search option is of a type that it cannot have. Numbers of numpy are numbers."""
    wanted: tuple[str, type] = ("a whole number", Integral)
    if name == "length_penalty":
        wanted = ("a number", Real)
    if name in SWITCHES:
        wanted = ("True or False", bool)
    if name == "length_penalty_kind":
        wanted = ("'wu' or 'power'", str)
    fits = isinstance(value, wanted[1]) and (isinstance(value, bool) == (name in SWITCHES))
    if name == "length_penalty_kind" and fits:
        fits = value in get_args(LengthPenaltyKind)
    if not fits and not (value is None and name in ("max_length", "protect")):
        raise _BadOption(f"{name} is {value!r}; it must be {wanted[0]}")
