"""Tags: symbols in front of a source that say its domain or the language to translate it into.

Their ids are behind those of the text, so no text encodes to one of them, and no output shows one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.storage.folder import Folder
from regard.text.resampling import Resampled

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer


class TaggedTokenizer:
    """A tokenizer with ids of tags behind its own."""

    def __init__(self, text: Tokenizer, tags: Sequence[str]) -> None:
        assert len(set(tags)) == len(tags), tags
        self.text, self.tags = text, tuple(tags)

    @property
    def kind(self) -> str:
        return self.text.kind

    @property
    def size(self) -> int:
        return self.text.size + len(self.tags)

    def encode(self, text: str) -> list[int]:
        return self.text.encode(text)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return self.text.encode_all(texts)

    def tokenize(self, text: str) -> list[str]:
        return self.text.tokenize(text)

    def resampled(self, texts: Sequence[str], rate: float) -> Resampled:
        return self.text.resampled(texts, rate)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, without tags."""
        return self.text.decode([id for id in ids if id < self.text.size])

    def tokens(self, ids: Sequence[int]) -> list[str]:
        first = self.text.size
        return [self.text.tokens([id])[0] if id < first else self.tags[id - first] for id in ids]

    def save(self, folder: Folder, name: str) -> None:
        """Write the tokenizer of the text; `Tokenizers.save` writes the tags."""
        self.text.save(folder, name)
