"""Noise in training: sources as people type them, and placeholders for what both sides have in common.

Each epoch draws its own noise from the seed and its number, so that a resumed run sees the same text.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Sequence

from regard.config import AugmentConfig
from regard.text.corpus import Pair
from regard.text.protected_spans import PLACEHOLDERS, Span, common_spans, find_spans

MOST_SPANS = 4  # of a pair that placeholders stand for
TYPO_EVERY = 20  # letters per typo in a source with typos
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"(?<!\w)[^\W_]{2,}(?!\w)")
_MARKS = re.compile(r"[^\w\s⟧]+$")  # at the end, without a placeholder
_INSIDE = re.compile(r"(?<=\w)[,;:.!?]+(?=\s|$)")

Random = random.Random


def augmented(pairs: Sequence[Pair], config: AugmentConfig, *, seed: int, epoch: int) -> list[Pair]:
    """Return the pairs with noise in their sources, and with placeholders on both sides."""
    # A string is hashed in the same way by every process; a tuple is not.
    generator = Random(f"augment {seed} {epoch}")
    noises = [(rate, noise) for name, noise in NOISES.items() if (rate := getattr(config, name))]
    return [_augment(pair, noises, config.placeholders, generator) for pair in pairs]


Noise = Callable[[str, Random], str]


def _augment(pair: Pair, noises: list[tuple[float, Noise]], placeholders: float, generator: Random) -> Pair:
    source, target = pair.source, pair.target
    if placeholders and generator.random() < placeholders:
        source, target = with_placeholders(source, target, generator)
    for rate, noise in noises:
        if generator.random() < rate:
            source = noise(source, generator)
    return pair if source is pair.source else pair._replace(source=source, target=target)


# Noise in a source


def lower(text: str, generator: Random) -> str:
    """Return the text in small letters."""
    return text.lower()


def upper(text: str, generator: Random) -> str:
    """Return the text in capital letters."""
    # ß would become SS, and nobody types it so.
    return "".join(one.upper() if len(one.upper()) == 1 else one for one in text)


def typos(text: str, generator: Random) -> str:
    """Return the text with a few letters left out, doubled, replaced, or exchanged with the next one."""
    letters = [place for place, one in enumerate(text) if one.isalpha()]
    if not letters:
        return text
    count = max(1, round(len(letters) / TYPO_EVERY * 2 * generator.random()))
    characters = list(text)
    for place in generator.sample(letters, min(count, len(letters))):
        one = text[place]
        kind = generator.randrange(4)
        if kind == 0:
            characters[place] = ""
        elif kind == 1:
            characters[place] = one + one
        elif kind == 2:
            characters[place] = generator.choice(_LETTERS)
        elif place + 1 < len(text) and text[place + 1].isalpha():
            characters[place], characters[place + 1] = text[place + 1], one
    changed = "".join(characters)
    return changed if changed.strip() else text


def punctuation(text: str, generator: Random) -> str:
    """Return the text without the mark at its end, and in half of the cases without those inside."""
    changed = _MARKS.sub("", text)
    if generator.random() < 0.5:
        changed = _INSIDE.sub("", changed)
    return changed if changed.strip() else text


def diacritics(text: str, generator: Random) -> str:
    """Return the text without accents and umlauts: café becomes cafe."""
    decomposed = unicodedata.normalize("NFD", text)
    plain = "".join(one for one in decomposed if not unicodedata.combining(one))
    return unicodedata.normalize("NFC", plain)


# In the order in which they are applied
NOISES: dict[str, Noise] = {
    "diacritics": diacritics,
    "punctuation": punctuation,
    "typos": typos,
    "lower": lower,
    "upper": upper,
}


# Placeholders


def with_placeholders(source: str, target: str, generator: Random) -> tuple[str, str]:
    """Return both texts with the same placeholders for some of what they have in common, or around or behind it."""
    # At most two for each of the chosen spans, and two around the texts.
    free = generator.sample(PLACEHOLDERS, 2 * MOST_SPANS + 2)
    words = set(_WORD.findall(source)).intersection(_WORD.findall(target))
    common = common_spans(
        [*find_spans(source), *_spans_of(words, source)], [*find_spans(target), *_spans_of(words, target)]
    )
    chosen = [pair for pair in common if generator.random() < 0.7][:MOST_SPANS]
    edits: list[tuple[Span, Span, str]] = []
    for one, other in sorted(chosen, key=lambda both: both[0].start):
        if any(_overlap(one, before) or _overlap(other, also) for before, also, _ in edits):
            continue
        # In a tenth of the cases the span remains, with a placeholder on either side, as between inline tags.
        new = f"{free.pop()} {one.text} {free.pop()}" if generator.random() < 0.1 else free.pop()
        edits.append((one, other, new))
    source = _replaced(source, [(one, new) for one, _, new in edits])
    target = _replaced(target, [(other, new) for _, other, new in edits])
    return _around(source, target, free, generator) if not edits or generator.random() < 0.2 else (source, target)


def _spans_of(words: set[str], text: str) -> list[Span]:
    if not words:
        return []
    return [Span("word", match[0], match.start()) for match in _WORD.finditer(text) if match[0] in words]


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _replaced(text: str, edits: list[tuple[Span, str]]) -> str:
    for span, new in sorted(edits, key=lambda edit: -edit[0].start):
        text = text[: span.start] + new + text[span.end :]
    return text


def _around(source: str, target: str, free: list[str], generator: Random) -> tuple[str, str]:
    """Return both texts with placeholders in front of them, behind them, or both."""
    way = generator.randrange(4)
    one, other = free.pop(), free.pop()
    if way == 0:
        return f"{one} {source}", f"{one} {target}"
    if way == 1:
        return f"{one} {source} {other}", f"{one} {target} {other}"
    if way == 2:
        return f"{source} {one}", f"{target} {one}"
    # In front of the mark at the end, as in "See ⟦1⟧."
    ends = [_MARKS.search(text) for text in (source, target)]
    places = [len(text) if end is None else end.start() for text, end in zip((source, target), ends, strict=True)]
    texts = [f"{text[:at]} {one}{text[at:]}" for text, at in zip((source, target), places, strict=True)]
    return texts[0], texts[1]
