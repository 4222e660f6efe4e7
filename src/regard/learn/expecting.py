"""What the hidden tests of exercises expect of a learner's program, and how a difference is reported: readably."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

MOST_NUMBERS = 36  # of a tensor that is shown completely
LARGEST_TEXT = 400  # characters of a value that is no tensor
BOS, EOS, A, B = range(4)
NAMES = {BOS: "bos", EOS: "eos", A: "a", B: "b"}
Table = dict[str, tuple[float, float, float]]  # probabilities of the end, a and b by the tokens so far


class Wrong(Exception):
    """An answer that is not the expected one. The message is for the learner."""


class Program:
    """The names that a learner's program defines. One that it lacks is reported."""

    def __init__(self, names: Mapping[str, Any], title: str) -> None:
        self.names, self.title = names, title

    def __getattr__(self, name: str) -> Any:
        if name not in self.names:
            raise Wrong(f"{self.title} has no {name}; keep the name that the task gives it")
        return self.names[name]


def expect(found: object, expected: object, *, given: str, tolerance: float = 1e-4) -> None:
    """Raise Wrong unless a result equals the expected one. `given` is the example, as a learner would write it."""
    problem = _difference(found, expected, tolerance)
    if problem is not None:
        raise Wrong(f"given    {given}\n{problem}")


def expect_that(holds: bool, *, given: str, expected: str, found: str) -> None:
    """Raise Wrong unless something holds that is no single value."""
    if not holds:
        raise Wrong(f"given    {given}\n{_two(expected, found)}")


def _difference(found: object, expected: object, tolerance: float) -> str | None:
    if isinstance(expected, Tensor):
        return _tensor_difference(found, expected, tolerance)
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        value = found.item() if isinstance(found, Tensor) and found.numel() == 1 else found
        if isinstance(value, bool) or not isinstance(value, float | int):
            return _two(f"the number {show(expected)}", show(found))
        same = math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance * 1e-3)
        return None if same else _two(show(expected), show(value))
    if isinstance(expected, tuple) and isinstance(found, tuple | list) and len(found) == len(expected):
        pairs = zip(found, expected, strict=True)
        return next((one for one in (_difference(a, b, tolerance) for a, b in pairs) if one is not None), None)
    return None if type(found) is type(expected) and found == expected else _two(show(expected), show(found))


def _tensor_difference(found: object, expected: Tensor, tolerance: float) -> str | None:
    if not isinstance(found, Tensor):
        return _two("a tensor", show(found))
    if found.shape != expected.shape:
        return _two(f"the shape {list(expected.shape)}", f"the shape {list(found.shape)}")
    if (found.dtype == torch.bool) != (expected.dtype == torch.bool):
        return _two(f"a tensor of {expected.dtype}", f"a tensor of {found.dtype}")
    far = ~(found.double() - expected.double()).abs().le(tolerance * (1 + expected.double().abs()))
    if not far.any():
        return None
    if expected.numel() <= MOST_NUMBERS:
        return _two(show(expected), show(found))
    place = far.nonzero()[0].tolist()
    at = f"at {place} of the shape {list(expected.shape)}"
    return _two(f"{show(expected[tuple(place)].item())} {at}", show(found[tuple(place)].item()))


def _two(expected: str, found: str) -> str:
    """Return the lines that say both. Rows of a matrix are below each other."""
    return "\n".join(
        f"{label:9}{text.replace(chr(10), chr(10) + ' ' * 9)}"
        for label, text in (("expected", expected), ("found", found))
    )


def show(value: object) -> str:
    """Return a value as a learner reads it: numbers with four digits, one row of a matrix per line."""
    if isinstance(value, Tensor):
        if value.numel() > MOST_NUMBERS:
            return f"a tensor of the shape {list(value.shape)}"
        if value.dim() == 2:
            return "[" + ",\n ".join(show_list(row) for row in value.tolist()) + "]"
        return show_list(value.tolist())
    if value is None:
        return "None (does the function return its result?)"
    text = show_list(value)
    return text if len(text) <= LARGEST_TEXT else f"{text[:LARGEST_TEXT]} ..."


def show_list(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(show_list(one) for one in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def table_model(
    table: Table, otherwise: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> Callable[[list[int]], list[float]]:
    """Return the step of a model that is a table of probabilities, for the exercises on search."""

    def step(tokens: list[int]) -> list[float]:
        if EOS in tokens:
            raise Wrong(f"found    step({tokens}) is asked what follows an output that has ended ({EOS} is eos)")
        if tokens[:1] != [BOS]:
            raise Wrong(f"expected step to be given tokens that begin with bos, {BOS}\nfound    step({tokens})")
        probabilities = (0.0, *table.get("".join(NAMES[token] for token in tokens[1:]), otherwise))
        return [math.log(p) if p > 0 else -math.inf for p in probabilities]

    return step
