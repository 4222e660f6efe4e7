"""Contrastive pairs made of a test set: a reference, and the same text with one mistake that changes its meaning.

    numbers     the first number is another one: 3 becomes 4, three becomes five
    negation    a negation is removed, or added where there is none
    names       two names are exchanged, or one is replaced by another name of a person or of a place

Targets are English or German. What is made follows from the target alone. Rules that would
give a wrong grammar where they do not fit are left out, so not every sentence has a pair of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from regard.errors import DataError
from regard.text.contrastive_pairs import ContrastivePair
from regard.text.pair import Pair

NUMBERS, NEGATION, NAMES = "numbers", "negation", "names"
_PEOPLE = (
    "Anna",
    "David",
    "Emma",
    "Eva",
    "Jack",
    "Jane",
    "John",
    "Lisa",
    "Maria",
    "Mary",
    "Mike",
    "Peter",
    "Paul",
    "Tom",
)
_PLACES = (
    "Amsterdam",
    "Berlin",
    "Boston",
    "Chicago",
    "Hamburg",
    "London",
    "Madrid",
    "Osaka",
    "Paris",
    "Sydney",
    "Tokyo",
)
# Names on both sides of these can be exchanged without a change of meaning.
_JOINING = re.compile(r"\s*(?:,|&|and|or|und|oder|as well as|sowie)\s*")
_WORD = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
# Without "one", which is a pronoun and an article as well.
_NUMBER_WORDS = {
    "en": (
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "twelve",
        "twenty",
        "thirty",
        "fifty",
    ),
    "de": ("zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "zwölf", "zwanzig", "dreißig"),
}
# Behind a verb they are its subject, as in questions.
_EN_SUBJECT, _DE_SUBJECT = "I|you|he|she|it|we|they|the|this|that", "ich|du|er|sie|es|wir|ihr|Sie|das|der|die"
Rule = tuple[str, str]  # a pattern, and what replaces it
# The first rule that fits is applied, once.
_NEGATIONS: dict[str, tuple[Rule, ...]] = {
    "en": (
        (r"\bcan(?:'t|not)\b", "can"),
        (r"\bCan't\b", "Can"),
        (r"\bwon't\b", "will"),
        (r"\bWon't\b", "Will"),
        (r"\b(\w+)n't\b", r"\1"),
        (r" not\b", ""),
        (r"\bnever\b", "always"),
        (r"\bNever\b", "Always"),
        (rf"\b(is|are|was|were|can|could|will|would|should|must)\b(?! (?:{_EN_SUBJECT}|to)\b)(?![,.?!])", r"\1 not"),
        (r"'m\b", "'m not"),
        (r"'re\b", "'re not"),
    ),
    "de": (
        (r" nicht\b(?! nur)", ""),
        (r"\bkein(en|em|er|es)\b", r"ein\1"),
        (r"\bkein\b", "ein"),
        (r"\bKein\b", "Ein"),
        (r"\bnie\b|\bniemals\b", "immer"),
        (r"\bein(e|en|em|er|es)?\b(?! (?:paar|bisschen|wenig|anderer|andere|anderes)\b)", r"kein\1"),
        (r"\bEin(e)?\b(?! (?:paar|bisschen|wenig)\b)", r"Kein\1"),
        (rf"(?<!^)\b(ist|sind|war|waren|bin|bist|seid)\b(?! (?:{_DE_SUBJECT})\b)(?![,.?!])", r"\1 nicht"),
    ),
}  # fmt: skip


def make_contrasts(pairs: Sequence[Pair], *, language: str) -> list[ContrastivePair]:
    """Return the contrastive pairs of a test set whose targets are in this language, `en` or `de`."""
    if language not in _NEGATIONS:
        raise DataError(f"contrastive pairs can be made of targets in {', '.join(_NEGATIONS)}, not in {language!r}")
    makers: dict[str, Callable[[str], str | None]] = {
        NUMBERS: lambda target: other_number(target, language),
        NEGATION: lambda target: other_polarity(target, language),
        NAMES: other_name,
    }
    return [
        ContrastivePair(pair.source, pair.target, wrong, category)
        for category, make in makers.items()
        for pair in pairs
        if (wrong := make(pair.target)) is not None and wrong != pair.target
    ]


def other_number(target: str, language: str) -> str | None:
    """Return the target with its first number changed; None: it has none."""
    if found := _DIGITS.search(target):
        draw, number = Random(f"{NUMBERS} {target}"), found[0]
        # The last digit, so that a year remains a year, and not to 0, so that a single digit remains a number.
        digit = draw.choice([one for one in "123456789" if one != number[-1]])
        return target[: found.end() - 1] + digit + target[found.end() :]
    words = _NUMBER_WORDS[language]
    for found in _WORD.finditer(target):
        word = found[0]
        if word.lower() in words:
            other = Random(f"{NUMBERS} {target}").choice([one for one in words if one != word.lower()])
            return _replaced(target, found, other if word.islower() else other.capitalize())
    return None


def other_polarity(target: str, language: str) -> str | None:
    """Return the target with a negation removed, or with one added; None: no rule fits."""
    for pattern, replacement in _NEGATIONS[language]:
        changed, count = re.subn(pattern, replacement, target, count=1)
        if count:
            return changed
    return None


def other_name(target: str) -> str | None:
    """Return the target with two names exchanged, or with one replaced by another; None: it has none."""
    found = [one for one in _WORD.finditer(target) if one[0] in _PEOPLE or one[0] in _PLACES]
    if not found:
        return None
    first, second = found[0], next((one for one in found if one[0] != found[0][0]), None)
    alike = second is not None and (first[0] in _PEOPLE) == (second[0] in _PEOPLE)
    if second is not None and alike and not _JOINING.fullmatch(target, first.end(), second.start()):
        return _replaced(_replaced(target, second, first[0]), first, second[0])
    # Mary is Maria in German.
    used = {one[0] for one in found} | {"Mary", "Maria"}
    others = [name for name in (_PEOPLE if first[0] in _PEOPLE else _PLACES) if name not in used]
    return re.sub(rf"\b{first[0]}\b", Random(f"{NAMES} {target}").choice(others), target)


def _replaced(text: str, found: re.Match[str], other: str) -> str:
    return text[: found.start()] + other + text[found.end() :]
