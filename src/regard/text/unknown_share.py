"""How much of a text a tokenizer does not know."""

from __future__ import annotations

import re

from regard.text.symbols import UNK
from regard.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_CONTINUATION = range(0x80, 0xC0)  # bytes of UTF-8 that do not begin a character
_SPACES = " \u2581"


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
