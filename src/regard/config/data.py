"""The `[data]` and `[tokenizer]` tables: which text is read, and how it is split."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any, ClassVar, Literal

import msgspec

from regard.config.mixing import MOST_CORPORA, check_languages, check_tag, language_tag
from regard.config.struct import LARGEST, Struct, between

Files = str | tuple[str, ...] | None  # one name, or several


class Bitext(Struct, frozen=True):
    """Where examples come from: parallel files, one file of pairs or texts, a built-in corpus, bAbI, or a store of ids."""

    source: Files = None  # a file with one source sentence per line, plain or compressed, or a list of files
    target: Files = None  # the outputs, line by line, in equally many files
    pairs: Files = None  # a file with both sides: .tsv, .csv, .jsonl, .tmx, .po or .parquet, or a list
    # What the two sides are called in the file of pairs: names or numbers of columns, keys of JSON, or languages.
    columns: tuple[str | int, str | int] | None = None
    # The format of the file of pairs, where its name does not show it.
    format: Literal["tsv", "csv", "jsonl", "tmx", "tbx", "po", "parquet"] | None = None
    text: Files = None  # a file with one text per line, for tasks without a target side, or a list
    tags: Files = None  # a file with a tag for each word of the source, which is then read as word|tag
    # For data.valid: as many examples from the end of data.train, which is then without them. Shuffle a sorted file first.
    hold_out: int | None = None
    generate: str | None = None  # a built-in corpus: "dates/train", "copy/valid", ...
    options: dict[str, Any] | None = None  # of the built-in corpus, such as its size
    fresh: bool | None = None  # training on a built-in corpus: each epoch has new examples
    babi: str | tuple[str, ...] | None = None  # a task of bAbI ("en-10k/qa1"), a folder with all of them, or a list
    part: Literal["train", "valid", "test"] | None = None  # of the questions of bAbI
    # The output of `regard data prepare`, for training. The text it was made from may be named as well.
    store: str | None = None
    languages: tuple[str, str] | None = None  # of source and target, as in ["en", "de"]
    # A symbol in front of each source, such as "<news>": the tokenizer never splits it, and no output has it.
    tag: str | None = None
    # data.train: how often its examples are drawn, relative to those of the other corpora; unset: 1. An example of a corpus
    # of weight 2 is drawn twice as often as one of weight 1.
    weight: float | None = None
    from_: int | None = msgspec.field(default=None, name="from")  # data.train: steps before it is used; unset: 0
    until: int | None = None  # data.train: steps after which it is not used any more; unset: all

    FILES: ClassVar[tuple[str, ...]] = ("source", "target", "pairs", "text", "tags")  # keys that name files of text

    def check(self) -> None:
        between(self, 1, LARGEST, "hold_out", "until")
        if self.weight is not None and not 1e-6 <= self.weight <= 1e6:
            raise ValueError(f"weight is {self.weight}; it must be from 0.000001 to 1,000,000")
        if not 0 <= self.begin < (LARGEST if self.until is None else self.until):
            raise ValueError(f"from is {self.from_} and until is {self.until}; from must be 0 or more, and below until")
        check_tag(self.tag)
        check_languages(self.languages)
        ways = [(self.source, self.target), (self.pairs,), (self.text,), (self.generate,), (self.babi,)]
        given = [way for way in ways if any(name is not None for name in way)]
        if self.hold_out and (given or self.store):
            raise ValueError("hold_out takes examples from data.train; leave out the files")
        if not given and (self.store or self.hold_out):
            return
        if given == ways[:1] and None in given[0]:
            missing = "target" if self.target is None else "source"
            raise ValueError(f"{missing} is missing; a file with both sides, such as two columns, is given as pairs")
        if len(given) != 1 or not all(given[0]):
            raise ValueError("give either source and target, or pairs, or text, or generate, or babi, or store")
        if self.generate is None and (self.options or self.fresh):
            raise ValueError("options and fresh are for a built-in corpus; name one with generate")
        if (self.babi is None) != (self.part is None):
            raise ValueError("bAbI files need both: babi names a task or a folder, and part is train, valid or test")
        if self.tags is not None and self.source is None:
            raise ValueError("tags are for the words of a file; name it with source, and the outputs with target")
        if self.pairs is None and (self.columns or self.format):
            raise ValueError("columns and format are for a file of pairs; name it with pairs")
        if self.columns is not None and not _are_columns(*self.columns):
            raise ValueError("columns names the source and the target, both by name or both by number, from 1")
        sides = [len(self.names(key)) for key in ("source", "target", "tags") if getattr(self, key) is not None]
        if len(set(sides)) > 1:
            raise ValueError("source, target and tags are read file by file; name equally many of each")

    @property
    def begin(self) -> int:
        """The steps of training before it is used."""
        return self.from_ or 0

    def names(self, *keys: str) -> tuple[str, ...]:
        """Return all names that are the values of these keys."""
        values = (getattr(self, key) for key in keys)
        return tuple(name for value in values for name in ((value,) if isinstance(value, str) else value or ()))


def _are_columns(one: str | int, other: str | int) -> bool:
    """Whether these are two names or two numbers of columns."""
    numbers = [column for column in (one, other) if isinstance(column, int)]
    return (
        one != other
        and "" not in (one, other)
        and len(numbers) != 1
        and all(1 <= number <= 10_000 for number in numbers)
    )


class AugmentConfig(Struct, frozen=True):
    """The `[data.augment]` table: shares of the training examples that get noise, drawn anew in each epoch."""

    lower: float = 0.0  # sources in small letters
    upper: float = 0.0  # sources in capital letters
    typos: float = 0.0  # sources with letters left out, doubled, replaced or exchanged
    punctuation: float = 0.0  # sources without the mark at their end, half of them without those inside as well
    diacritics: float = 0.0  # sources without accents and umlauts
    # Placeholders on both sides for what they have in common, such as names and numbers. The tokenizer gets symbols for
    # them, and the model can keep URLs, numbers, tags and other protected spans.
    placeholders: float = 0.0

    @property
    def changes_text(self) -> bool:
        """Whether any example gets noise."""
        return any(getattr(self, name) for name in self.__struct_fields__)

    def check(self) -> None:
        for name in self.__struct_fields__:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it is a share of the examples, from 0 to 1")


class DataConfig(Struct, frozen=True):
    """The `[data]` table."""

    train: Bitext | tuple[Bitext, ...]  # the training examples, or a list of corpora
    valid: Bitext | tuple[Bitext, ...] | None = None  # the dev set, scored during training, or a list of sets
    test: dict[str, Bitext] = msgspec.field(default_factory=dict)  # test sets by name, which `regard evaluate` scores
    license: str | None = None  # of the text; shown in the card
    attribution: str | None = None  # whom to credit for the text; shown in the card
    origin: str | None = None  # name and address of the text, for the error when a file is missing
    # Folders below the data folder that may also hold the files, such as those in which they are published.
    folders: tuple[str, ...] | None = None
    # Text that cannot be used, such as an empty side or bytes that are not UTF-8: refuse stops with the file and the line;
    # skip leaves it out, and lists it in left-out.tsv.
    on_error: Literal["refuse", "skip"] = "refuse"
    max_length: int = 256  # pairs with more tokens than this on either side are left out of training
    cut_source: bool = False  # longer sources are cut to max_length instead, in training and validation
    cut_target: bool = False  # longer targets are cut to max_length instead, in training and validation
    # Leave out training examples that share eight words in a row with a test set.
    decontaminate: bool = False
    augment: AugmentConfig | None = None  # noise in the training text

    def check(self) -> None:
        between(self, 0, 1_000_000, "max_length")
        if not 0 < len(self.corpora) <= MOST_CORPORA:
            raise ValueError(f"train has {len(self.corpora):,} corpora; name from 1 to {MOST_CORPORA:,}")
        if any(one.hold_out for one in (*self.corpora, *self.test.values())):
            raise ValueError("hold_out is for data.valid; the other sets name their files")
        if any(one.hold_out for one in self.dev_sets) and (len(self.corpora) > 1 or len(self.dev_sets) > 1):
            raise ValueError(
                "hold_out takes examples from a single data.train; with several sets, name files in data.valid"
            )
        self._check_languages()
        self._check_tags()
        if self.decontaminate and not self.test:
            raise ValueError("decontaminate compares the training examples with test sets; name some in data.test")
        if self.decontaminate and any(one.fresh or one.store is not None for one in self.corpora):
            raise ValueError(
                "decontaminate is for text in files, not for a store or a corpus that is fresh in each epoch"
            )
        for folder in map(PurePath, self.folders or ()):
            if folder.is_absolute() or ".." in folder.parts:
                raise ValueError(
                    f"folders has {str(folder)!r}; folders must be below the data folder, as in 'data/tok'"
                )

    def _check_languages(self) -> None:
        known = [one.languages for one in self.corpora]
        if None in known and any(known):
            raise ValueError(f"train.{known.index(None)} names no languages, but others do; name them for all corpora")
        if not self.multilingual:
            return
        for name, one in self._scored():
            if one.languages is None:
                raise ValueError(f"{name} needs languages, as data.train has several: write, as in train, {known[0]}")
            if one.languages[1] not in self.target_languages:
                raise ValueError(
                    f"{name} is in {one.languages[1]!r}, but data.train translates into {', '.join(self.target_languages)}"
                )

    def _check_tags(self) -> None:
        known = {one.tag for one in self.corpora}
        for name, one in self._scored():
            if any(value is not None for value in (one.weight, one.from_, one.until)):
                raise ValueError(f"{name} has a weight, from or until; these are for the corpora of data.train")
            if one.tag not in {None, *known}:
                there = ", ".join(repr(tag) for tag in self.tags) or "none"
                raise ValueError(f"{name}.tag is {one.tag!r}; no corpus in data.train has it (there: {there})")

    def _scored(self) -> list[tuple[str, Bitext]]:
        """Return the dev and test sets with their names."""
        numbered = [(f"valid.{number}", one) for number, one in enumerate(self.dev_sets)]
        dev = [("valid", self.dev_sets[0])] if len(self.dev_sets) == 1 else numbered
        return [*dev, *((f"test.{name}", one) for name, one in self.test.items())]

    @property
    def corpora(self) -> tuple[Bitext, ...]:
        """The corpora of the training examples."""
        return self.train if isinstance(self.train, tuple) else (self.train,)

    @property
    def dev_sets(self) -> tuple[Bitext, ...]:
        """The sets that are scored during training."""
        if self.valid is None:
            return ()
        return self.valid if isinstance(self.valid, tuple) else (self.valid,)

    @property
    def language_pairs(self) -> tuple[tuple[str, str], ...]:
        """The languages, source and target, of each corpus that states them, each pair once."""
        return tuple(dict.fromkeys(one.languages for one in self.corpora if one.languages is not None))

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that are translated into, as far as they are stated."""
        return tuple(dict.fromkeys(target for _, target in self.language_pairs))

    @property
    def multilingual(self) -> bool:
        """Whether a symbol in front of each source tells the language to translate into: there is more than one."""
        return len(self.target_languages) > 1

    @property
    def tags(self) -> tuple[str, ...]:
        """All symbols in front of sources, those of languages first."""
        own = [one.tag for one in self.corpora if one.tag is not None]
        return tuple(dict.fromkeys([*(map(language_tag, self.target_languages) if self.multilingual else ()), *own]))

    @property
    def cuts(self) -> tuple[int | None, int | None]:
        """The tokens that sources and targets are cut to; None: they are not cut."""
        return self.max_length if self.cut_source else None, self.max_length if self.cut_target else None

    def tags_of(self, text: Bitext) -> tuple[str, ...]:
        """Return the symbols in front of each source of a set: that of its language, if there are several, and its own."""
        language = [language_tag(text.languages[1])] if self.multilingual and text.languages is not None else []
        return (*language, *([] if text.tag is None else [text.tag]))

    def with_sets(self, change: Callable[[Any], Any]) -> DataConfig:
        """Return the table with each set of examples replaced by what `change` returns for it."""
        train = tuple(map(change, self.train)) if isinstance(self.train, tuple) else change(self.train)
        valid = tuple(map(change, self.valid)) if isinstance(self.valid, tuple) else self.valid and change(self.valid)
        test = {name: change(one) for name, one in self.test.items()}
        return msgspec.structs.replace(self, train=train, valid=valid, test=test)


class TokenizerSide(Struct, frozen=True):
    """The `[tokenizer.source]` or `[tokenizer.target]` table: what differs from `[tokenizer]` on that side."""

    kind: str | None = None  # as in `[tokenizer]`, and so are the others
    size: int | None = None  # upper bound of the vocabulary of this side
    coverage: float | None = None  # share of running characters or words in the vocabulary of this side
    sampling: float | None = None  # BPE-dropout rate, or unigram smoothing, on this side
    byte_fallback: bool | None = None  # characters outside of the vocabulary of this side as bytes

    def check(self) -> None:
        between(self, 1, 10_000_000, "size")


class TokenizerConfig(Struct, frozen=True):
    """The `[tokenizer]` table."""

    kind: str = "bpe"  # bpe, unigram, char, word, sentencepiece (of imported models), or the kind of a plug-in
    size: int = 8000  # upper bound of the vocabulary
    joint: bool = True  # one vocabulary for both sides, which tying all three embeddings requires
    coverage: float = (
        1.0  # share of running characters or words in the vocabulary; the rarest remaining ones are unknown
    )
    sampling: float = 0.0  # BPE-dropout rate, or unigram smoothing, in training only
    # bpe and unigram: characters outside of the vocabulary are split into their bytes, so that none is unknown. If unset,
    # a vocabulary of 2,048 or more has the 256 bytes, unless the characters of the text leave no room for them.
    byte_fallback: bool | None = None
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
