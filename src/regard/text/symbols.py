"""What every tokenizer keeps to, and the two simplest ones: a symbol is a character, or a word.

Ids 0, 1 and 2 are the same everywhere. There is no pad token: batches are ragged.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn

import msgspec

from regard.errors import CheckpointError, ConfigError, DataError
from regard.storage.folder import Folder

UNK: Final = 0
BOS: Final = 1
EOS: Final = 2
RESERVED: Final = ("\u2047", "<s>", "</s>")  # what a person sees for ids 0, 1 and 2; text never encodes to 1 or 2

SPLIT: dict[str, Callable[[str], list[str]]] = {"char": list, "word": str.split}
_JOIN = {"char": "", "word": " "}


class SymbolTokenizer:
    """Text as a row of known symbols: characters (spaces too), or words between whitespace."""

    def __init__(self, kind: str, symbols: Iterable[str]) -> None:
        self.kind = kind
        self._pieces = [*RESERVED, *symbols]
        # Only what follows the reserved three can be looked up: "</s>" in a text is a word like any other.
        self._ids = {piece: id for id, piece in enumerate(self._pieces) if id > EOS}
        assert len(self._ids) + len(RESERVED) == len(self._pieces), "a symbol occurs twice"

    @property
    def size(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(symbol, UNK) for symbol in SPLIT[self.kind](text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def resampled(self, texts: Sequence[str], rate: float) -> NoReturn:
        raise ConfigError(f"a {self.kind} tokenizer has one way to split a text; subword sampling needs bpe or unigram")

    def decode(self, ids: Sequence[int]) -> str:
        return _JOIN[self.kind].join(self.tokens([id for id in ids if id not in (BOS, EOS)]))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        assert all(0 <= id < self.size for id in ids), (min(ids), max(ids), self.size)
        return [self._pieces[id] for id in ids]

    def save(self, folder: Folder, name: str) -> None:
        symbols = msgspec.json.encode(self._pieces[len(RESERVED) :])
        folder.save_bytes(f"{name}.json", msgspec.json.format(symbols, indent=1))


def train_symbols(texts: Sequence[str], *, kind: str, size: int, coverage: float) -> SymbolTokenizer:
    """The symbols of the texts, most frequent first, ties in code point order; `size` counts the reserved ids too.

    Characters must all fit, as they do for subwords; of the words, the most frequent are kept and the rest are unknown.
    """
    split = SPLIT[kind]
    counts = Counter(itertools.chain.from_iterable(map(split, texts)))
    if not counts:
        raise DataError("there is no text to learn a tokenizer from; the training pairs are missing or blank")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if coverage < 1:
        running = itertools.accumulate(count for _, count in ranked)
        enough = sum(total < coverage * counts.total() for total in running) + 1
        ranked = ranked[:enough]
    room = size - len(RESERVED)
    if kind == "char" and len(ranked) > room:
        raise ConfigError(
            f"tokenizer.size is {size}, but the text has {len(ranked)} different characters; use at least "
            f"{len(ranked) + len(RESERVED)}, or a lower tokenizer.coverage"
        )
    return SymbolTokenizer(kind, [symbol for symbol, _ in ranked[:room]])


def load_symbols(folder: Folder, name: str, *, kind: str) -> SymbolTokenizer:
    """The tokenizer that `save` wrote."""
    path = folder.path / f"{name}.json"
    if path.name not in folder.names():
        raise CheckpointError(f"{path} is missing; without it the ids of this run mean nothing")
    try:
        symbols = msgspec.json.decode(folder.load_bytes(path.name), type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); restore it from a copy of the run") from error
    if len(set(symbols)) != len(symbols) or any(SPLIT[kind](symbol) != [symbol] for symbol in symbols):
        raise CheckpointError(f"{path} is not a list of different {kind} symbols; restore it from a copy of the run")
    return SymbolTokenizer(kind, symbols)
