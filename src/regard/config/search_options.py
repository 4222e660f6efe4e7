"""The options of search: in a recipe the `[decode]` table, in Python an argument of each call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

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


COLDEST, HOTTEST = 0.01, 100  # temperatures; below, logits divided by them may exceed what float32 can hold
LengthPenaltyKind = Literal["wu", "power"]
Utility = Literal["chrf", "bleu"]


SearchPrecision = Literal["auto", "float32", "bfloat16"]  # of search on a GPU; auto: bfloat16 if possible


class SearchOptions(Struct, metaclass=_KnownNames, frozen=True, dict=True):
    """How to search; in a recipe the `[decode]` table. The defaults are the paper's (section 6.1).

    Options remember which of them were given. Where there is a recipe, `with_given` takes the others from it.
    """

    beam: int = _default(4)  # hypotheses per sentence; 1: greedy search
    length_penalty: float = _default(0.6)  # alpha of the length penalty; 0: none
    # What divides the log-probability of n tokens, EOS included. "wu": ((5 + n) / 6)^alpha (Wu et al. 2016). "power":
    # n^alpha, as in Hugging Face's generate and in CTranslate2.
    length_penalty_kind: LengthPenaltyKind = _default("wu")
    # True: stop when `beam` hypotheses are finished. False: continue until the best unfinished hypothesis, at its current
    # length, scores no higher than the worst of the `beam` best, as Hugging Face's generate does by default.
    # "never": continue until no unfinished hypothesis can become one of the `nbest` best, whatever its length.
    early_stopping: bool | Literal["never"] = _default(True)
    beam_groups: int = _default(
        1
    )  # diverse beam search (Vijayakumar et al. 2018): groups that avoid each other's tokens
    diversity_penalty: float = _default(0.5)  # what a token costs a group for each beam of earlier groups that took it
    # Draw `beam` samples per sentence from the model's distribution in place of searching.
    sample: bool = _default(False)
    temperature: float = _default(1.0)  # sampling temperature: logits are divided by it; 0: the likeliest token
    top_k: int | None = _default(None)  # only this many likeliest tokens are drawn from
    top_p: float | None = _default(None)  # only the likeliest tokens are, up to this sum of their probabilities
    epsilon: float | None = _default(None)  # only tokens of at least this probability are
    seed: int = _default(1)  # random seed of sampling; samples follow from it and the source alone
    # Minimum-Bayes-risk decoding: of the `beam` hypotheses or samples, choose the one that agrees most with all of them, by
    # sentence chrF or BLEU. The score of a translation is then this mean, from 0 to 100.
    mbr: Utility | None = _default(None)
    # beta of the coverage penalty (Wu et al. 2016): of the `beam` hypotheses, those that attend too little to some tokens of
    # the source fall behind; 0: off.
    coverage_penalty: float = _default(0.0)
    reverse_weight: float = _default(0.5)  # with a reverse model: the weight of its score, relative to the model's own
    no_repeat_ngram: int = _default(0)  # forbid any n-gram of this length from occurring twice; 0: off
    max_repeats: int = _default(0)  # maximum number of consecutive repetitions of a token sequence; 0: off
    # Restrict the output to this many likely translations of each source token, plus frequent tokens
    # (`regard align --run`); 0: off.
    shortlist: int = _default(0)
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
    token_scores: bool = _default(False)  # whether results have the log-probability of each token
    confidence: bool = _default(
        False
    )  # whether they have calibrated probabilities of words and sentences, and token_scores

    per_call: ClassVar[tuple[str, ...]] = ("nbest", "min_length", "max_length", "scores", "token_scores", "confidence")
    BOUNDS: ClassVar[dict[str, tuple[int, int]]] = {
        "beam": (1, 1000),
        "length_penalty": (0, 100),
        "beam_groups": (1, 1000),
        "diversity_penalty": (0, 1000),
        "temperature": (0, HOTTEST),
        "top_k": (1, 10_000_000),
        "top_p": (0, 1),
        "epsilon": (0, 1),
        "seed": (0, LARGEST),
        "coverage_penalty": (0, 100),
        "reverse_weight": (0, 100),
        "no_repeat_ngram": (0, 1000),
        "max_repeats": (0, 1000),
        "shortlist": (0, 100),
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
        if "beam" in self.given and self.beam % self.beam_groups:
            raise ValueError(f"beam is {self.beam}, which beam_groups={self.beam_groups} does not divide")
        if self.temperature and self.temperature < COLDEST:
            raise ValueError(f"temperature is {self.temperature}; it must be 0, or from {COLDEST} to {HOTTEST}")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length is {self.min_length}, which max_length={self.max_length} does not allow")
        if self.sample and self.beam_groups > 1:
            raise ValueError("sample draws independent samples, which have no beam_groups; give one or the other")
        if self.mbr is not None and self.coverage_penalty:
            raise ValueError("mbr chooses by expected utility alone, without coverage_penalty; give one or the other")

    def replace(self, **changes: int | float | str | None) -> SearchOptions:
        """Return a copy with these options given as well. One that is None stays as it is."""
        return SearchOptions(**{**self.given, **{name: one for name, one in changes.items() if one is not None}})

    def greedy(self) -> SearchOptions:
        """Return these options for greedy search, which has one hypothesis and nothing to choose from."""
        alone = {"beam": 1, "nbest": 1, "beam_groups": 1, "sample": False, "mbr": None, "coverage_penalty": 0.0}
        return SearchOptions(**{**self.given, **alone})

    def with_given(self, options: SearchOptions | None) -> SearchOptions:
        """Return these options, except those that were given in `options`: all of them, checked together."""
        passed: Any = options
        if not isinstance(passed, SearchOptions | None):
            example = passed if isinstance(passed, Mapping) else {"beam": 8}
            call = ", ".join(f"{name}={value!r}" for name, value in example.items())
            raise DecodeError(f"options is of type {type(passed).__name__}; give options=SearchOptions({call})")
        if passed is not None and len(passed.given) == len(SearchOptions.__struct_fields__):
            return passed
        return SearchOptions(**{**msgspec.structs.asdict(self), **(passed.given if passed else {})})

    def limit(self, source_length: int) -> int:
        """Return the most output tokens, without EOS, for a source of this many tokens."""
        limit = source_length + self.max_extra
        return max(1, limit if self.max_length is None else min(limit, self.max_length))


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(SearchOptions)


@cache
def _plain_types(name: str) -> set[type]:
    """Return the types of which an option can have any value, so that most values need no further check."""
    return {type(one) for one in (True, 1, 1.0, None) if _fits(one, _types()[name])}


def _refuse_other_type(name: str, value: Any) -> None:
    """Raise DecodeError if a search option is of a type that it cannot have. Numbers of numpy are numbers."""
    kind = _types()[name]
    if type(value) not in _plain_types(name) and not _fits(value, kind):
        raise _BadOption(f"{name} is {value!r}; it must be {_describe(kind)}")


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is UnionType or get_origin(kind) is Union:
        return any(_fits(value, one) for one in get_args(kind))
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    numbers = {int: Integral, float: Real}
    return isinstance(value, numbers.get(kind, kind)) and (isinstance(value, bool) == (kind is bool))


def _describe(kind: Any) -> str:
    if get_origin(kind) is UnionType or get_origin(kind) is Union:
        return " or ".join(_describe(one) for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return {bool: "True or False", int: "a whole number", float: "a number"}[kind]
