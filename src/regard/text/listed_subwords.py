"""SentencePiece subwords whose ids come from a list of their own: the tokenizers of imported models.

A SentencePiece file splits a text, and a vocabulary numbers the subwords. Two such tokenizers, one per language, may share
one vocabulary, as those of Marian models do: their embeddings can then be shared. The text is normalized as the file says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

import msgspec
import sentencepiece

from regard.cores import usable_cores
from regard.errors import CheckpointError, ConfigError
from regard.storage.folder import Folder
from regard.text.subwords import train_subwords, without_tabs
from regard.text.symbols import BOS, EOS, RESERVED, UNK

_MANY_TEXTS = 1_000  # from which encoding in several threads is faster
_SPACE = "\u2581"  # SentencePiece's symbol for a space
# In front of a source, the language to translate to, as in ">>fra<<". It is a symbol of its own if the vocabulary has it.
_TAG = re.compile(r">>[^\s<>]{1,100}<<")


class ListedSubwords:
    """A SentencePiece file, and the symbols that have an id: the reserved ones, then `symbols`."""

    kind = "sentencepiece"

    def __init__(self, model: bytes, symbols: Sequence[str]) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        self._symbols = [*RESERVED, *symbols]
        # Reserved symbols cannot be looked up: "</s>" in a text is an ordinary word.
        self._ids = {symbol: id for id, symbol in enumerate(self._symbols) if id > EOS}

    @property
    def size(self) -> int:
        return len(self._symbols)

    @property
    def model(self) -> bytes:
        """The SentencePiece file."""
        return self._model

    @property
    def symbols(self) -> list[str]:
        """The symbol of each id behind the reserved ones."""
        return self._symbols[len(RESERVED) :]

    @property
    def tags(self) -> list[str]:
        """The symbols that choose a language in front of a source."""
        return [symbol for symbol in self.symbols if _TAG.fullmatch(symbol)]

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(subword, UNK) for subword in self.tokenize(text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        tags, rests = zip(*map(self._without_tag, texts), strict=True) if texts else ((), ())
        num_threads = usable_cores() if len(rests) >= _MANY_TEXTS else 1
        found: list[list[str]] = self._processor.Encode(list(rests), out_type=str, num_threads=num_threads)
        subwords = ([*tag, *split] for tag, split in zip(tags, found, strict=True))
        return [[self._ids.get(one, UNK) for one in each] for each in subwords]

    def tokenize(self, text: str) -> list[str]:
        tag, rest = self._without_tag(text)
        subwords: list[str] = self._processor.Encode(rest, out_type=str)
        return [*tag, *subwords]

    def _without_tag(self, text: str) -> tuple[list[str], str]:
        """Return the tag that a text begins with, if it has an id, and the rest."""
        found = _TAG.match(text)
        if found is None or found[0] not in self._ids:
            return [], without_tabs(text)
        return [found[0]], without_tabs(text[found.end() :])

    def resampled(self, texts: Sequence[str], rate: float) -> NoReturn:
        raise ConfigError(
            "the tokenizer of an imported model splits a text in one way only; subword sampling needs bpe or unigram"
        )

    def decode(self, ids: Sequence[int]) -> str:
        subwords = self.tokens([id for id in ids if id not in (BOS, EOS)])
        text: str = self._processor.DecodePieces(subwords)
        # A subword that only the other language's file has is copied as it is.
        return text.replace(_SPACE, " ").strip()

    def tokens(self, ids: Sequence[int]) -> list[str]:
        assert all(0 <= id < self.size for id in ids), (min(ids), max(ids), self.size)
        return [self._symbols[id] for id in ids]

    def save(self, folder: Folder, name: str) -> None:
        folder.save_bytes(f"{name}.model", self._model)
        folder.save_bytes(f"{name}.json", msgspec.json.format(msgspec.json.encode(self.symbols), indent=1))


def train_listed_subwords(texts: Sequence[str], *, kind: str, size: int, coverage: float) -> ListedSubwords:
    """Return a unigram tokenizer with at most `size` ids, its subwords listed in the order of the file."""
    trained = train_subwords(texts, kind="unigram", size=size, coverage=coverage, byte_fallback=False)
    return ListedSubwords(trained.model, trained.tokens(range(len(RESERVED), trained.size)))


def load_listed_subwords(folder: Folder, name: str, *, kind: str) -> ListedSubwords:
    """Return the tokenizer that `save` wrote."""
    path = folder.path / f"{name}.json"
    missing = [one for one in (f"{name}.model", f"{name}.json") if one not in folder.names()]
    if missing:
        raise CheckpointError(
            f"{folder.path / missing[0]} is missing; the ids of this run cannot be decoded without it"
        )
    try:
        symbols = msgspec.json.decode(folder.load_bytes(path.name), type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); restore it from a copy of the run") from error
    if len(set(symbols)) != len(symbols):
        raise CheckpointError(f"{path} has a symbol twice; restore it from a copy of the run")
    try:
        return ListedSubwords(folder.load_bytes(f"{name}.model"), symbols)
    except RuntimeError as error:
        raise CheckpointError(
            f"{folder.path / name}.model is not a complete SentencePiece model; restore it from a copy of the run"
        ) from error
