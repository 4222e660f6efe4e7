"""A run is a folder with its recipe, tokenizers, log and checkpoints. Every later command needs only this folder.

runs/NAME/
  recipe.toml                 the resolved recipe
  corpus.json                 sizes and hashes of the text; what was left out or mended
  left-out.tsv                text that was left out, if any was: file, line, reason, beginning
  manifest.json               sizes and hashes of recipe, corpus, card and report
  tokenizer/                  the task's codec (vocabularies, labels), manifest.json
  log.jsonl                   one event per line
  checkpoints/step-00000500/  weights.safetensors, training.safetensors, counters.json, manifest.json
  final/                      weights.safetensors, counters.json, manifest.json; exists when training has finished
  card.json, card.md          the card of the run, written by `regard card`
  adaptation.json, .md        what `regard adapt` changed and measured, in a run that it made
  calibration.json            the temperature of calibrated probabilities, written by `regard calibrate`
  shortlist.json              likely translations of each token, written by `regard align`
  report.html                 the report of the run, for a browser
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from regard.config import Recipe
from regard.errors import CheckpointError, ConfigError
from regard.run.log import LOG, append_event, read_events, rewind_log, sync_log
from regard.run.tensor_file import WeightKind
from regard.run.weights import Shapes, StoredWeights
from regard.storage.directory import LOCK
from regard.storage.folder import SMALL, Folder, is_leftover, parse_json
from regard.storage.manifest import (
    MANIFEST,
    check_folder,
    complete_replacement,
    manifest_digest,
    read_checked,
    read_manifest,
    remove_folder,
    replace_files,
    staged,
    sweep,
)
from regard.text.text_report import LEFT_OUT
from regard.toml import dump_toml, from_table, parse_toml, to_table

if TYPE_CHECKING:
    from regard.run.checkpoint import Checkpoint

W = TypeVar("W")
RECIPE, CORPUS = "recipe.toml", "corpus.json"
CARD_JSON, CARD_PAGE, REPORT = "card.json", "card.md", "report.html"
ADAPTATION_JSON, ADAPTATION_PAGE = "adaptation.json", "adaptation.md"
CALIBRATION = "calibration.json"
SHORTLIST = "shortlist.json"
COMMAND_LOGS = (".log", ".out", ".err")  # what a shell or a scheduler may write into the folder of a new run
MAX_RECIPE = 2**17  # bytes, because TOML parsers are slow
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100  # of a calibration that can be used
INIT = "init"  # in corpus.json: the run whose weights this one began with
NEW = "new"  # in the entry of that run: parameters that do not come from it
ORIGIN = "origin"  # in corpus.json: the model of another toolkit that was imported
CHECKPOINT_NAME = re.compile(r"step-[0-9]{8,15}")


class Codec(Protocol):
    """How text becomes numbers and back: tokenizers, labels, or nothing."""

    def save(self, folder: Folder) -> None:
        """Write the codec's files; `Task.load_codec` reads them."""


class RunFolder:
    """The files of one run. If a checkpoint is named, its weights are those in use."""

    def __init__(self, path: Path | str, *, checkpoint: str | None = None) -> None:
        self.path, self.checkpoint = Path(path), checkpoint
        self.folder = Folder(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        return self.folder.has_file(RECIPE)

    @property
    def finished(self) -> bool:
        return self.exists and (self.folder / "final").has_file(MANIFEST)

    @property
    def name_in_use(self) -> Path:
        """The path that names this run and the weights in use."""
        return self.path if self.checkpoint is None else self._checkpoints.path / self.checkpoint

    def require(self) -> RunFolder:
        """Return self. Raise CheckpointError if this is not a run folder."""
        if not self.exists:
            raise CheckpointError(
                f"{self.path} is not a run folder (it has no recipe.toml); train one with: regard train"
            )
        return self

    def create(
        self, recipe: Recipe, codec: Codec, corpus: Mapping[str, Any], extras: Mapping[str, str] | None = None
    ) -> None:
        """Create the run. The recipe, which makes a folder a run, is written last, with `extras` such as cards."""
        if self.checkpoints():
            raise CheckpointError(f"{self.path} has checkpoints but no recipe.toml; name another folder with --out")
        if self.folder.make().has_file(MANIFEST):
            # An earlier attempt was killed before it wrote a recipe.
            self.folder.remove(MANIFEST)
        with staged(self.folder, "tokenizer") as folder:
            codec.save(folder)
        self.folder.save_json(CORPUS, corpus)
        contents = {name: text.encode() for name, text in (extras or {}).items()}
        replace_files(self.folder, {**contents, RECIPE: _as_toml(recipe)}, covered=[CORPUS])

    def change_recipe(self, recipe: Recipe) -> None:
        """Replace the recipe, when settings that may change have changed."""
        replace_files(self.folder, {RECIPE: _as_toml(recipe)})

    def is_unfinished_export(self) -> bool:
        """Whether the folder holds only files of an export that was killed, and no recipe yet."""
        own = {"final", "tokenizer", CORPUS, MANIFEST, CARD_JSON, CARD_PAGE, ADAPTATION_JSON, ADAPTATION_PAGE, LOCK}
        own |= {CALIBRATION, SHORTLIST}
        return not self.exists and all(name in own or is_leftover(name) for name in self.folder.names())

    def refuse_foreign_files(self) -> None:
        """Raise ConfigError if this is a folder with files that no run has. Logs of the command may be there."""
        if self.exists or not self.path.is_dir():
            return
        own = {"final", "tokenizer", "checkpoints", "tensorboard", CORPUS, MANIFEST, REPORT, LOG, LEFT_OUT}
        names = [name for name in self.folder.names() if name not in own and not is_leftover(name)]
        foreign = sorted(name for name in names if not name.startswith(".") and Path(name).suffix not in COMMAND_LOGS)
        if foreign:
            more = f" and {len(foreign) - 3:,} more" if len(foreign) > 3 else ""
            raise ConfigError(
                f"{self.path} is not a run, and other files are there ({', '.join(foreign[:3])}{more}); "
                "name a new folder with --out (in Python: out=)"
            )

    @property
    def is_export(self) -> bool:
        """Whether this holds what prediction needs, and neither the log nor the checkpoints of training."""
        return self.finished and not self.folder.has_file(LOG) and not self.steps()

    def sweep(self) -> None:
        """Remove unfinished files of a killed process. Call it only while holding the lock."""
        with self.folder.briefly_locked():
            complete_replacement(self.folder)
        sweep(self.folder)
        sweep(self._checkpoints)

    def locked(self) -> AbstractContextManager[None]:
        """Return a context that locks the folder against a second writer."""
        return self.folder.locked(
            busy=f"another process is training {self.path}; wait for it, or name another folder with --out"
        )

    def recipe(self) -> Recipe:
        """Return the resolved recipe of this run."""
        check_folder(self.require().folder, [CORPUS])
        content = read_checked(self.folder, RECIPE, limit=MAX_RECIPE)
        try:
            return from_table(Recipe, parse_toml(content, origin=self.path / RECIPE), where="")
        except ConfigError as error:
            raise CheckpointError(f"{self.path / RECIPE} is damaged: {error}") from error

    def codec_folder(self) -> Folder:
        """Return the intact folder of the tokenizers, labels or whatever else turns text into numbers."""
        folder = self.require().folder / "tokenizer"
        check_folder(folder)
        return folder

    def corpus(self) -> dict[str, dict[str, int | str]]:
        """Return the sizes and hashes of the text that this run is trained on."""
        content = read_checked(self.require().folder, CORPUS, limit=SMALL)
        try:
            return msgspec.convert(
                parse_json(content, origin=self.path / CORPUS), dict[str, dict[str, int | str]], strict=True
            )
        except msgspec.ValidationError as error:
            raise CheckpointError(f"{self.path / CORPUS} is damaged: {error}") from error

    def problems(self) -> list[str]:
        """Return one sentence for each damaged or missing file; an empty list if the run is intact."""
        folders = [self.require().folder, self.folder / "tokenizer"]
        folders += [self._checkpoints / name for name in self._checkpoint_names()]
        if self.folder.has_folder("final"):
            folders.append(self.folder / "final")
        found = []
        for folder in folders:
            try:
                check_folder(folder)
            except CheckpointError as error:
                found.append(str(error))
        return found + self.log_problems()

    # Cards and reports

    def write_extras(self, contents: Mapping[str, str]) -> None:
        """Write files about the run, such as its card, and add them to the manifest."""
        replace_files(self.folder, {name: text.encode(errors="replace") for name, text in contents.items()})

    def read_extra(self, name: str) -> str | None:
        """Return a file about the run, or None if it is missing or damaged. `problems` reports damage."""
        with suppress(CheckpointError, UnicodeDecodeError):
            if name in read_manifest(self.folder):
                return read_checked(self.folder, name, limit=SMALL).decode()
            if self.folder.has_file(name):
                # Runs of the first versions have no manifest entry for these files.
                return self.folder.load_text(name)
        return None

    def card(self) -> dict[str, Any]:
        """Return the card of the run, or an empty mapping if it is missing or damaged."""
        return self._read_object(CARD_JSON)

    def adaptation(self) -> dict[str, Any]:
        """Return what `regard adapt` wrote of the run, or an empty mapping if it is missing or damaged."""
        return self._read_object(ADAPTATION_JSON)

    def calibrated_temperature(self, step: int) -> float | None:
        """Return the temperature of `regard calibrate` for the weights of a step; None: it is missing, or of others."""
        found = self._read_object(CALIBRATION)
        temperature = found.get("temperature")
        fits = isinstance(temperature, float) and MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE
        return temperature if fits and found.get("step") == step else None

    def _read_object(self, name: str) -> dict[str, Any]:
        with suppress(CheckpointError):
            found = parse_json((self.read_extra(name) or "{}").encode(), origin=self.path / name)
            return found if isinstance(found, dict) else {}
        return {}

    # Checkpoints

    @property
    def _checkpoints(self) -> Folder:
        return self.folder / "checkpoints"

    def _checkpoint_names(self) -> list[str]:
        """Return the names of all checkpoints, intact or damaged, oldest first."""
        found = filter(CHECKPOINT_NAME.fullmatch, self._checkpoints.names())
        return sorted(found, key=lambda name: int(name.removeprefix("step-")))

    def checkpoints(self) -> list[Path]:
        """Return the paths of all checkpoints, intact or damaged, oldest first."""
        return [self._checkpoints.path / name for name in self._checkpoint_names()]

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        return [int(name.removeprefix("step-")) for name in self._checkpoint_names()]

    def unfinished(self) -> str:
        """Return a sentence that says how far the training of the weights in use is; an empty text if it is finished."""
        steps = self.steps()
        if self.finished or self.checkpoint is not None or not steps:
            return ""
        return f"{self.path} is at step {steps[-1]:,} of {self.recipe().train.steps:,}"

    def save(self, checkpoint: Checkpoint, *, step: int) -> Path:
        """Write a checkpoint and return its path."""
        from regard.run.checkpoint import write_checkpoint

        # After a crash the log must reach at least as far as the checkpoint.
        sync_log(self.folder)
        write_checkpoint(self._checkpoints, _step_name(step), checkpoint)
        return self._checkpoints.path / _step_name(step)

    def keep(self, steps: set[int]) -> None:
        """Remove all checkpoints except those of these steps."""
        for step in set(self.steps()) - steps:
            remove_folder(self._checkpoints, _step_name(step))

    def latest(self) -> tuple[str | None, list[str]]:
        """Return the name of the newest intact checkpoint, and one sentence for each newer one that is damaged."""
        problems = []
        for name in reversed(self._checkpoint_names()):
            try:
                check_folder(self._checkpoints / name)
            except CheckpointError as error:
                problems.append(f"checkpoint {name} is not used: {error}")
            else:
                return name, problems
        return None, problems

    def finish(self, checkpoint: Checkpoint, *, kind: WeightKind = "float32") -> None:
        """Write the final weights, which marks the run as finished."""
        from regard.run.checkpoint import write_checkpoint

        if self.folder.has_file(LOG):
            sync_log(self.folder)
        write_checkpoint(self.folder, "final", checkpoint, kind=kind)

    def reopen(self) -> None:
        """Remove the final weights, so that the run is unfinished again. Call it only while holding the lock."""
        remove_folder(self.folder, "final")

    def read_checkpoint(self, name: str, expected: Shapes | None = None, *, training: bool = False) -> Checkpoint:
        """Return a checkpoint by its name, or the final weights ("final").

        Weights that do not have the expected shapes, where some are given, are refused before they are read.
        """
        from regard.run.checkpoint import read_checkpoint

        return read_checkpoint(self._folder_of(name), training=training, expected=expected)

    def _folder_of(self, name: str) -> Folder:
        return self.folder / "final" if name == "final" else self._checkpoints / name

    def checkpoint_at(self, step: int, expected: Shapes | None = None) -> Checkpoint:
        return self.read_checkpoint(_step_name(step), expected)

    def weights(self, expected: Shapes | None = None) -> tuple[Checkpoint, str]:
        """Return the weights in use, and their name: the final ones, or the newest while training lasts.

        A checkpoint that was named is used instead of either.
        """
        return self._in_use(lambda name: self.read_checkpoint(name, expected))

    def stored_weights(self, expected: Shapes | None = None) -> tuple[StoredWeights, str]:
        """Return what `weights` returns, as it is stored."""
        return self._in_use(lambda name: StoredWeights(self._folder_of(name), expected))

    def _in_use(self, read: Callable[[str], W]) -> tuple[W, str]:
        name = self.require().checkpoint or ("final" if self.finished else None)
        if name is not None:
            return read(name), name
        problem = CheckpointError(f"{self.path} has no checkpoint yet; let it train until the first one is written")
        for _ in range(5):  # training may remove a checkpoint between our finding and our reading it
            newest, _ = self.latest()
            if newest is None:
                break
            try:
                return read(newest), newest
            except CheckpointError as error:
                problem = error
        raise problem

    def weights_digest(self) -> str:
        """Return a hash of the weights in use. They must be the final ones, or those of a checkpoint that was named."""
        return manifest_digest(self._folder_of(self.checkpoint or "final"))

    def write_batch(self, step: int, batches: Sequence[Any]) -> Path:
        """Write the token ids of batches to a file for inspection, and return its path."""
        name = f"bad-batch-{step:08d}.json"
        self.folder.save_json(name, {"step": step, "batches": [batch.as_lists() for batch in batches]})
        return self.path / name

    # The log

    def log(self, event: dict[str, Any]) -> None:
        """Append one event."""
        append_event(self.folder, event)

    def read_log(self) -> list[dict[str, Any]]:
        """Return all events. Damaged lines, and a last line cut off by a crash, are left out."""
        return read_events(self.folder)[0]

    def log_problems(self) -> list[str]:
        """Return one sentence for each damaged line of the log."""
        return read_events(self.folder)[1]

    def rewind_log(self, step: int) -> None:
        """Remove the events after a step, so that repeating those steps does not log them twice."""
        rewind_log(self.folder, step)


def _as_toml(recipe: Recipe) -> bytes:
    return (dump_toml(to_table(recipe)) + "\n").encode()


def _step_name(step: int) -> str:
    return f"step-{step:08d}"
