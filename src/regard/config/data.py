"""The `[data]` and `[tokenizer]` tables: which text is read, and how it is split."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, ClassVar, Literal

import msgspec

from regard.config.struct import LARGEST, Struct, between


class Bitext(Struct, frozen=True):
    """Where examples come from: parallel files, one file of pairs or texts, a built-in corpus, bAbI, or a store of ids."""

    source: str | None = None  # a file with one source sentence per line, plain or gzip
    target: str | None = None  # the outputs, line by line
    pairs: str | None = None  # one .tsv or .jsonl file with both sides
    text: str | tuple[str, ...] | None = (
        None  # a file with one text per line, for tasks without a target side, or a list
    )
    tags: str | None = None  # a file with a tag for each word of the source, which is then read as word|tag
    hold_out: int | None = None  # data.valid: as many examples from the end of data.train, which is then without them
    generate: str | None = None  # a built-in corpus: "dates/train", "copy/valid", ...
    options: dict[str, Any] | None = None  # of the built-in corpus, such as its size
    fresh: bool | None = None  # training on a built-in corpus: each epoch has new examples
    babi: str | tuple[str, ...] | None = None  # a task of bAbI ("en-10k/qa1"), a folder with all of them, or a list
    part: Literal["train", "valid", "test"] | None = None  # of the questions of bAbI
    # The output of `regard data prepare`, for training. The text it was made from may be named as well.
    store: str | None = None

    FILES: ClassVar[tuple[str, ...]] = ("source", "target", "pairs", "text", "tags")  # keys that name files of text

    def check(self) -> None:
        between(self, 1, LARGEST, "hold_out")
        ways = [(self.source, self.target), (self.pairs,), (self.text,), (self.generate,), (self.babi,)]
        given = [way for way in ways if any(name is not None for name in way)]
        if self.hold_out and (given or self.store):
            raise ValueError("hold_out takes examples from data.train; leave out the files")
        if not given and (self.store or self.hold_out):
            return
        if len(given) != 1 or not all(given[0]):
            raise ValueError("give either source and target, or pairs, or text, or generate, or babi, or store")
        if self.generate is None and (self.options or self.fresh):
            raise ValueError("options and fresh are for a built-in corpus; name one with generate")
        if (self.babi is None) != (self.part is None):
            raise ValueError("bAbI files need both: babi names a task or a folder, and part is train, valid or test")
        if self.tags is not None and self.source is None:
            raise ValueError("tags are for the words of a file; name it with source, and the outputs with target")

    def names(self, *keys: str) -> tuple[str, ...]:
        """Return all names that are the values of these keys."""
        values = (getattr(self, key) for key in keys)
        return tuple(name for value in values for name in ((value,) if isinstance(value, str) else value or ()))


class DataConfig(Struct, frozen=True):
    """The `[data]` table."""

    train: Bitext  # the training examples
    valid: Bitext | None = None  # the dev set, scored during training
    test: dict[str, Bitext] = msgspec.field(default_factory=dict)  # test sets by name, which `regard evaluate` scores
    license: str | None = None  # of the text; shown in the card
    attribution: str | None = None  # whom to credit for the text; shown in the card
    origin: str | None = None  # name and address of the text, for the error when a file is missing
    # Folders below the data folder that may also hold the files, such as those in which they are published.
    folders: tuple[str, ...] | None = None
    max_length: int = 256  # pairs with more tokens than this on either side are left out of training
    cut_source: bool = False  # longer sources are cut to max_length instead, in training and validation
    # Leave out training examples that share eight words in a row with a test set.
    decontaminate: bool = False

    def check(self) -> None:
        between(self, 0, 1_000_000, "max_length")
        if self.train.hold_out or any(one.hold_out for one in self.test.values()):
            raise ValueError("hold_out is for data.valid; the other sets name their files")
        if self.decontaminate and not self.test:
            raise ValueError("decontaminate compares the training examples with test sets; name some in data.test")
        if self.decontaminate and (self.train.fresh or self.train.store is not None):
            raise ValueError(
                "decontaminate is for text in files, not for a store or a corpus that is fresh in each epoch"
            )
        for folder in map(PurePath, self.folders or ()):
            if folder.is_absolute() or ".." in folder.parts:
                raise ValueError(
                    f"folders has {str(folder)!r}; folders must be below the data folder, as in 'data/tok'"
                )


class TokenizerSide(Struct, frozen=True):
    """The `[tokenizer.source]` or `[tokenizer.target]` table: what differs from `[tokenizer]` on that side."""

    kind: str | None = None  # as in `[tokenizer]`, and so are the others
    size: int | None = None  # upper bound of the vocabulary of this side
    coverage: float | None = None  # share of running characters or words in the vocabulary of this side
    sampling: float | None = None  # BPE-dropout rate, or unigram smoothing, on this side

    def check(self) -> None:
        between(self, 1, 10_000_000, "size")


class TokenizerConfig(Struct, frozen=True):
    """The `[tokenizer]` table."""

    kind: str = "bpe"  # bpe, unigram, char, word, or the kind of a plug-in
    size: int = 8000  # upper bound of the vocabulary
    joint: bool = True  # one vocabulary for both sides, which tying all three embeddings requires
    coverage: float = (
        1.0  # share of running characters or words in the vocabulary; the rarest remaining ones are unknown
    )
    sampling: float = 0.0  # BPE-dropout rate, or unigram smoothing, in training only
    source: TokenizerSide | None = None  # what differs on one side; needs `joint = false`
    target: TokenizerSide | None = None  # the same for the other side

    def check(self) -> None:
        between(self, 1, 10_000_000, "size")
        if self.joint and (self.source is not None or self.target is not None):
            raise ValueError(
                "a joint tokenizer is the same on both sides; with tokenizer.source or .target set joint = false"
            )

    def side(self, name: Literal["source", "target"]) -> TokenizerConfig:
        """Return the settings of one side, without tables for sides."""
        own: TokenizerSide = getattr(self, name) or TokenizerSide()
        changes = {key: value for key in own.__struct_fields__ if (value := getattr(own, key)) is not None}
        return msgspec.structs.replace(self, source=None, target=None, **changes)

    @property
    def sampled(self) -> bool:
        """Whether a side is split differently in each epoch."""
        return bool(self.side("source").sampling or self.side("target").sampling)
