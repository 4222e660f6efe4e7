"""The protocol of tokenizers, and their kinds by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from regard.config import TokenizerConfig
from regard.errors import ConfigError
from regard.registry import Registry
from regard.storage.folder import Folder
from regard.text.listed_subwords import load_listed_subwords, train_listed_subwords
from regard.text.resampling import Resampled
from regard.text.subwords import load_subwords, train_subwords
from regard.text.symbols import BOS, EOS, RESERVED, UNK, load_symbols, train_symbols

__all__ = [
    "BOS",
    "EOS",
    "TOKENIZERS",
    "UNK",
    "Tokenizer",
    "TokenizerKind",
    "fit_input_tokenizer",
    "fit_tokenizer",
    "refuse_unknown_kinds",
    "register_tokenizer",
    "train_tokenizer",
]

_MIN_COVERAGE = 0.98  # SentencePiece accepts no less


class Tokenizer(Protocol):
    """Converts text to ids and back. Ids are below `size`. UNK, BOS and EOS are fixed; no text encodes to BOS or EOS."""

    @property
    def kind(self) -> str:
        """The name it is registered under."""

    @property
    def size(self) -> int:
        """The number of ids, reserved ones included."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without BOS and EOS."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""

    def tokenize(self, text: str) -> list[str]:
        """Return a printable string for each id of `encode`: that of the id, or what the text has where it is unknown."""

    def resampled(self, texts: Sequence[str], rate: float) -> Resampled:
        """Return the texts as an object that splits them differently at each draw, as noise for training.

        For BPE the rate is the probability that a merge is dropped. For unigram it is the exponent of a split's
        probability: *smaller* values give more variety. Raise ConfigError if this kind has one split only.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids. BOS and EOS are left out, UNK becomes `RESERVED[UNK]`."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return each id as a printable string."""

    def save(self, folder: Folder, name: str) -> None:
        """Write files into the folder, called `name` with suffixes of the kind's own."""


class TrainTokenizer(Protocol):
    def __call__(self, texts: Sequence[str], *, kind: str, size: int, coverage: float) -> Tokenizer:
        """Return a tokenizer learned from the texts, of at most `size` ids. `coverage` is `tokenizer.coverage`."""


class LoadTokenizer(Protocol):
    def __call__(self, folder: Folder, name: str, *, kind: str) -> Tokenizer:
        """Return the tokenizer that `Tokenizer.save` wrote under that name. Raise CheckpointError if it is damaged."""


class TokenizerKind(NamedTuple):
    """How tokenizers of one kind are trained and loaded. Both functions receive the registered name as `kind`."""

    train: TrainTokenizer
    load: LoadTokenizer
    # Whether `train` also takes `byte_fallback`, as in `tokenizer.byte_fallback`, and `symbols` that it must not split.
    subwords: bool = False


TOKENIZERS: Registry[TokenizerKind] = Registry("tokenizer")


def register_tokenizer(name: str, kind: TokenizerKind, *, replace: bool = False) -> None:
    """Let recipes choose the tokenizer as `tokenizer.kind`."""
    TOKENIZERS.register(name, kind, replace=replace)


register_tokenizer("bpe", TokenizerKind(train_subwords, load_subwords, subwords=True))
register_tokenizer("unigram", TokenizerKind(train_subwords, load_subwords, subwords=True))
register_tokenizer("char", TokenizerKind(train_symbols, load_symbols))
register_tokenizer("word", TokenizerKind(train_symbols, load_symbols))
register_tokenizer("sentencepiece", TokenizerKind(train_listed_subwords, load_listed_subwords))


def train_tokenizer(
    texts: Sequence[str],
    *,
    kind: str,
    size: int,
    coverage: float = 1.0,
    byte_fallback: bool | None = None,
    symbols: Sequence[str] = (),
) -> Tokenizer:
    """Return a tokenizer trained on the texts, of at most `size` ids, reserved ones included.

    With `coverage` below 1 the rarest symbols become unknown. With `byte_fallback` subwords write them as bytes; None: if
    the vocabulary has room for the 256 bytes. `symbols` have one id each.
    """
    registered = TOKENIZERS.get(kind, where="tokenizer.kind")
    if byte_fallback and not registered.subwords:
        raise ConfigError(
            f"tokenizer.byte_fallback is for subwords (bpe, unigram), not for tokenizer.kind={kind}; leave it out"
        )
    if symbols and not registered.subwords:
        raise ConfigError(
            f"data.augment.placeholders needs subwords (bpe, unigram), not tokenizer.kind={kind}; leave it out"
        )
    if size <= len(RESERVED):
        raise ConfigError(f"tokenizer.size is {size}; {len(RESERVED)} ids are reserved, so it must be more than that")
    if not _MIN_COVERAGE <= coverage <= 1:
        raise ConfigError(f"tokenizer.coverage is {coverage}; it must be from {_MIN_COVERAGE} to 1")
    options: dict[str, Any] = {"byte_fallback": byte_fallback, "symbols": symbols} if registered.subwords else {}
    trained = registered.train(texts, kind=kind, size=size, coverage=coverage, **options)
    if trained.kind != kind:
        raise ConfigError(f"the tokenizer registered as {kind!r} has the kind {trained.kind!r}; they must be equal")
    return trained


def refuse_unknown_kinds(config: TokenizerConfig) -> None:
    """Raise ConfigError if a kind that the recipe names is not registered."""
    named = {"tokenizer": config, "tokenizer.source": config.source, "tokenizer.target": config.target}
    for where, table in named.items():
        if table is not None and table.kind is not None:
            TOKENIZERS.get(table.kind, where=f"{where}.kind")


def fit_input_tokenizer(texts: Sequence[str], config: TokenizerConfig) -> Tokenizer:
    """Return the one tokenizer of a task whose outputs are not text."""
    if config.target is not None:
        raise ConfigError("this task has no text on its target side to tokenize; remove [tokenizer.target]")
    return fit_tokenizer(texts, config.side("source"))


def fit_tokenizer(texts: Sequence[str], config: TokenizerConfig, symbols: Sequence[str] = ()) -> Tokenizer:
    """Return the tokenizer of one side, trained on its texts. `symbols` are never split."""
    return train_tokenizer(
        texts,
        kind=config.kind,
        size=config.size,
        coverage=config.coverage,
        byte_fallback=config.byte_fallback,
        symbols=symbols,
    )
