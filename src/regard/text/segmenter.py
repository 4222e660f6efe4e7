"""Sentence splitting: long texts are split into sentences and joined again with the original spaces and paragraphs.

Documents and stories are lines whose sentences are separated by " | ".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

# The gap after a sentence: spaces after a final mark and closing quotes, nothing after a Chinese or Japanese mark, or a
# newline.
_CLOSING = "\"'\u2019\u201d\u00bb)]\u300d\u300f\uff09"
_END = re.compile(
    rf"(?<=[.!?\u2026])[{re.escape(_CLOSING)}]*\s+|(?<=[\u3002\uff01\uff1f])[{re.escape(_CLOSING)}]*\s*|(?<!\s)\s*\n\s*"
)
# Chinese and Japanese characters and marks, which need no space between them, and the end of a text in them.
_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")
_CJK_END = re.compile(rf"{_CJK.pattern}[{re.escape(_CLOSING)}]{{0,4}}\Z")
ABBREVIATION_WINDOW = 8  # last characters of a sentence in which an abbreviation is searched
_ABBREVIATION = re.compile(
    r"(?:\b[A-Za-z]|\b(?:Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|bzw|ca|usw|vgl|z\.B|d\.h|e\.g|i\.e|\d{1,2}))\.$"
)


@dataclass(frozen=True)
class SplitText:
    """The sentences of a text and the spaces before, between and after them (one more than sentences)."""

    sentences: list[str]
    spaces: list[str]

    def join(self, sentences: Sequence[str]) -> str:
        """Return the text with other sentences in the same places."""
        assert len(sentences) == len(self.sentences), (len(sentences), len(self.sentences))
        return self.begin(sentences) + (self.spaces[-1] if sentences else "")

    def begin(self, sentences: Sequence[str]) -> str:
        """Return the beginning of the text with other sentences, which may be fewer.

        There is a space between two sentences that need one, though those in their places, Chinese or Japanese ones, do not.
        """
        parts = [self.spaces[0], *sentences[:1]]
        for (left, right), original, space in zip(pairwise(sentences), self.sentences, self.spaces[1:], strict=False):
            dense = _CJK_END.search(left[-5:]) or _CJK.match(right)
            needed = not space and left and right and not dense and _CJK_END.search(original[-5:])
            parts += [" " if needed else space, right]
        return "".join(parts)


def segment(text: str, *, fits: Callable[[str], bool] = lambda sentence: True) -> SplitText:
    """Split a text into sentences; sentences that do not fit the model are split further."""
    sentences: list[str] = []
    spaces = [text[: len(text) - len(text.lstrip())]]
    for sentence, space in _sentences(text[len(spaces[0]) :]):
        for part, gap in _parts(sentence, fits):
            sentences.append(part)
            spaces.append(gap)
        spaces[-1] = space
    return SplitText(sentences, spaces)


def _sentences(text: str) -> list[tuple[str, str]]:
    """Return each sentence and the space after it."""
    found, begin = [], 0
    for match in _END.finditer(text):
        space = match.group()
        closing = len(space) - len(space.lstrip(_CLOSING))
        end = match.start() + closing
        sentence = text[begin:end]
        abbreviated = "\n" not in space and _ABBREVIATION.search(sentence[-ABBREVIATION_WINDOW:])
        if sentence.strip() and not abbreviated:
            found.append((sentence, text[end : match.end()]))
            begin = match.end()
    rest = text[begin:]
    if rest.strip():
        kept = rest.rstrip()
        found.append((kept, rest[len(kept) :]))
    elif rest and found:
        found[-1] = (found[-1][0], found[-1][1] + rest)
    return found


def _parts(sentence: str, fits: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Return the sentence, or parts of it that fit, each with the space after it. Words are split only if necessary."""
    if len(sentence) < 2 or fits(sentence):
        return [(sentence, "")]
    spaces = list(re.finditer(r"\s+", sentence))
    middle = spaces[len(spaces) // 2].span() if spaces else (len(sentence) // 2, len(sentence) // 2)
    left, right = _parts(sentence[: middle[0]], fits), _parts(sentence[middle[1] :], fits)
    return [*left[:-1], (left[-1][0], sentence[slice(*middle)]), *right]


# Sentences on one line

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
