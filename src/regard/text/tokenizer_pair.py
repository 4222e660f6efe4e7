"""The tokenizers of a model's source and target, and tags: symbols in front of a source.

A tag says the domain of a source, or the language to translate it into. The ids of tags are behind those of the text, so no
text encodes to one of them, and no output shows one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from regard.config import TokenizerConfig
from regard.config.mixing import is_list_of_tags
from regard.errors import CheckpointError, ConfigError, DecodeError
from regard.storage.folder import SMALL, Folder
from regard.text.resampling import Resampled
from regard.text.tokenizer import TOKENIZERS, Tokenizer, fit_tokenizer, train_tokenizer

TOKENIZER = "tokenizer.json"


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
