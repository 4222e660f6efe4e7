"""Vocabularies of other toolkits in the order that ours have: UNK, BOS and EOS are the ids 0, 1 and 2 here.

A model begins its output with BOS, and never outputs it. Marian models begin with the padding symbol, or with a vector of
zeros, so that is what BOS stands for; ids are permuted accordingly, and so are the rows of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import ConfigError
from regard.exchange.imported import need_file
from regard.storage.folder import Folder
from regard.text.listed_subwords import ListedSubwords
from regard.text.symbols import RESERVED, SPLIT, SymbolTokenizer
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_pair import Tokenizers

MAX_SYMBOLS, MAX_BYTES = 10_000_000, 512 * 2**20
# Names of SentencePiece files: of source and target, or of both.
SENTENCEPIECE = (
    ("source.spm", "target.spm"),
    ("sentencepiece.bpe.model",),
    ("sentencepiece.model",),
    ("spm.model",),
    ("sp.model",),
    ("tokenizer.model",),
)


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of another toolkit's vocabulary by id, and which of them are ours with a meaning of their own.

    `bos` is the symbol that becomes BOS; None: there is none, and BOS is a row that the toolkit's tensors do not have.
    """

    symbols: Sequence[str]
    unk: int
    bos: int | None
    eos: int

    def order(self) -> list[int]:
        """Return the id there of each id here. The one of BOS is -1 if there is none."""
        special = [self.unk, -1 if self.bos is None else self.bos, self.eos]
        return special + [id for id in range(len(self.symbols)) if id not in special]

    def order_back(self) -> list[int]:
        """Return the id here of each id there: the inverse of `order`, for export."""
        places = {id: place for place, id in enumerate(self.order())}
        return [places[id] for id in range(len(self.symbols))]

    def here(self, id: int) -> int:
        """Return the id here of an id there."""
        return self.order().index(id)

    def tokenizer(self, model: bytes | None, *, origin: str) -> Tokenizer:
        """Return the tokenizer: subwords of a SentencePiece file, or words between spaces if there is no file."""
        if not len(self.symbols) <= MAX_SYMBOLS:
            raise ConfigError(f"{origin} has {len(self.symbols):,} symbols; at most {MAX_SYMBOLS:,} are imported")
        symbols = _distinct([self.symbols[id] for id in self.order()[len(RESERVED) :]])
        if model is not None:
            try:
                return ListedSubwords(model, symbols)
            except RuntimeError as error:
                raise ConfigError(f"{origin}: the SentencePiece file cannot be read") from error
        split = SPLIT["word"]
        wrong = next((one for one in symbols if split(one) != [one]), None)
        if wrong is not None:
            raise ConfigError(
                f"{origin} has the symbol {wrong[:80]!r}, which is not one word; add its SentencePiece file"
            )
        return SymbolTokenizer("word", symbols)


def pair_of(
    source: Vocabulary, target: Vocabulary, models: tuple[bytes | None, bytes | None], *, origin: str
) -> Tokenizers:
    """Return the tokenizers of both sides: one for both if vocabularies and SentencePiece files are the same."""
    first = source.tokenizer(models[0], origin=origin)
    if source == target and models[0] == models[1]:
        return Tokenizers(first, first)
    return Tokenizers(first, target.tokenizer(models[1], origin=origin))


def load_tokenizers(folder: Folder, source: Vocabulary, target: Vocabulary) -> tuple[Tokenizers, list[str], list[str]]:
    """Return the tokenizers of both sides, the SentencePiece files that they were read from, and notes for the card."""
    models, files, notes = sentencepiece_files(folder)
    return pair_of(source, target, models, origin=str(folder.path)), files, notes


def sentencepiece_files(folder: Folder) -> tuple[tuple[bytes | None, bytes | None], list[str], list[str]]:
    """Return the SentencePiece files of both sides that a folder has, their names, and a note if there are none."""
    for names in SENTENCEPIECE:
        if set(names) <= set(folder.names()):
            models = [folder.load_bytes(need_file(folder, name, why="it splits text")) for name in names]
            return (models[0], models[-1]), list(names), []
    note = "There is no SentencePiece file: give text as the model was trained on it, symbols separated by spaces."
    return (None, None), [], [note]


def load_symbols(folder: Folder, stem: str) -> list[str] | None:
    """Return the symbols of a vocabulary: a list in JSON, or one per line of a text file; None if there is neither."""
    if folder.has_file(f"{stem}.json"):
        found = folder.load_json(f"{stem}.json", limit=MAX_BYTES)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise ConfigError(f"{folder.path / stem}.json is not a list of symbols")
        return found
    if folder.has_file(f"{stem}.txt"):
        return folder.load_text(f"{stem}.txt", limit=MAX_BYTES).removesuffix("\n").split("\n")
    return None


def _distinct(symbols: Sequence[str]) -> list[str]:
    """Return the symbols, with a number behind those that were there before: ids stay, and the first one is found."""
    seen: set[str] = set()
    result = []
    for id, symbol in enumerate(symbols):
        symbol = symbol if symbol not in seen else f"{symbol}<{id}>"
        seen.add(symbol)
        result.append(symbol)
    return result


def find_symbol(symbols: Sequence[str], wanted: Sequence[str], *, origin: str) -> int:
    """Return the id of the first of these symbols that the vocabulary has."""
    places = {symbol: id for id, symbol in reversed(list(enumerate(symbols)))}
    found = next((places[one] for one in wanted if one in places), None)
    if found is None:
        raise ConfigError(f"{origin} has no symbol {wanted[0]!r}, which a model needs")
    return found
