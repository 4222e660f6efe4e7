"""The reserved ids of all tokenizers, and tokenizers whose symbols are characters or words.

There is no padding token, because batches are ragged.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn

import msgspec

from regard.errors import CheckpointError, ConfigError, DataError
from regard.messages import counted
from regard.storage.folder import Folder

UNK: Final = 0
BOS: Final = 1
EOS: Final = 2
# How ids 0, 1 and 2 are displayed. No text encodes to 1 or 2.
RESERVED: Final = ("\u2047", "<s>", "</s>")

SPLIT: dict[str, Callable[[str], list[str]]] = {"char": list, "word": str.split}
JOIN = {"char": "", "word": " "}


class SymbolTokenizer:
    """Encodes text as symbols of a fixed vocabulary: characters, including spaces, or words separated by whitespace."""

    def __init__(self, kind: str, symbols: Iterable[str]) -> None:
        self.kind = kind
        self._symbols = [*RESERVED, *symbols]
        # Reserved symbols cannot be looked up: "</s>" in a text is an ordinary word.
        self._ids = {symbol: id for id, symbol in enumerate(self._symbols) if id > EOS}
        assert len(self._ids) + len(RESERVED) == len(self._symbols), "a symbol occurs twice"

    @property
    def size(self) -> int:
        return len(self._symbols)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(symbol, UNK) for symbol in SPLIT[self.kind](text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def tokenize(self, text: str) -> list[str]:
        return SPLIT[self.kind](text)

    def resampled(self, texts: Sequence[str], rate: float) -> NoReturn:
        raise ConfigError(
            f"a {self.kind} tokenizer splits a text in one way only; subword sampling needs bpe or unigram"
        )

    def decode(self, ids: Sequence[int]) -> str:
        return JOIN[self.kind].join(self.tokens([id for id in ids if id not in (BOS, EOS)]))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        assert all(0 <= id < self.size for id in ids), (min(ids), max(ids), self.size)
        return [self._symbols[id] for id in ids]

    def save(self, folder: Folder, name: str) -> None:
        symbols = msgspec.json.encode(self._symbols[len(RESERVED) :])
        folder.save_bytes(f"{name}.json", msgspec.json.format(symbols, indent=1))


def train_symbols(texts: Sequence[str], *, kind: str, size: int, coverage: float) -> SymbolTokenizer:
    """Return a tokenizer with at most `size` ids, reserved ones included: the most frequent symbols of the texts.

    Ties are in code point order. All characters must fit into `size`, as for subwords; rare words become unknown.
    """
    split = SPLIT[kind]
    counts = Counter(itertools.chain.from_iterable(map(split, texts)))
    if not counts:
        raise DataError("there is no text to train a tokenizer on; the training pairs are missing or blank")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if coverage < 1:
        running = itertools.accumulate(count for _, count in ranked)
        enough = sum(total < coverage * counts.total() for total in running) + 1
        ranked = ranked[:enough]
    room = size - len(RESERVED)
    if kind == "char" and len(ranked) > room:
        raise ConfigError(
            f"tokenizer.size is {size}, but the text has {counted(len(ranked), 'different character')}; use at least "
            f"{len(ranked) + len(RESERVED)}, or a lower tokenizer.coverage"
        )
    return SymbolTokenizer(kind, [symbol for symbol, _ in ranked[:room]])


def load_symbols(folder: Folder, name: str, *, kind: str) -> SymbolTokenizer:
    """Return the tokenizer that `save` wrote."""
    path = folder.path / f"{name}.json"
    if path.name not in folder.names():
        raise CheckpointError(f"{path} is missing; the ids of this run cannot be decoded without it")
    try:
        symbols = msgspec.json.decode(folder.load_bytes(path.name), type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); restore it from a copy of the run") from error
    if len(set(symbols)) != len(symbols) or any(SPLIT[kind](symbol) != [symbol] for symbol in symbols):
        raise CheckpointError(f"{path} is not a list of distinct {kind} symbols; restore it from a copy of the run")
    return SymbolTokenizer(kind, symbols)
