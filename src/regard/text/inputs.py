"""Checks of texts that a caller of the library passes in."""

from __future__ import annotations

from collections.abc import Iterable

from regard.errors import DecodeError


def refuse_no_list(texts: Iterable[object], *, call: str) -> None:
    """Raise DecodeError for anything that is no list of texts. A string would be taken for a list of characters."""
    if isinstance(texts, str | bytes):
        raise DecodeError(f"{call} takes a list of texts; put the one text into brackets")
    if not isinstance(texts, Iterable):
        raise DecodeError(f"{call} takes a list of texts, not {type(texts).__name__}")


def refuse_other_types(texts: Iterable[object], *, first: int = 1) -> None:
    """Raise DecodeError for the first element that is not a string. `first` is the number of the first text."""
    for number, text in enumerate(texts, start=first):
        if not isinstance(text, str):
            raise DecodeError(
                f"text {number} is of type {type(text).__name__}, not str; convert it to str, or leave it out"
            )


def as_texts(texts: Iterable[str], *, call: str) -> list[str]:
    """Return the texts as a list. Raise DecodeError if there is anything else among them."""
    refuse_no_list(texts, call=call)
    found = list(texts)
    refuse_other_types(found)
    return found
