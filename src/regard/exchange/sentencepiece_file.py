"""The fields of a SentencePiece file (Protocol Buffers), for programs that have neither library.

Field numbers are those of `sentencepiece_model.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from regard.errors import ConfigError

UNIGRAM, BPE = 1, 2
NORMAL = 1
KINDS = {UNIGRAM: "unigram", BPE: "bpe"}


class SentencePieceFile(NamedTuple):
    """A vocabulary and how text is normalized before it is split."""

    kind: str  # "bpe" or "unigram"
    pieces: list[str]
    scores: list[float]
    types: list[int]  # 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
    byte_fallback: bool
    unknown_surface: str
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    whitespace_as_suffix: bool


def read_sentencepiece(content: bytes) -> SentencePieceFile:
    """Return the fields of a file. Raise ConfigError for kinds of models other than BPE and unigram."""
    model = list(_fields(content))
    pieces = [dict(_fields(value)) for number, value in model if number == 1]
    trainer, normalizer, denormalizer = (_message(model, number) for number in (2, 3, 5))
    kind = trainer.get(3, UNIGRAM)
    if kind not in KINDS:
        raise ConfigError("the SentencePiece file is of words or characters; only BPE and unigram are exported")
    if denormalizer.get(2):
        raise ConfigError("the SentencePiece file changes text after decoding, which is not exported")
    return SentencePieceFile(
        kind=KINDS[kind],
        pieces=[one[1].decode() for one in pieces],
        scores=[struct.unpack("<f", one.get(2, bytes(4)))[0] for one in pieces],
        types=[one.get(3, NORMAL) for one in pieces],
        byte_fallback=bool(trainer.get(35, 0)),
        unknown_surface=trainer.get(44, " \u2047 ".encode()).decode(),
        charsmap=normalizer.get(2, b""),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        escape_whitespaces=bool(normalizer.get(5, 1)),
        whitespace_as_suffix=bool(trainer.get(24, 0)),
    )


def _message(fields: list[tuple[int, Any]], number: int) -> dict[int, Any]:
    return dict(_fields(next((value for other, value in fields if other == number), b"")))


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field: an integer, or bytes."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, at = _varint(content, at)
        yield key >> 3, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
