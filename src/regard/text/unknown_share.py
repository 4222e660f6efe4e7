"""What of a text a tokenizer does not know: its share, and its characters."""

from __future__ import annotations

import re

from regard.text.symbols import UNK
from regard.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_CONTINUATION = range(0x80, 0xC0)  # bytes of UTF-8 that do not begin a character
_SPACES = " \u2581"
_SHOWN = 10  # unknown characters that a sentence lists


def unknown_share(tokenizer: Tokenizer, text: str) -> float:
    """Return the share of a text's characters, without spaces, that the vocabulary lacks: unknown, or spelled in bytes."""
    characters = sum(not letter.isspace() for letter in text)
    unknown = 0
    for token, id in zip(tokenizer.tokenize(text), tokenizer.encode(text), strict=True):
        byte = _BYTE.fullmatch(token)
        if byte:
            unknown += int(byte[1], 16) not in _CONTINUATION
        elif id == UNK:
            unknown += len(token.strip(_SPACES))
    return min(1.0, unknown / characters) if characters else 0.0


class UnknownCharacters:
    """The characters of many lines that a tokenizer of characters or subwords does not know."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.lines = 0  # that have some
        self.first = 0  # number of the first such line
        self._judged: dict[str, bool] = {}  # whether a character is unknown

    def read(self, text: str, number: int) -> None:
        """Look for unknown characters in a line, which has a number."""
        for letter in set(text).difference(self._judged):
            self._judged[letter] = not letter.isspace() and UNK in self.tokenizer.encode(letter)
        if any(self._judged[letter] for letter in text):
            self.first = number if self.lines == 0 else self.first
            self.lines += 1

    def sentence(self) -> str:
        """Return one sentence about what was found; an empty text if nothing was."""
        found = sorted(letter for letter, unknown in self._judged.items() if unknown)
        if not found:
            return ""
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        letters = f"{'a character' if len(found) == 1 else 'characters'} that the model does not know"
        letters = f"{letters} ({' '.join(found[:_SHOWN])}{more})"
        if self.lines == 1:
            return f"line {self.first} has {letters}; its translation may be wrong"
        return f"{self.lines:,} lines have {letters}, the first is line {self.first}; their translations may be wrong"
