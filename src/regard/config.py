"""Typed recipes: defaults < a TOML file < `train.steps=500` on the command line.

Every key has a type, an unknown key answers with its nearest neighbour, and the resolved recipe can be written out again.
The `[model]` table stays a plain mapping here: its keys belong to the model family that `model.kind` names.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

import msgspec

from regard.errors import ConfigError, OptionError, did_you_mean

LARGEST = 2**53  # integer in a recipe that has no bound of its own; larger ones are not exact in JSON


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen bundle of typed options. Every number in it is finite and bounded; `check` refuses what does not fit."""

    per_call: ClassVar[tuple[str, ...]] = ()  # fields that a recipe neither sets nor stores

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _refuse_odd_numbers(name, getattr(self, name))
        self.check()

    def check(self) -> None:
        """Raise ValueError, in one sentence, for values that do not fit."""


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


# Upper bounds of models: far beyond any that is trained, and small enough that a hostile recipe costs no memory.
MAX_WIDTH, MAX_LAYERS, MAX_POSITIONS = 2**15, 1000, 2**20


def between(options: Struct, least: int, most: int, *names: str) -> None:
    """Refuse values outside of these bounds; None passes."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} is {value}; it must be from {least:,} to {most:,}")


def below_one(options: Struct, name: str) -> None:
    """Refuses what is no share: a value below 0, or 1 and more."""
    value = getattr(options, name)
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 0 and below 1")


class Bitext(Struct, frozen=True):
    """Where sentence pairs come from: two parallel files, one table, a generator of ours, or a store of ids."""

    source: str | None = None  # file with one source sentence a line, plain or gzip
    target: str | None = None  # its translation, line by line
    pairs: str | None = None  # or one .tsv / .jsonl file with both sides
    generate: str | None = None  # or a built-in corpus: "dates/train", "copy/valid", ...
    store: str | None = (
        None  # or, to train on, what `regard data prepare` made; text named beside it is what it made it of
    )

    def check(self) -> None:
        ways = [(self.source, self.target), (self.pairs,), (self.generate,)]
        given = [way for way in ways if any(name is not None for name in way)]
        if not given and self.store:
            return
        if len(given) != 1 or not all(given[0]):
            raise ValueError("give either source and target, or pairs, or generate, or store")


class DataConfig(Struct, frozen=True):
    train: Bitext
    valid: Bitext | None = None
    test: dict[str, Bitext] = {}
    license: str | None = None  # of the text, and whom to name: for the card
    attribution: str | None = None
    max_length: int = 256  # pairs with a side of more tokens are left out of training, and counted

    def check(self) -> None:
        between(self, 0, 1_000_000, "max_length")


class TokenizerConfig(Struct, frozen=True):
    kind: str = "bpe"  # a name in `text.tokenizer.TOKENIZERS`
    size: int = 8000  # the most entries a vocabulary may have
    joint: bool = True  # one vocabulary for both sides, needed to tie all three embeddings
    coverage: float = 1.0  # share of running characters (or words) that get an entry; the rarest beyond it are unknown
    sampling: float = 0.0  # BPE-dropout rate, or unigram smoothing, in training only

    def check(self) -> None:
        between(self, 1, 10_000_000, "size")


class TrainConfig(Struct, frozen=True):
    """Defaults are the paper's base model (Vaswani et al. 2017, section 5)."""

    steps: int = 100_000
    tokens: int | Literal["auto"] = 25_000  # a side, a micro-batch; "auto": as many as fit into memory
    accumulate: int = 1  # micro-batches a step
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # muon: on hidden matrices, AdamW on the rest
    momentum: float = 0.95  # of muon
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0
    schedule: Literal["noam", "inverse-sqrt", "cosine", "wsd"] = "noam"
    lr: float | None = None  # peak learning rate; for "noam" a factor on the paper's curve, 1 if unset
    warmup_steps: int = 4000
    decay: float = 0.4  # "wsd": the last part of training over which the rate falls to zero
    label_smoothing: float = 0.1
    clip_norm: float = 0.0  # 0: no clipping, as in the paper
    stall_seconds: float = 600.0  # without a step before the stack of every thread is written to stalled.txt; 0: never
    max_bad_steps: int = 20  # steps in a row with a non-finite gradient before training stops
    ema: float = 0.0  # decay of the moving average of the weights; 0: none
    average: int = 1  # final weights: the mean of this many last checkpoints
    final: Literal["last", "best"] = "last"  # "best": the checkpoint with the best dev metric instead
    metric: str = "loss"  # a name in `evaluation.metrics.METRICS`; decides "best" and early stopping
    patience: int = 0  # validations without a better metric before stopping; 0: never
    validate_every: int = 0  # steps; 0: when a checkpoint is written
    validate_pairs: int = 500  # dev pairs translated at each validation; the dev loss takes them all
    checkpoint_every: int = 1000
    disk_full: Literal["stop", "go on"] = "stop"  # "go on": train without saving, and try again at the next checkpoint
    keep: int = 5  # newest checkpoints kept (at least `average`), and the best one
    log_every: int = 50
    seed: int = 1
    device: str = "auto"  # auto, cpu, cuda, cuda:1 ...
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    kernels: bool = True  # our own GPU kernels, where Triton is installed
    graph: bool = True  # on a GPU, the step recorded as one CUDA graph
    threads: int = 0  # CPU threads; 0: as PyTorch chooses
    parallel: Literal["copies", "shards"] = (
        "copies"  # under torchrun: the whole model a process (DDP), or shards (FSDP2)
    )
    tensorboard: bool = False

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
        """The token budget, once it is known."""
        assert self.tokens != "auto", "the budget is asked for before it was chosen"
        return self.tokens


class SearchOptions(Struct, frozen=True):
    """How to search. The defaults are the paper's values (section 6.1)."""

    beam: int = 4
    length_penalty: float = 0.6  # alpha of Wu et al. 2016; 0: none
    max_extra: int = 50  # the longest output has the tokens of the source and this many more
    tokens: int = 8192  # source tokens per batch, times the beam
    max_source: int = 1024  # longer sources are cut, with a warning
    iterations: int = 10  # of models that refine their output (mask-predict)
    nbest: int = 1  # hypotheses per source
    min_length: int = 0  # fewest output tokens, without EOS
    max_length: int | None = None  # most output tokens for any source
    scores: bool = True  # False lets greedy search skip them, which saves a pass over the vocabulary

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
        try:
            super().__post_init__()
        except ValueError as error:
            raise OptionError(str(error)) from error

    def check(self) -> None:
        for name, (least, most) in self.BOUNDS.items():
            between(self, least, most, name)
        if self.nbest > self.beam:
            raise ValueError(
                f"nbest is {self.nbest}, but beam is {self.beam}; ask for at most {self.beam}, or for a wider beam"
            )

    def replace(self, **changes: int | float | None) -> SearchOptions:
        """Return a copy with these options changed. An option that is given as None stays as it is."""
        return msgspec.structs.replace(self, **{name: value for name, value in changes.items() if value is not None})

    def limit(self, source_length: int) -> int:
        """Return the most output tokens, without EOS, for a source of this many tokens."""
        limit = source_length + self.max_extra
        return max(1, limit if self.max_length is None else min(limit, self.max_length))


class EvaluateConfig(Struct, frozen=True):
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab"] = "13a"
    lowercase: bool = False


class Recipe(Struct, frozen=True):
    """Everything that decides a run."""

    name: str
    data: DataConfig
    model: dict[str, Any]
    tokenizer: TokenizerConfig = TokenizerConfig()
    train: TrainConfig = TrainConfig()
    decode: SearchOptions = SearchOptions()
    evaluate: EvaluateConfig = EvaluateConfig()

    def check(self) -> None:
        if not self.name.isprintable() or not 0 < len(self.name) <= 200:
            raise ValueError("name must be one line of at most 200 printable characters")
        default = SearchOptions()
        changed = [name for name in default.per_call if getattr(self.decode, name) != getattr(default, name)]
        if changed:
            raise ValueError(f"decode.{changed[0]} cannot be set in a recipe; give it with each search")


S = TypeVar("S", bound=Struct)


def decode(cls: type[S], values: Mapping[str, Any], *, where: str) -> S:
    """The struct that these values describe; a ConfigError names the first key that does not fit."""
    _refuse_unknown(cls, values, where)
    try:
        return msgspec.convert(values, cls)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`").strip(".")
        place = ".".join(part for part in (where, path) if part)
        if what.startswith("Invalid enum value"):
            value = what.removeprefix("Invalid enum value ").strip("'")
            raise ConfigError(f"{place} is {value!r}; {did_you_mean(value, _choices(cls, path.split('.')))}") from error
        raise ConfigError(f"{place or 'the recipe'}: {what[:1].lower()}{what[1:]}".replace("`", "'")) from error


def _choices(kind: Any, path: list[str]) -> list[str]:
    """The values that the field at this path may have."""
    for name in path:
        structs = [option for option in (kind, *get_args(kind)) if isinstance(option, type)]
        fields = {
            field.name: field.type
            for one in structs
            if issubclass(one, msgspec.Struct)
            for field in msgspec.structs.fields(one)
        }
        kind = fields.get(name, kind)
    return [
        str(value) for option in (kind, *get_args(kind)) if get_origin(option) is Literal for value in get_args(option)
    ]


def _refuse_unknown(cls: type[Struct], values: Mapping[str, Any], where: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(cls) if field.name not in cls.per_call}
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(f"{where or 'the recipe'} has no field {key!r}; {did_you_mean(key, fields)}")
        if isinstance(value, Mapping):
            for name, inner in _structs_inside(fields[key], value):
                path = ".".join(part for part in (where, key, name) if part)
                _refuse_unknown(inner, value[name] if name else value, path)


def _structs_inside(kind: Any, value: Mapping[str, Any]) -> list[tuple[str, type[Struct]]]:
    """The nested structs to check: the value itself (name ""), or each entry of a table of structs."""
    for option in (kind, *get_args(kind)):
        if isinstance(option, type) and issubclass(option, Struct):
            if get_origin(kind) is dict:
                return [(name, option) for name, entry in value.items() if isinstance(entry, Mapping)]
            return [("", option)]
    return []


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with the package, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The file of a shipped recipe, or the file that the name is a path of."""
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    if name.endswith(".toml"):
        if Path(name).is_file():
            return Path(name)
        raise ConfigError(
            f"no recipe file {name!r} here; give the path of a .toml file, or one of: {', '.join(shipped)}"
        )
    raise ConfigError(
        f"no recipe is called {name!r}; {did_you_mean(name, shipped)} (a recipe of your own ends in .toml)"
    )


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """The resolved recipe: a shipped name or a .toml file, with `dotted.key=value` overrides laid on top."""
    table = _whole_table(find_recipe(name))
    for override in sorted(
        overrides, key=lambda one: not one.startswith("model.kind=")
    ):  # that one begins a table anew
        apply_override(table, override)
    return decode(Recipe, table, where="")


def _whole_table(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The table of a recipe, laid over that of the recipe that its `base` names."""
    path = path.resolve()
    own = {"name": path.stem, **read_toml(path)}
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str) or path in above:
        raise ConfigError(f"base of {path.name} is {base!r}; it must name another recipe, and not itself in the end")
    beside = path.parent / base
    table = _whole_table(beside if beside.is_file() else find_recipe(base), (*above, path))
    for key, value in own.items():
        below = table.get(key)
        if not isinstance(value, dict) or not isinstance(below, dict):
            table[key] = value
        elif key == "model" and value.get("kind", below.get("kind")) != below.get("kind"):
            table[key] = value  # another family has other keys
        else:
            table[key] = {**below, **value}
    return table


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file that the user named."""
    try:
        return parse_toml(path.read_bytes(), origin=path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def parse_toml(content: bytes, *, origin: object) -> dict[str, Any]:
    """The table of a TOML document."""
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # a digit too many, or a bracket, is no TOMLDecodeError
        raise ConfigError(f"{origin} is not valid TOML: {error}") from error


def apply_override(table: dict[str, Any], override: str) -> None:
    """Lays one `dotted.key=value` over a recipe's table; the value is read as TOML, or else as a plain string."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{override!r} is not an override; write key=value, as in train.steps=500")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    if parts == ["model", "kind"] and isinstance(table.get("model"), dict) and table["model"].get("kind") != value:
        table["model"] = {}  # another family has other keys
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{key} cannot be set: {part!r} is a value, not a table")
    table[parts[-1]] = value


def to_table(struct: Struct) -> dict[str, Any]:
    """Return the struct as tables, lists and scalars, without what is unset and what a recipe does not store."""
    return {
        name: _to_plain(value)
        for name in struct.__struct_fields__
        if (value := getattr(struct, name)) is not None and name not in struct.per_call
    }


def _to_plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_table(value)
    if isinstance(value, Mapping):
        return {key: _to_plain(entry) for key, entry in value.items() if entry is not None}
    return [_to_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def dump_toml(table: Mapping[str, Any], *, prefix: str = "") -> str:
    """TOML text that reads back as the same table."""
    scalars = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in scalars.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            path = f"{prefix}{_toml_key(key)}"
            lines += ["", f"[{path}]", dump_toml(value, prefix=f"{path}.")]
    return "\n".join(lines).strip("\n")


def _toml_key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML wants this one escaped too
    if isinstance(value, Sequence):
        return "[" + ", ".join(_toml_value(entry) for entry in value) + "]"
    return repr(value)


def flat_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one, keys by their dotted paths."""
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        leaves |= flat_table(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return leaves


def differences(old: Recipe, new: Recipe) -> list[str]:
    """What changed between two recipes, one `key: old -> new` each."""
    before, after = flat_table(to_table(old)), flat_table(to_table(new))
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key, 'unset')} -> {after.get(key, 'unset')}" for key in keys]
