"""What models that read words know of a word besides its id: its characters and its tag; and words of untokenized text.

Words are separated by spaces. A tag follows its word, as in `the|DT dog|NN`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from regard.errors import CheckpointError, DataError
from regard.storage.folder import SMALL, Folder

WORDS_FILE = "words.json"
MOST_CHARACTERS, MOST_TAGS = 10_000, 10_000
# Ids of characters. All others follow, the most frequent first.
NO_CHARACTER, UNKNOWN_CHARACTER, MASK_CHARACTER, FIRST_CHARACTER = 0, 1, 2, 3

Spellings = NDArray[np.int16]


class _Saved(msgspec.Struct, forbid_unknown_fields=True):
    characters: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class WordFeatures:
    """The characters and tags that a model knows. Where there are none, it reads none."""

    characters: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def save(self, folder: Folder) -> None:
        """Write one file, if there is anything to write."""
        if self.characters or self.tags:
            folder.save_json(WORDS_FILE, {"characters": self.characters, "tags": self.tags})

    @property
    def num_characters(self) -> int:
        """The number of ids of characters."""
        return FIRST_CHARACTER + len(self.characters)

    @property
    def character_names(self) -> list[str]:
        """What each id of a character stands for."""
        return ["none", "unknown", "mask", *self.characters]

    @cached_property
    def _character_ids(self) -> dict[str, int]:
        return {one: number for number, one in enumerate(self.characters, start=FIRST_CHARACTER)}

    @cached_property
    def _tag_ids(self) -> dict[str, int]:
        return {one: number for number, one in enumerate(self.tags)}

    def spell(self, words: Sequence[str], length: int) -> Spellings:
        """Return the ids of the characters of each word: [words, length]. A long word keeps its first and last ones."""
        numbers: dict[str, int] = {}
        places = [numbers.setdefault(word, len(numbers)) for word in words]
        table = np.zeros((len(numbers), length), dtype=np.int16)
        for word, row in numbers.items():
            kept = word if len(word) <= length else word[: length // 2] + word[len(word) - (length - length // 2) :]
            table[row, : len(kept)] = [self._character_ids.get(one, UNKNOWN_CHARACTER) for one in kept]
        return table[places] if places else table.reshape(0, length)

    def read(self, text: str) -> tuple[list[str], list[int]]:
        """Return the words of a text and the ids of their tags, of which there are none if the model reads none."""
        words = text.split()
        if not self.tags:
            return words, []
        halves = [word.rpartition("|") for word in words]
        for word, _, tag in halves:
            if tag not in self._tag_ids or not word:
                raise DataError(
                    f"this model reads words with tags, as in the|{self.tags[0]}, and {word or tag!r} has none that it knows"
                )
        return [word for word, _, _ in halves], [self._tag_ids[tag] for _, _, tag in halves]


NO_FEATURES = WordFeatures()


def fit_words(texts: Iterable[str], *, spelled: bool, tagged: bool) -> WordFeatures:
    """Return the characters and tags of the texts."""
    characters: Counter[str] = Counter()
    tags: set[str] = set()
    for text in texts:
        words = text.split()
        if tagged:
            halves = [word.rpartition("|") for word in words]
            words = [word for word, _, _ in halves]
            tags.update(tag for _, _, tag in halves)
        if spelled:
            characters.update("".join(words))
    if len(tags) > MOST_TAGS:
        raise DataError(f"the words have {len(tags):,} different tags; {MOST_TAGS:,} can be learned")
    known = sorted(characters, key=lambda one: (-characters[one], one))[:MOST_CHARACTERS]
    return WordFeatures(tuple(known), tuple(sorted(tags)))


def load_words(folder: Folder) -> WordFeatures:
    """Return what `WordFeatures.save` wrote; nothing if there is no file."""
    if WORDS_FILE not in folder.names():
        return WordFeatures()
    path = folder.path / WORDS_FILE
    try:
        saved = msgspec.convert(folder.load_json(WORDS_FILE, limit=SMALL), _Saved)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    distinct = all(len(set(names)) == len(names) for names in (saved.characters, saved.tags))
    single = all(len(one) == 1 for one in saved.characters) and all(one.split() == [one] for one in saved.tags)
    if not (distinct and single and len(saved.characters) <= MOST_CHARACTERS and len(saved.tags) <= MOST_TAGS):
        raise CheckpointError(
            f"{path} is damaged: it must hold distinct characters, and distinct tags of one word each"
        )
    return WordFeatures(saved.characters, saved.tags)


# Words of text as it is written. Only the edges of what spaces separate are split, so tokenized text stays as it is.
_CLITIC = re.compile(r"(?<=\w)(n't|'(?:s|m|d|re|ve|ll))$", re.IGNORECASE)
_OPENING, _CLOSING = re.compile(r'^[("]+(?=[\w\[])'), re.compile(r'(?<=[\w\]])([,;:?!)"]+\.?|\.[)"]+)$')
_SENTENCE_END = re.compile(r"(?:(?<=[a-z]{3})|(?<=[0-9%)\]]))\.$")


def split_words(text: str) -> list[str]:
    """Return the words of English text, split as in the Penn Treebank: `"Don't go," he said.` has nine.

    Quotes, brackets, commas and similar marks at the edges of a word are words; so are a full stop behind three small
    letters or at the end of the text, and clitics ('s, n't).
    """
    found: list[str] = []
    parts = text.split()
    for number, part in enumerate(parts, start=1):
        before: list[str] = []
        after: list[str] = []
        if match := _OPENING.search(part):
            before, part = list(match.group()), part[match.end() :]
        if match := _CLOSING.search(part):
            after, part = list(match.group()), part[: match.start()]
        if match := _SENTENCE_END.search(part):
            after, part = [".", *after], part[: match.start()]
        elif number == len(parts) and not after and len(part) > 1 and part[-1] == "." and part[-2].isalnum():
            after, part = ["."], part[:-1]
        if match := _CLITIC.search(part):
            after, part = [match.group(), *after], part[: match.start()]
        found += [*before, part, *after]
    return found


# Words that are hidden, for masked language models
MASK_WORD = "[MASK]"
ONE_IN = 7  # words of plain text of which one is hidden


def hidden_words(words: Sequence[str]) -> list[int]:
    """Return the numbers of the words that are hidden: those that are [MASK], or every seventh one if there is none."""
    masked = [number for number, word in enumerate(words) if word == MASK_WORD]
    return masked or list(range((len(words) - 1) // 2 % ONE_IN, len(words), ONE_IN)) if words else []
