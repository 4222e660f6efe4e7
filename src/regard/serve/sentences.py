"""Long texts cut into sentences, and put together again with their spaces and paragraphs as they were."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Behind a mark that ends a sentence and what closes there, a space; behind one of Chinese or Japanese nothing; or a newline.
_END = re.compile(r"""(?<=[.!?\u2026])["'\u2019\u201d\u00bb)\]]*\s+|(?<=[\u3002\uff01\uff1f])\s*|(?<!\s)\s*\n\s*""")
LONGEST_SHORT = 8  # letters of an abbreviation, and what stands before it
_SHORT = re.compile(
    r"(?:\b[A-Za-z]|\b(?:Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|bzw|ca|usw|vgl|z\.B|d\.h|e\.g|i\.e|\d{1,2}))\.$"
)


@dataclass(frozen=True)
class Cut:
    """A text as sentences and what stands around them: one more space than sentences."""

    sentences: list[str]
    spaces: list[str]

    def joined(self, sentences: Sequence[str]) -> str:
        """Other sentences in the places of these."""
        assert len(sentences) == len(self.sentences), (len(sentences), len(self.sentences))
        parts = [self.spaces[0]]
        for sentence, space in zip(sentences, self.spaces[1:], strict=True):
            parts += [sentence, space]
        return "".join(parts)


def cut(text: str, *, fits: Callable[[str], bool] = lambda sentence: True) -> Cut:
    """The text's sentences; those that do not fit the model are cut again."""
    sentences: list[str] = []
    spaces = [text[: len(text) - len(text.lstrip())]]
    for sentence, space in _pieces(text[len(spaces[0]) :]):
        for part, behind in _halved(sentence, fits):
            sentences.append(part)
            spaces.append(behind)
        spaces[-1] = space
    return Cut(sentences, spaces)


def _pieces(text: str) -> list[tuple[str, str]]:
    """Each sentence and the space behind it."""
    found, begin = [], 0
    for match in _END.finditer(text):
        space = match.group()
        closing = len(space) - len(space.lstrip("\"'\u2019\u201d\u00bb)]"))
        end = match.start() + closing
        sentence = text[begin:end]
        goes_on = "\n" not in space and _SHORT.search(sentence[-LONGEST_SHORT:])
        if sentence.strip() and not goes_on:
            found.append((sentence, text[end : match.end()]))
            begin = match.end()
    rest = text[begin:]
    if rest.strip():
        kept = rest.rstrip()
        found.append((kept, rest[len(kept) :]))
    elif rest and found:
        found[-1] = (found[-1][0], found[-1][1] + rest)
    return found


def _halved(sentence: str, fits: Callable[[str], bool]) -> list[tuple[str, str]]:
    """The sentence, or as many parts as are needed for each to fit, and the space behind each; words are cut last."""
    if len(sentence) < 2 or fits(sentence):
        return [(sentence, "")]
    spaces = list(re.finditer(r"\s+", sentence))
    middle = spaces[len(spaces) // 2].span() if spaces else (len(sentence) // 2, len(sentence) // 2)
    left, right = _halved(sentence[: middle[0]], fits), _halved(sentence[middle[1] :], fits)
    return [*left[:-1], (left[-1][0], sentence[slice(*middle)]), *right]
