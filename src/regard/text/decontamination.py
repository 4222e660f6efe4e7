"""Leave out training examples that share text with a test set: eight words in a row, upper and lower case alike.

A test sentence of fewer words is not looked for: short ones, such as "Thank you very much.", are common property.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from regard.text.pair import Pair

SHARED_WORDS = 8
_WORD = re.compile(r"\w+")


def decontaminated(train: Iterable[Pair], tests: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the training examples of which neither side shares eight words in a row with a test example."""
    seen = {words for pair in tests for words in word_ngrams(pair)}
    for pair in train:
        if not any(words in seen for words in word_ngrams(pair)):
            yield pair


def word_ngrams(pair: Pair) -> Iterator[str]:
    """Yield every eight words in a row of each side, without punctuation."""
    for text in (pair.source, pair.target):
        words = _WORD.findall(text.lower())
        for start in range(len(words) - SHARED_WORDS + 1):
            yield " ".join(words[start : start + SHARED_WORDS])
