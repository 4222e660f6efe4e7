"""The base class of options, and the bounds of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

LARGEST = 2**53  # the bound of integers that have no bound of their own; larger ones are not exact in JSON


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Typed options that cannot be changed. Every number is finite and bounded."""

    per_call: ClassVar[tuple[str, ...]] = ()  # fields that a recipe neither sets nor stores

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _refuse_odd_numbers(name, getattr(self, name))
        self.check()

    def check(self) -> None:
        """Raise ValueError with one sentence if a value does not fit."""


def _refuse_odd_numbers(name: str, value: Any) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}; numbers must be finite")
    elif isinstance(value, int):
        if not -LARGEST <= value <= LARGEST:
            raise ValueError(f"{name} is larger than any such number can be (2**53)")
    elif isinstance(value, list | tuple):
        for entry in value:
            _refuse_odd_numbers(name, entry)
    elif value is not None and isinstance(value, Mapping):
        for key, entry in value.items():
            _refuse_odd_numbers(f"{name}.{key}", entry)


# Upper bounds of models: larger than any that is trained, and small enough that a hostile recipe cannot exhaust memory.
MAX_WIDTH, MAX_LAYERS, MAX_POSITIONS = 2**15, 1000, 2**20


def between(options: Struct, least: int, most: int, *names: str) -> None:
    """Raise ValueError if one of the named options is outside of the bounds. None is allowed."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} is {value}; it must be from {least:,} to {most:,}")


def below_one(options: Struct, name: str) -> None:
    """Raise ValueError unless 0 <= value < 1."""
    value = getattr(options, name)
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 0 and below 1")
