"""A translation: its text, its score, and how sure the model is of each word.

Confidence comes from probabilities under the temperature of a calibrated run: of a word the product over its tokens, of a
sentence the geometric mean over all tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

# Words are separated by spaces, except where each character of a script stands for itself.
WORD = "[\u3040-\u30ff\u3400-\u9fff]|[^\\s\u3040-\u30ff\u3400-\u9fff]+"


class ScoredToken(NamedTuple):
    """A token of an output, and its log-probability."""

    text: str
    score: float


class WordConfidence(NamedTuple):
    """A word of an output, with its marks, and the probability that it is the right one."""

    text: str
    confidence: float


@dataclass(frozen=True)
class Confidence:
    """How sure a model is of an output: from 0 to 1, for the sentence and for each word."""

    sentence: float
    words: tuple[WordConfidence, ...]


@dataclass(frozen=True)
class Translation:
    """A translation of a text, and its score."""

    text: str
    score: float
    lost: tuple[str, ...] = ()  # protected spans of the source, and demanded phrases, that it lacks
    tokens: tuple[ScoredToken, ...] | None = (
        None  # if `token_scores` is set; the last one is EOS if there was room for it
    )
    confidence: Confidence | None = None  # if `confidence` is set


def confidence_of(
    text: str, ids: Sequence[int], scores: Sequence[float], decode: Callable[[Sequence[int]], str]
) -> Confidence:
    """Return the confidence in an output, given the calibrated log-probabilities of its ids, and of EOS if it has one.

    `decode` returns the text of the first ids; spaces may differ from those of the complete text.
    """
    words = re.findall(WORD, text)
    sums = [0.0] * len(words)
    for word, score in zip(_words_of_tokens(words, ids, decode), scores, strict=False):
        sums[word] += score
    mean = sum(scores) / len(scores) if scores else 0.0
    return Confidence(
        math.exp(mean), tuple(WordConfidence(*one) for one in zip(words, map(math.exp, sums), strict=True))
    )


def _words_of_tokens(words: Sequence[str], ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Return the number of the word that each token belongs to: the one with its first character."""
    if not words:
        return []
    text, ends = "".join(words), list(accumulate(map(len, words)))  # in characters, without spaces
    found, word = [], 0
    for count in range(len(ids)):
        # Some bytes of a character are shown as others, which the text does not have.
        shown = "".join(decode(ids[:count]).split())
        begin = next(
            (place for place, both in enumerate(zip(text, shown, strict=False)) if both[0] != both[1]), len(shown)
        )
        while word < len(words) - 1 and ends[word] <= begin:
            word += 1
        found.append(word)
    return found


def as_json(translation: Translation) -> dict[str, Any]:
    """Return a translation as a JSON object: text, score, and what it lacks, tokens, confidence and words, if there are any.

    Tokens and words are pairs: the text, and its log-probability or its confidence.
    """
    found: dict[str, Any] = {"text": translation.text, "score": round(translation.score, 4)}
    if translation.lost:
        found["lacks"] = list(translation.lost)
    if translation.tokens is not None:
        found["tokens"] = [[one.text, round(one.score, 4)] for one in translation.tokens]
    if translation.confidence is not None:
        found["confidence"] = round(translation.confidence.sentence, 4)
        found["words"] = [[one.text, round(one.confidence, 4)] for one in translation.confidence.words]
    return found
