"""A pair of texts, and what a file may have in place of one."""

from __future__ import annotations

from typing import Any, NamedTuple, Self


class Pair(NamedTuple):
    """A source text and its target: a translation, a summary, a pronunciation ..."""

    source: str
    target: str

    @property
    def tags(self) -> tuple[str, ...]:
        """The symbols in front of the source; see `TaggedPair`."""
        return ()


class TaggedPair(Pair):
    """A pair with symbols in front of its source, such as that of the language to translate it into."""

    _tags: tuple[str, ...]

    def __new__(cls, source: str, target: str, tags: tuple[str, ...]) -> TaggedPair:
        pair = super().__new__(cls, source, target)
        pair._tags = tags
        return pair

    @property
    def tags(self) -> tuple[str, ...]:
        return self._tags

    def _replace(self, **changes: Any) -> Self:
        """Return the pair with other sides, and the same tags."""
        return type(self)(**{"source": self.source, "target": self.target, "tags": self._tags, **changes})


def tagged(pairs: list[Pair], tags: tuple[str, ...]) -> list[Pair]:
    """Return the pairs with these symbols in front of their sources."""
    return [TaggedPair(*pair, tags) for pair in pairs] if tags else pairs


class TextProblem(NamedTuple):
    """Why a place in a file gives no pair."""

    reason: str  # in a few words, the same for every place with this problem
    sentence: str  # what follows "line 3 of FILE" in an error: what is wrong, and what to do
    text: str = ""  # its beginning
    file: str = ""  # that has it, where a row is from several files and it is not in the first
    # Whether it is no mistake but part of the format, such as a message that nobody has translated yet. It is left out and
    # counted, and never refused.
    expected: bool = False


class Row(NamedTuple):
    """What a file has at a line: a pair, or a problem."""

    line: int
    found: Pair | TextProblem
