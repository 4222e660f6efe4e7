"""Texts of several sentences, one line each: sentences are separated by " | "."""

from __future__ import annotations

from collections.abc import Iterable

from regard.text.segmenter import segment

SEPARATOR = " | "


def split_sentences(line: str) -> list[str]:
    """Return the sentences of a line, without blank ones."""
    return [sentence.strip() for sentence in line.split(SEPARATOR) if sentence.strip()]


def join_sentences(sentences: Iterable[str]) -> str:
    """Return sentences as one line."""
    return SEPARATOR.join(sentences)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text: between separators if it has any, otherwise as punctuation divides it."""
    return split_sentences(text) if SEPARATOR in text else segment(text).sentences
