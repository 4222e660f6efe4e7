"""What of a text a tokenizer does not know: its share, its words and its characters."""

from __future__ import annotations

import re

from regard.text.symbols import UNK
from regard.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_CONTINUATION = range(0x80, 0xC0)  # bytes of UTF-8 that do not begin a character
_SPACES = " \u2581"
_SHOWN = 10  # unknown words or characters that a sentence lists
_LONGEST = 30  # characters of a word in it


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


class UnknownText:
    """What a tokenizer does not know of many lines: words of a `word` tokenizer, characters of others.

    A character that is read as bytes counts only in a line most of whose letters are, as in a text of another script: with
    bytes every character can be read, and a rare letter or a foreign name is no reason to distrust its line.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.lines = 0  # that have something unknown
        self.first = 0  # number of the first such line
        self._found: set[str] = set()
        self._known: set[str] = set()  # characters
        self._in_bytes: set[str] = set()

    def read(self, text: str, number: int) -> None:
        """Look for what is unknown in a line, which has a number."""
        found = self._unknown_words(text) if self.tokenizer.kind == "word" else self._unknown_characters(text)
        if found:
            self.first = number if self.lines == 0 else self.first
            self.lines += 1
            self._found |= found

    def _unknown_words(self, text: str) -> set[str]:
        ids = zip(self.tokenizer.tokenize(text), self.tokenizer.encode(text), strict=True)
        return {word for word, id in ids if id == UNK}

    def _unknown_characters(self, text: str) -> set[str]:
        here = set(text) - self._known
        unknown = set()
        for letter in here - self._in_bytes:
            if letter.isspace() or UNK not in self.tokenizer.encode(letter):
                spelled = any(_BYTE.fullmatch(token) for token in self.tokenizer.tokenize(letter))
                (self._in_bytes if spelled else self._known).add(letter)
            else:
                unknown.add(letter)
        in_bytes = here & self._in_bytes
        letters = [letter in in_bytes for letter in text if letter.isalpha()] if in_bytes else []
        return unknown | in_bytes if 2 * sum(letters) > len(letters) else unknown

    def sentence(self, *, text: str = "") -> str:
        """Return one sentence about what was found; an empty text if nothing was. `text` names what is no line of a file."""
        if not self._found:
            return ""
        found = sorted(self._found)
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        noun = "word" if self.tokenizer.kind == "word" else "character"
        what = f"{f'a {noun}' if len(found) == 1 else f'{noun}s'} that the model does not know"
        what = f"{what} ({' '.join(one[:_LONGEST] for one in found[:_SHOWN])}{more})"
        if self.lines == 1:
            return f"{text or f'line {self.first}'} has {what}; its translation may be wrong"
        return f"{self.lines:,} lines have {what}, the first is line {self.first}; their translations may be wrong"
