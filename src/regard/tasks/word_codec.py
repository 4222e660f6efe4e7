"""What tasks share that read text with one tokenizer: their codec, and how words become ids and characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.text.tokenizer import UNK, Tokenizer
from regard.text.tokenizer_pair import Tokenizers, load_tokenizers
from regard.text.words import NO_FEATURES, WordFeatures, load_words


@dataclass(frozen=True)
class WordCodec:
    """A tokenizer, and what else is read of a word."""

    tokenizer: Tokenizer
    words: WordFeatures = NO_FEATURES

    def save(self, folder: Folder) -> None:
        save_tokenizer(self.tokenizer, folder)
        self.words.save(folder)

    def vocabularies(self) -> dict[str, Sequence[str]]:
        """Return what its ids stand for, by the names that the sizes have in models."""
        found: dict[str, Sequence[str]] = {"source_size": every_token(self.tokenizer)}
        found |= {"num_characters": self.words.character_names} if self.words.characters else {}
        return {**found, **({"num_tags": self.words.tags} if self.words.tags else {})}

    def reading_as(self, other: object) -> Self:
        """Return the codec with the tokenizer and characters of another one, if both read characters or neither does."""
        tokenizer, words = tokenizer_of(other), getattr(other, "words", NO_FEATURES)
        if tokenizer is None or bool(words.characters) != bool(self.words.characters):
            return self
        tags = at_least(self.words.tags, words.tags)
        return replace(self, tokenizer=tokenizer, words=WordFeatures(words.characters, tags))

    def encode_words(self, words: list[str]) -> tuple[list[int], list[int]]:
        """Return the ids of words joined by spaces, and the place of each word's first id."""
        return encode_words(self.tokenizer, cased(words, self.words))


def at_least(own: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the run to begin with if they include all of our own, else our own."""
    return theirs if own and set(own) <= set(theirs) else own


W = TypeVar("W", bound=WordCodec)


class WordTask(Task[W]):
    """A task whose codec is a `WordCodec`."""

    def sizes(self, codec: W) -> dict[str, int]:
        return {name: len(texts) for name, texts in self.vocabularies(codec).items()}

    def vocabularies(self, codec: W) -> dict[str, Sequence[str]]:
        return codec.vocabularies()

    def take_over(self, codec: W, other: Any) -> W:
        return codec.reading_as(other)


# One tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Folder) -> None:
    """Write the only tokenizer of a codec."""
    Tokenizers(tokenizer, tokenizer).save(folder)


def load_tokenizer(folder: Folder) -> Tokenizer:
    """Return the tokenizer that `save_tokenizer` wrote."""
    return load_tokenizers(folder).source


def load_word_codec(folder: Folder) -> WordCodec:
    """Return what `WordCodec.save` wrote."""
    return WordCodec(load_tokenizer(folder), load_words(folder))


def every_token(tokenizer: Tokenizer) -> Sequence[str]:
    """Return what each id stands for."""
    return tokenizer.tokens(range(tokenizer.size))


def tokenizer_of(codec: object, *, target: bool = False) -> Tokenizer | None:
    """Return the tokenizer of the codec of any task, if it has one: of two, that of the source or of the target."""
    if isinstance(codec, Tokenizers):
        plain = codec.without_tags()
        return plain.target if target else plain.source
    found: Tokenizer | None = getattr(codec, "tokenizer", None)
    return found


# Words


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the ids of words joined by spaces, and the place of each word's first id."""
    if tokenizer.kind == "word":
        return tokenizer.encode(" ".join(words)), list(range(len(words)))
    ids: list[int] = []
    starts: list[int] = []
    for word in spaced_words(tokenizer, words):
        starts.append(len(ids))
        # A word of invisible characters may have no ids, but needs a place for its label.
        ids += tokenizer.encode(word) or [UNK]
    return ids, starts


def cased(words: list[str], features: WordFeatures) -> list[str]:
    """Return words as the vocabulary has them: in small letters if the model sees the others as characters."""
    return [word.lower() for word in words] if features.characters else words


def spaced_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Return the words as they are encoded one by one: characters need the spaces between words."""
    return [word if number == 0 or tokenizer.kind != "char" else f" {word}" for number, word in enumerate(words)]
