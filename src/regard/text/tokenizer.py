"""The protocol of tokenizers, their kinds by name, and the pair of tokenizers that a model has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from regard.config import TokenizerConfig
from regard.config.mixing import is_list_of_tags
from regard.errors import CheckpointError, ConfigError, DecodeError
from regard.registry import Registry
from regard.storage.folder import SMALL, Folder
from regard.text.listed_subwords import load_listed_subwords, train_listed_subwords
from regard.text.resampling import Resampled
from regard.text.subwords import load_subwords, train_subwords
from regard.text.symbols import BOS, EOS, RESERVED, UNK, load_symbols, train_symbols
from regard.text.tags import TaggedTokenizer

__all__ = [
    "BOS",
    "EOS",
    "TOKENIZERS",
    "UNK",
    "Tokenizer",
    "TokenizerKind",
    "Tokenizers",
    "fit_input_tokenizer",
    "fit_tokenizer",
    "fit_tokenizers",
    "load_tokenizers",
    "refuse_unknown_kinds",
    "register_tokenizer",
    "train_tokenizer",
    "train_tokenizers",
]

TOKENIZER = "tokenizer.json"
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


class _Saved(msgspec.Struct, omit_defaults=True):
    kind: str  # of both sides, or of the source
    joint: bool
    target_kind: str | None = None  # where it is another one
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a model's source and target. Joint: one tokenizer for both, so that embeddings can be shared."""

    source: Tokenizer
    target: Tokenizer
    tags: Mapping[str, int] = field(default_factory=dict)  # ids of the symbols that may stand in front of a source

    def with_tags(self, tags: Sequence[str]) -> Tokenizers:
        """Return the tokenizers with ids for these tags as well: behind those of the source, or of both sides if joint."""
        every = list(dict.fromkeys([*self.tags, *tags]))
        if not every:
            return self
        plain = self.without_tags()
        source = TaggedTokenizer(plain.source, every)
        ids = {tag: plain.source.size + number for number, tag in enumerate(every)}
        return Tokenizers(source, source if plain.joint else plain.target, ids)

    def without_tags(self) -> Tokenizers:
        """Return the tokenizers of text alone."""
        if not isinstance(self.source, TaggedTokenizer):
            return self
        text = self.source.text
        return Tokenizers(text, text if self.joint else self.target)

    def tag_ids(self, tags: Sequence[str]) -> list[int]:
        """Return the ids of these tags."""
        for tag in tags:
            if tag not in self.tags:
                there = f"the tags {', '.join(self.tags)}" if self.tags else "no tags"
                raise DecodeError(f"the tag {tag!r} is unknown; this model was trained with {there}")
        return [self.tags[tag] for tag in tags]

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def same_vocabulary(self, other: Tokenizers) -> bool:
        """Whether each id is the same token or tag in both."""
        sides = (self.source, other.source), (self.target, other.target)
        return self.tags == other.tags and all(
            one.size == two.size and one.tokens(range(one.size)) == two.tokens(range(two.size)) for one, two in sides
        )

    def save(self, folder: Folder) -> None:
        """Write tokenizer.json and a file per tokenizer, which `load_tokenizers` reads."""
        if self.joint:
            self.source.save(folder, "joint")
        else:
            self.source.save(folder, "source")
            self.target.save(folder, "target")
        target_kind = None if self.target.kind == self.source.kind else self.target.kind
        tags = tuple(self.tags)
        saved = _Saved(kind=self.source.kind, joint=self.joint, target_kind=target_kind, tags=tags)
        folder.save_bytes(TOKENIZER, msgspec.json.encode(saved))


def load_tokenizers(folder: Folder) -> Tokenizers:
    """Return the pair that `Tokenizers.save` wrote into the folder."""
    path = folder.path / TOKENIZER
    if TOKENIZER not in folder.names():
        raise CheckpointError(f"{path} is missing; {folder} does not hold a trained tokenizer")
    try:
        saved = msgspec.json.decode(folder.load_bytes(TOKENIZER, limit=SMALL), type=_Saved)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); restore it from a copy of the run") from error

    def load(name: str, kind: str) -> Tokenizer:
        try:
            registered = TOKENIZERS.get(kind, where=f"the kind in {path}")
        except ConfigError as error:
            raise CheckpointError(f"{error} (if it is from a plug-in, install the plug-in)") from error
        return registered.load(folder, name, kind=kind)

    if not is_list_of_tags(saved.tags):
        raise CheckpointError(f"{path} is damaged: its tags are not distinct words; restore it from a copy of the run")
    if saved.joint:
        both = load("joint", saved.kind)
        return Tokenizers(both, both).with_tags(saved.tags)
    sides = load("source", saved.kind), load("target", saved.target_kind or saved.kind)
    return Tokenizers(*sides).with_tags(saved.tags)


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


def train_tokenizers(
    pairs: Sequence[tuple[str, str]],
    *,
    kind: str,
    size: int,
    joint: bool,
    coverage: float = 1.0,
    byte_fallback: bool | None = None,
) -> Tokenizers:
    """Return tokenizers of one kind trained on the pairs, each of at most `size` ids, reserved ones included.

    With `joint` one is trained on both sides together. The other options are those of `train_tokenizer`.
    """
    train = partial(train_tokenizer, kind=kind, size=size, coverage=coverage, byte_fallback=byte_fallback)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    if joint:
        both = train(sources + targets)
        return Tokenizers(both, both)
    return Tokenizers(train(sources), train(targets))


# Tokenizers of a recipe


def refuse_unknown_kinds(config: TokenizerConfig) -> None:
    """Raise ConfigError if a kind that the recipe names is not registered."""
    named = {"tokenizer": config, "tokenizer.source": config.source, "tokenizer.target": config.target}
    for where, table in named.items():
        if table is not None and table.kind is not None:
            TOKENIZERS.get(table.kind, where=f"{where}.kind")


def fit_tokenizers(
    pairs: Sequence[tuple[str, str]],
    config: TokenizerConfig,
    *,
    tags: Sequence[str] = (),
    symbols: Sequence[str] = (),
) -> Tokenizers:
    """Return the tokenizers that a recipe describes, trained on the pairs: a joint one, or one per side.

    `tags` are the symbols in front of sources; `tokenizer.size` does not count them. `symbols` are never split.
    """
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    if config.joint:
        both = fit_tokenizer(sources + targets, config, symbols)
        return Tokenizers(both, both).with_tags(tags)
    source, target = config.side("source"), config.side("target")
    sides = Tokenizers(fit_tokenizer(sources, source, symbols), fit_tokenizer(targets, target, symbols))
    return sides.with_tags(tags)


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
