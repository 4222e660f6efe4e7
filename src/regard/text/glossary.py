"""Glossaries: which terms of a source are translated how. Inflected forms of a source term are recognized.

Two words are forms of one if they are the same without diacritics and without a common ending. This is crude, but
needs no knowledge of the language: "Häuser" and "Haus", "boxes" and "box", "cities" and "city" agree, "mice" and "mouse"
do not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from regard.errors import DataError
from regard.messages import counted
from regard.text.corpus import read_pairs
from regard.text.pair import Pair
from regard.text.text_report import TextReport
from regard.text.tmx import SEVERAL

MOST_TERMS = 200_000
_WORD = re.compile(r"\w+")
# Of nouns, adjectives and verbs in languages with Latin letters.
_ENDINGS = ("ern", "ens", "est", "ing", "es", "en", "er", "em", "ed", "s", "e", "n")
_SHORTEST_STEM = 3
_LONG_STEM = 4  # letters with which two words that both have endings are taken for forms of the same


@dataclass(frozen=True)
class Term:
    """A term of the source, and its translations, of which one is to be used."""

    source: str
    targets: tuple[str, ...]

    @property
    def forms(self) -> tuple[str, ...]:
        """The translations, and each with a capital letter, as at the beginning of a sentence."""
        return tuple(dict.fromkeys([*self.targets, *(one[:1].upper() + one[1:] for one in self.targets)]))


@dataclass(frozen=True)
class Word:
    """A word, and what it may be an inflected form of."""

    folded: str
    stems: frozenset[str]

    def is_form_of(self, other: Word) -> bool:
        """Whether two words are the same or forms of the same."""
        if self.folded == other.folded or self.folded in other.stems or other.folded in self.stems:
            return True
        return any(len(stem) >= _LONG_STEM for stem in self.stems & other.stems)


class Glossary:
    """Terms, found in a text by the stems of their words."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        self._by_first: dict[str, list[tuple[list[Word], Term]]] = {}  # by stems of the first word, the longest first
        for term in sorted(self.terms, key=lambda one: -len(_WORD.findall(one.source))):
            words = words_of(term.source)
            for key in {words[0].folded, *words[0].stems} if words else ():
                self._by_first.setdefault(key, []).append((words, term))

    def find(self, text: str) -> list[Term]:
        """Return the terms of a text in order, the longest where several begin with the same word. They do not overlap."""
        words, found, place = words_of(text), list[Term](), 0
        while place < len(words):
            match = self._match(words[place:])
            if match is not None:
                found.append(match[1])
            place += 1 if match is None else len(match[0])
        return found

    def _match(self, words: Sequence[Word]) -> tuple[list[Word], Term] | None:
        first = words[0]
        candidates = [one for key in {first.folded, *first.stems} for one in self._by_first.get(key, ())]
        fits = [
            (own, term) for own, term in candidates if len(own) <= len(words) and all(map(Word.is_form_of, own, words))
        ]
        # The longest; among equally long ones, the one with most words as they are.
        return max(
            fits,
            key=lambda one: (len(one[0]), sum(own.folded == word.folded for own, word in zip(one[0], words))),  # noqa: B905
            default=None,
        )

    def phrases(self, text: str) -> list[tuple[str, ...]]:
        """Return what the translation of a text must contain: for each term, one of its translations.

        A translation may have a capital letter, as at the beginning of a sentence.
        """
        return list(dict.fromkeys(term.forms for term in self.find(text)))

    def warn_of_many_forms(self, most: int, warn: Callable[[str], None]) -> None:
        """Call `warn` once if there are terms of which only the first forms are looked for."""
        # A term has at most twice as many forms as translations; saves making those of all terms.
        many = [term for term in self.terms if 2 * len(term.targets) > most and len(term.forms) > most]
        if many:
            more = f", and {counted(len(many) - 1, 'other term')}" if many[1:] else ""
            warn(
                f"the glossary has {len(many[0].forms)} forms for {many[0].source!r}, with capital letters{more}; "
                f"only the first {most} are used"
            )


def words_of(text: str) -> list[Word]:
    """Return the words of a text."""
    return [make_word(word) for word in _WORD.findall(text)]


@lru_cache(maxsize=2**16)
def make_word(word: str) -> Word:
    """Return a word with its possible stems."""
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    folded = "".join(character for character in decomposed if not unicodedata.combining(character))
    stems = {folded.removesuffix(ending) for ending in _ENDINGS if folded.endswith(ending)}
    stems |= {one[:-1] for one in stems if one[-1:] == one[-2:-1]}  # as in "running"
    stems |= {f"{one[:-1]}y" for one in stems if one.endswith("i")}  # as in "cities"
    return Word(folded, frozenset(one for one in stems if len(one) >= _SHORTEST_STEM))


def read_glossary(path: Path | str, *, languages: tuple[str, str] | None = None) -> Glossary:
    """Read a glossary: a table of two columns (.csv, .tsv), TBX, or another format of pairs. "a|b" are two translations.

    The first line of a table may name its columns: source and target, or the languages.
    """
    path = Path(path)
    columns = (1, 2) if path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")) else None
    pairs = read_pairs(path, columns=columns, languages=languages, report=TextReport(skip=True))
    if columns and (pairs[0].source.casefold(), pairs[0].target.casefold()) in (("source", "target"), languages):
        pairs = pairs[1:]
    if len(pairs) > MOST_TERMS:
        raise DataError(f"{path} has {counted(len(pairs), 'term')}; a glossary has at most {MOST_TERMS:,}")
    return make_glossary(pairs)


def make_glossary(pairs: Iterable[Pair | tuple[str, str]]) -> Glossary:
    """Return a glossary of terms and their translations."""
    targets: dict[str, dict[str, None]] = {}
    for source, target, *_ in pairs:
        for one in filter(None, map(str.strip, source.split(SEVERAL))):
            targets.setdefault(one, {}).update(dict.fromkeys(filter(None, map(str.strip, target.split(SEVERAL)))))
    return Glossary([Term(source, tuple(found)) for source, found in targets.items() if found])
