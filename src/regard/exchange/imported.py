"""A model of another toolkit as it was read, and the run folder that is made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from regard.config import Bitext, DataConfig, Recipe, SearchOptions, TokenizerConfig, TokenizerSide
from regard.errors import ConfigError
from regard.messages import counted
from regard.models import expected_shapes, model_config
from regard.models.encoder_decoder import TransformerConfig
from regard.run.card import make_card, write_card
from regard.run.checkpoint import Checkpoint, first_not_finite
from regard.run.folder import ORIGIN, RunFolder
from regard.run.weights import refuse_other_shapes
from regard.storage.folder import Folder
from regard.storage.memory import memory_left
from regard.tasks.recipe_checks import resolve
from regard.text.tokenizer_pair import Tokenizers

Tell = Callable[[str], None]  # receives a sentence about what is being done
UNKNOWN_TEXT = "unknown.tsv"  # stands for the training text in the recipe of an imported model
ABOUT_TEXT = "This model was imported; the text that it was trained on is not part of the run."
MAX_SETTINGS = 16 * 2**20  # bytes of a file with settings


@dataclass(frozen=True)
class Imported:
    """A model of another toolkit, in our words."""

    format: str  # the toolkit's name
    table: Mapping[str, Any]  # the options of the Transformer
    weights: Mapping[str, Tensor]  # by our names, rows of vocabularies in our order
    tokenizers: Tokenizers
    decode: SearchOptions  # how the toolkit searches
    files: Sequence[str]  # that it was read from
    notes: Sequence[str] = field(default_factory=tuple)  # what a user should know, for the card


def recipe_of(imported: Imported, name: str) -> Recipe:
    """Return the recipe of an imported model."""
    source, target = imported.tokenizers.source, imported.tokenizers.target
    same = (source.kind, source.size) == (target.kind, target.size)
    own = None if same else TokenizerSide(kind=target.kind, size=target.size)
    return resolve(
        Recipe(
            name=name,
            data=DataConfig(train=Bitext(pairs=UNKNOWN_TEXT), origin=ABOUT_TEXT),
            model={"kind": "transformer", **imported.table},
            tokenizer=TokenizerConfig(kind=source.kind, size=source.size, joint=imported.tokenizers.joint, target=own),
            decode=imported.decode,
        )
    )


def check_fits(imported: Imported, recipe: Recipe, *, origin: str) -> None:
    """Raise an error unless the weights are those of the recipe's model."""
    sizes = {"source_size": imported.tokenizers.source.size, "target_size": imported.tokenizers.target.size}
    expected = expected_shapes(recipe.model, **sizes)
    refuse_other_shapes(expected, {name: one.shape for name, one in imported.weights.items()}, origin=origin)
    if bad := first_not_finite(imported.weights):
        raise ConfigError(f"{origin}: {bad} contains values that are not finite, so the model cannot be used")


def write_run(imported: Imported, folder: Folder, out: Path | str, *, tell: Tell) -> RunFolder:
    """Write the run folder of an imported model, and return it. Nothing is written if it does not fit."""
    run = RunFolder(out)
    if run.path.exists() and not (run.path.is_dir() and run.is_unfinished_export()):
        raise ConfigError(f"{run} is there already, and not an empty folder; name another one with --out")
    recipe = recipe_of(imported, model_name(folder))
    check_fits(imported, recipe, origin=str(folder))
    checkpoint = Checkpoint(dict(imported.weights), counters={"step": 0})
    parameters = sum(one.numel() for one in imported.weights.values())
    tell(f"writing {run}: {counted(parameters, 'parameter')}")
    with run.locked():
        run.finish(checkpoint)
        run.create(recipe, imported.tokenizers, {ORIGIN: _fingerprint(imported, folder)})
        write_card(run, make_card(run, checkpoint, "final", [], imported.notes))
        run.sweep()
    return run


def _fingerprint(imported: Imported, folder: Folder) -> dict[str, int | str]:
    """Return what the run says of its origin: the format, the folder's name, and a hash of the files that were read."""
    whole = hashlib.sha256()
    for name in imported.files:
        with folder.open_file(name) as file:
            whole.update(name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return {"format": imported.format, "folder": model_name(folder), "sha256": whole.hexdigest()}


# Reading folders


def transformer_config(table: Mapping[str, Any]) -> TransformerConfig:
    """Return the options of our Transformer. What is wrong in them is an error that names the option."""
    config = model_config({"kind": "transformer", **table})[1]
    assert isinstance(config, TransformerConfig)
    return config


def model_name(folder: Folder) -> str:
    """Return the name of the folder, as far as it can be the name of a run."""
    name = "".join(letter for letter in folder.path.absolute().name if letter.isprintable())
    return name[:200] or "imported"


def need_file(folder: Folder, name: str, *, why: str) -> str:
    """Return the name. Raise ConfigError if the folder has no such file, or only a link to one."""
    if folder.has_file(name):
        return name
    if name in folder.names():
        raise ConfigError(
            f"{folder.path / name} is a link or not a file; copy the folder with its files (cp -rL {folder.path} COPY) first"
        )
    raise ConfigError(f"{folder.path / name} is missing; {why}")


def refuse_too_large(folder: Folder, name: str, *, tell: Tell) -> None:
    """Raise ConfigError for a file of weights that memory has no room for, and say that it is being read."""
    size = folder.file_size(name)
    if 3 * size > memory_left():
        raise ConfigError(f"{folder.path / name} has {size / 1e9:.1f} GB, which is more than fits into memory here")
    tell(f"reading {folder.path / name}: {size / 1e6:,.0f} MB")


def load_settings(folder: Folder, name: str) -> dict[str, Any]:
    """Return a JSON file that holds an object."""
    found = folder.load_json(name, limit=MAX_SETTINGS)
    if not isinstance(found, dict):
        raise ConfigError(f"{folder.path / name} is not a JSON object, so it has no settings of a model")
    return found


class Settings:
    """Settings of another toolkit, read by name; what does not fit is refused by its name and value."""

    def __init__(self, values: Mapping[str, Any], *, origin: str) -> None:
        self.values, self.origin = values, origin

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number that is not negative."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{self.origin}: {name} is {value!r}; it must be a whole number")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{self.origin}: {name} is {value!r}; it must be a number")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.values.get(name, default)
        return default if value is None else bool(value)

    def text(self, name: str, default: str) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise ConfigError(f"{self.origin}: {name} is {value!r}; it must be a text")
        return value

    def one_of(self, name: str, known: Mapping[str, str], default: str) -> str:
        """Return what a text stands for."""
        value = self.text(name, default)
        if value not in known:
            raise ConfigError(
                f"{self.origin}: {name} is {value!r}, which is not imported; known: {', '.join(sorted(known))}"
            )
        return known[value]

    def same(self, *names: str) -> int:
        """Return the number that all of these settings have."""
        values = {name: self.integer(name) for name in names}
        if len(set(values.values())) > 1:
            given = " and ".join(f"{name} is {value}" for name, value in values.items())
            raise ConfigError(f"{self.origin}: {given}; they must be equal here")
        return next(iter(values.values()))

    def refuse(self, reasons: Mapping[str, Any]) -> None:
        """Raise ConfigError for the first setting that has another value than the one given, if it is set at all."""
        for name, fitting in reasons.items():
            value = self.values.get(name)
            if value not in (None, fitting):
                raise ConfigError(f"{self.origin}: {name} is {value!r}, which is not imported; only {fitting!r} is")


def search_options(**options: Any) -> SearchOptions:
    """Return options of search, where numbers from a stranger's file are brought within their bounds."""
    for name, (least, most) in SearchOptions.BOUNDS.items():
        if name in options:
            options[name] = min(max(options[name], least), most)
    return msgspec.convert(msgspec.to_builtins(options), SearchOptions)
