"""Words of a source that a vocabulary does not have, as ids behind it, so that a model can copy them letter for letter.

With a vocabulary of V ids, the first unknown word of a source is V, the next one V + 1, and so on; equal words share an id.
The ids belong to one source: another source uses them for other words. Characters that a `char` tokenizer does not know are
treated alike. Subwords spell every word, so nothing is added to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.text.protected_spans import Masked
from regard.text.symbols import JOIN, UNK
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ExtendedVocabulary:
    """A tokenizer, the words of one source that it does not know, and the spans of the source that are protected."""

    tokenizer: Tokenizer
    words: tuple[str, ...] = ()
    masked: Masked | None = None  # the source with placeholders for its protected spans

    @property
    def kind(self) -> str:
        return self.tokenizer.kind

    def encode(self, text: str) -> list[int]:
        """Return the ids of an output, in which protected spans of the source become placeholders.

        Words that neither the vocabulary nor the source has are UNK.
        """
        text = text if self.masked is None else self.masked.mask_output(text)
        ids = self.tokenizer.encode(text)
        if not self.words or UNK not in ids:
            return ids
        numbers = {word: self.tokenizer.size + number for number, word in enumerate(self.words)}
        tokens = self.tokenizer.tokenize(text)
        return [numbers.get(token, UNK) if id == UNK else id for id, token in zip(ids, tokens, strict=True)]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return each id as a printable string."""
        size = self.tokenizer.size
        known = self.tokenizer.tokens([id if id < size else UNK for id in ids])
        return [token if id < size else self.words[id - size] for id, token in zip(ids, known, strict=True)]

    def display(self, tokens: Sequence[str]) -> list[str]:
        """Return tokens as they are displayed: placeholders as the spans of the source that they stand for."""
        return list(tokens) if self.masked is None else list(map(self.masked.display, tokens))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, without BOS, EOS and tags, and with the protected spans of the source."""
        text = self._decode(ids)
        return text if self.masked is None else self.masked.restore(text)

    def _decode(self, ids: Sequence[int]) -> str:
        if all(id < self.tokenizer.size for id in ids):
            return self.tokenizer.decode(ids)
        # BOS, EOS and tags have no text.
        shown = [id for id in ids if id >= self.tokenizer.size or self.tokenizer.decode([id])]
        return JOIN[self.kind].join(self.tokens(shown))


def extend(tokenizer: Tokenizer, text: str, *, most: int | None = None) -> tuple[list[int], ExtendedVocabulary]:
    """Return the first `most` ids of a source, where unknown words have ids of their own, and the vocabulary with them."""
    ids = tokenizer.encode(text)[:most]
    if UNK not in ids or tokenizer.kind not in JOIN:
        return ids, ExtendedVocabulary(tokenizer)
    numbers: dict[str, int] = {}
    for place, token in enumerate(tokenizer.tokenize(text)[:most]):
        if ids[place] == UNK:
            ids[place] = numbers.setdefault(token, tokenizer.size + len(numbers))
    return ids, ExtendedVocabulary(tokenizer, tuple(numbers))
