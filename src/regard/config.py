"""The options of a recipe as typed structs, one per table.

`recipe_files` reads them from TOML files, and `toml` converts and writes them. The `[model]` table stays a mapping here: its
keys belong to the model family that `model.kind` names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, ClassVar, Literal, TypeVar, cast

import msgspec

from regard.errors import DecodeError, did_you_mean

LARGEST = 2**53  # the bound of integers that have no bound of their own; larger ones are not exact in JSON


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Typed options that cannot be changed. Every number is finite and bounded."""

    per_call: ClassVar[tuple[str, ...]] = ()  # fields that a recipe neither sets nor stores

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _refuse_odd_numbers(name, getattr(self, name))
        self.check()

    def check(self) -> None:
        """Raise ValueError with one sentence if a value does not fit."""


def _refuse_odd_numbers(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            _refuse_odd_numbers(f"{name}.{key}", entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _refuse_odd_numbers(name, entry)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}; numbers must be finite")
    elif isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise ValueError(f"{name} is larger than any such number can be (2**53)")


# Upper bounds of models: larger than any that is trained, and small enough that a hostile recipe cannot exhaust memory.
MAX_WIDTH, MAX_LAYERS, MAX_POSITIONS = 2**15, 1000, 2**20


def between(options: Struct, least: int, most: int, *names: str) -> None:
    """Raise ValueError if one of the named options is outside of the bounds. None is allowed."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} is {value}; it must be from {least:,} to {most:,}")


def below_one(options: Struct, name: str) -> None:
    """Raise ValueError unless 0 <= value < 1."""
    value = getattr(options, name)
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 0 and below 1")


class Bitext(Struct, frozen=True):
    """Where examples come from: parallel files, one file of pairs or texts, a built-in corpus, bAbI, or a store of ids."""

    source: str | None = None  # a file with one source sentence per line, plain or gzip
    target: str | None = None  # the outputs, line by line
    pairs: str | None = None  # one .tsv or .jsonl file with both sides
    text: str | None = None  # a file with one text per line, for tasks without a target side
    more_text: tuple[str, ...] | None = None  # further files of texts, which follow `text`
    tags: str | None = None  # a file with a tag for each word of the source, which is then read as word|tag
    hold_out: int | None = None  # data.valid: as many examples from the end of data.train, which is then without them
    generate: str | None = None  # a built-in corpus: "dates/train", "copy/valid", ...
    options: dict[str, Any] | None = None  # of the built-in corpus, such as its size
    fresh: bool | None = None  # training on a built-in corpus: each epoch has new examples
    babi: str | tuple[str, ...] | None = None  # a task of bAbI ("en-10k/qa1"), a folder with all of them, or a list
    part: Literal["train", "valid", "test"] | None = None  # of the questions of bAbI
    # The output of `regard data prepare`, for training. The text it was made from may be named as well.
    store: str | None = None

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
        if self.more_text and self.text is None:
            raise ValueError("more_text names further files of texts; name the first one with text")
        if self.tags is not None and self.source is None:
            raise ValueError("tags are for the words of a file; name it with source, and the outputs with target")

    @property
    def babi_names(self) -> tuple[str, ...]:
        """The tasks and folders of bAbI."""
        return (self.babi,) if isinstance(self.babi, str) else self.babi or ()


class DataConfig(Struct, frozen=True):
    """The `[data]` table."""

    train: Bitext  # the training examples
    valid: Bitext | None = None  # the dev set, scored during training
    test: dict[str, Bitext] = {}  # test sets by name, which `regard evaluate` scores
    license: str | None = None  # of the text; shown in the card
    attribution: str | None = None  # whom to credit for the text; shown in the card
    origin: str | None = None  # name and address of the text, for the error when a file is missing
    # Folders below the data folder that may also hold the files, such as those in which they are published.
    folders: tuple[str, ...] | None = None
    max_length: int = 256  # pairs with more tokens than this on either side are left out of training
    cut_source: bool = False  # longer sources are cut to max_length instead, in training and validation
    # Leave out training examples that share eight words in a row with a test set, as text from the web and from elsewhere may.
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


class TrainConfig(Struct, frozen=True):
    """The `[train]` table. The defaults are those of the paper's base model (Vaswani et al. 2017, section 5)."""

    steps: int = 100_000  # updates of the weights
    tokens: int | Literal["auto"] = 25_000  # per side and micro-batch; "auto": as many as fit into memory
    accumulate: int = 1  # micro-batches per step
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # muon: for hidden matrices; AdamW for the rest
    momentum: float = 0.95  # of muon
    betas: tuple[float, float] = (
        0.9,
        0.98,
    )  # of adam and adamw: decay of the averages of gradients and of their squares
    eps: float = 1e-9  # of adam and adamw: added to the divisor
    weight_decay: float = 0.0  # adam adds it to the gradient; adamw and muon shrink the weights by it
    schedule: Literal["noam", "inverse-sqrt", "cosine", "wsd"] = "noam"  # how the learning rate develops
    lr: float | None = None  # peak learning rate; for "noam" a factor on the paper's curve, 1 if unset
    warmup_steps: int = 4000  # steps over which the learning rate rises to its peak
    decay: float = 0.4  # "wsd": the share of steps at the end over which the rate falls to zero
    label_smoothing: float = 0.1  # share of the probability that is spread over all labels
    clip_norm: float = 0.0  # 0: no clipping, as in the paper
    stall_seconds: float = 600.0  # without a step until the stack of every thread is written to stalled.txt; 0: never
    max_bad_steps: int = 20  # consecutive steps with a non-finite gradient until training stops
    ema: float = 0.0  # decay of the moving average of the weights; 0: none
    average: int = 1  # the final weights are the mean of this many last checkpoints
    final: Literal["last", "best"] = "last"  # "best": the checkpoint with the best `metric`
    metric: str = "loss"  # a name in `metrics.METRICS`; decides which checkpoint is best
    patience: int = 0  # validations without improvement until training stops; 0: never
    validate_every: int = 0  # steps; 0: whenever a checkpoint is written
    validate_pairs: int = 500  # dev examples predicted at each validation; the loss is computed on all
    checkpoint_every: int = 1000  # steps; a run resumes from its newest checkpoint
    # "continue": train without saving, and try again at the next checkpoint. Version 0.1 called it "go on".
    disk_full: Literal["stop", "continue", "go on"] = "stop"
    keep: int = 5  # newest checkpoints to keep (at least `average`), besides the best one
    log_every: int = 50  # steps between two reports of progress
    seed: int = 1  # of the first weights, the order of examples, and dropout
    init: str | None = None  # another run, whose weights this one begins with where names and shapes agree
    device: str = "auto"  # auto, cpu, cuda, cuda:1, ...
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # of products; auto: bfloat16 on a GPU that has it
    kernels: bool = True  # use our GPU kernels where Triton is installed
    graph: bool = True  # on a GPU, record the step as one CUDA graph
    threads: int = 0  # CPU threads; 0: as PyTorch chooses
    # Under torchrun: a copy of the model in every process (DDP), or a shard (FSDP2).
    parallel: Literal["copies", "shards"] = "copies"
    tensorboard: bool = False  # also write curves for TensorBoard into the run folder

    def check(self) -> None:
        if self.tokens != "auto":
            between(self, 1, 2**31, "tokens")
        between(self, 1, 10**12, "steps", "checkpoint_every", "log_every")
        between(self, 1, 1_000_000, "accumulate", "average", "keep", "max_bad_steps", "validate_pairs")
        between(self, 0, 10**12, "warmup_steps", "patience", "validate_every", "seed", "clip_norm", "stall_seconds")
        between(self, 0, 1_000_000, "weight_decay")
        between(self, 0, 4096, "threads")
        for name in ("label_smoothing", "ema", "momentum"):
            below_one(self, name)
        if not self.eps > 0 or not (self.lr is None or self.lr >= 0):
            raise ValueError(f"eps is {self.eps} and lr is {self.lr}; eps must be above 0 and lr 0 or more")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}; each must be at least 0 and below 1")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay is {self.decay}; it is the share of all steps at the end, above 0 and at most 1")

    @property
    def budget(self) -> int:
        """The token budget as a number. "auto" must have been resolved."""
        assert self.tokens != "auto", "train.tokens is still auto"
        return self.tokens


class _BadOption(DecodeError, ValueError):
    """A DecodeError that msgspec takes for a ValueError: read from a recipe, the same value gives a ConfigError."""


T = TypeVar("T")


class _Default:
    """The default of an option, which tells an option that was left out from one that was given the same value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def _default(value: T) -> T:
    return cast(T, _Default(value))


class _KnownNames(type(msgspec.Struct)):  # type: ignore[misc]
    """Refuses options with an unknown name before msgspec does, whose TypeError names no known one."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        for name in given:
            if name not in cls.__struct_fields__:
                raise DecodeError(f"{cls.__name__} has no option {name!r}; {did_you_mean(name, cls.__struct_fields__)}")
        return super().__call__(*args, **given)


class SearchOptions(Struct, metaclass=_KnownNames, frozen=True, dict=True):
    """How to search; in a recipe the `[decode]` table. The defaults are the paper's (section 6.1).

    Options remember which of them were given. Where there is a recipe, `with_given` takes the others from it.
    """

    beam: int = _default(4)  # hypotheses per sentence; 1: greedy search
    length_penalty: float = _default(0.6)  # alpha of Wu et al. 2016; 0: none
    max_extra: int = _default(50)  # the longest output has the tokens of the source and this many more
    tokens: int = _default(8192)  # source tokens per batch, times the beam
    max_source: int = _default(1024)  # longer sources are cut, with a warning
    iterations: int = _default(10)  # of models that refine their output (mask-predict)
    nbest: int = _default(1)  # hypotheses per source
    min_length: int = _default(0)  # fewest output tokens, without EOS
    max_length: int | None = _default(None)  # most output tokens for any source
    scores: bool = _default(True)  # False lets greedy search skip them, which saves a pass over the vocabulary

    per_call: ClassVar[tuple[str, ...]] = ("nbest", "min_length", "max_length", "scores")
    BOUNDS: ClassVar[dict[str, tuple[int, int]]] = {
        "beam": (1, 1000),
        "length_penalty": (0, 100),
        "max_extra": (0, 10_000),
        "tokens": (1, 2**24),
        "max_source": (1, 100_000),
        "iterations": (1, 1000),
        "nbest": (1, 1000),
        "min_length": (0, LARGEST),
        "max_length": (1, LARGEST),
    }

    def __post_init__(self) -> None:
        given = {}
        for name, value in msgspec.structs.asdict(self).items():
            if isinstance(value, _Default):
                msgspec.structs.force_setattr(self, name, value.value)
            else:
                given[name] = value
        self.__dict__["given"] = given
        for name, value in given.items():
            _refuse_other_type(name, value)
        try:
            super().__post_init__()
        except ValueError as error:
            raise _BadOption(str(error)) from error

    @property
    def given(self) -> Mapping[str, Any]:
        """The options that were given, by name."""
        found: Mapping[str, Any] = self.__dict__["given"]
        return found

    def __copy__(self) -> SearchOptions:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SearchOptions, **self.given), ()

    def check(self) -> None:
        for name, (least, most) in self.BOUNDS.items():
            between(self, least, most, name)
        # Without a beam of their own, options are checked when they are combined with those of a recipe.
        if "beam" in self.given and self.nbest > self.beam:
            raise ValueError(
                f"nbest is {self.nbest}, but beam is {self.beam}; ask for at most {self.beam}, or for a wider beam"
            )

    def replace(self, **changes: int | float | None) -> SearchOptions:
        """Return a copy with these options given as well. One that is None stays as it is."""
        return SearchOptions(**{**self.given, **{name: one for name, one in changes.items() if one is not None}})

    def with_given(self, options: SearchOptions | None) -> SearchOptions:
        """Return these options, except those that were given in `options`: all of them, checked together."""
        passed: Any = options
        if not isinstance(passed, SearchOptions | None):
            example = passed if isinstance(passed, Mapping) else {"beam": 8}
            call = ", ".join(f"{name}={value!r}" for name, value in example.items())
            raise DecodeError(f"options is of type {type(passed).__name__}; give options=SearchOptions({call})")
        return SearchOptions(**{**msgspec.structs.asdict(self), **(options.given if options else {})})

    def limit(self, source_length: int) -> int:
        """Return the most output tokens, without EOS, for a source of this many tokens."""
        limit = source_length + self.max_extra
        return max(1, limit if self.max_length is None else min(limit, self.max_length))


def _refuse_other_type(name: str, value: Any) -> None:
    """Raise DecodeError if a search option is of a type that it cannot have. Numbers of numpy are numbers."""
    wanted: tuple[str, type] = ("a whole number", Integral)
    if name == "length_penalty":
        wanted = ("a number", Real)
    if name == "scores":
        wanted = ("True or False", bool)
    fits = isinstance(value, wanted[1]) and (isinstance(value, bool) == (name == "scores"))
    if not fits and not (value is None and name == "max_length"):
        raise _BadOption(f"{name} is {value!r}; it must be {wanted[0]}")


class EvaluateConfig(Struct, frozen=True):
    """The `[evaluate]` table, which every metric receives."""

    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab"] = "13a"  # sacreBLEU's tokenizer
    lowercase: bool = False  # BLEU and chrF ignore case
    metrics: tuple[str, ...] | None = None  # in `metrics.METRICS`; unset: those of the task that are not on demand
    # What the positions are that a pointer network outputs, which decides how they are scored.
    positions: Literal["sequence", "hull", "tour", "triangles"] = "sequence"

    def check(self) -> None:
        if self.metrics is not None and not 0 < len(self.metrics) == len(set(self.metrics)) <= 100:
            raise ValueError("metrics must name at least one metric, each once; leave it out for those of the task")


class Recipe(Struct, frozen=True):
    """All settings of a run."""

    name: str  # of the run; that of the file if the recipe has none
    data: DataConfig  # what is read
    model: dict[str, Any]  # the model family, `kind`, and its options; `preset` names a set of them
    task: str | None = None  # the task that model.kind is for, if it is to be said; one that it is not for is refused
    tokenizer: TokenizerConfig = TokenizerConfig()  # how text is split
    train: TrainConfig = TrainConfig()  # how the model is trained
    decode: SearchOptions = SearchOptions()  # how outputs are searched for
    evaluate: EvaluateConfig = EvaluateConfig()  # how outputs are scored

    def check(self) -> None:
        if not self.name.isprintable() or not 0 < len(self.name) <= 200:
            raise ValueError("name must be one line of at most 200 printable characters")
        default = SearchOptions()
        changed = [name for name in default.per_call if getattr(self.decode, name) != getattr(default, name)]
        if changed:
            raise ValueError(f"decode.{changed[0]} cannot be set in a recipe; give it with each search")
