"""A run is a folder: recipe, tokenizers, log and checkpoints. Everything later takes the folder and nothing else.

runs/NAME/
  recipe.toml                 the resolved recipe
  corpus.json                 sizes and hashes of the text
  manifest.json               sizes and hashes of recipe, corpus, card and report
  tokenizer/                  vocabularies, manifest.json
  log.jsonl                   one event per line
  checkpoints/step-00000500/  weights.safetensors, training.safetensors, counters.json, manifest.json
  final/                      weights.safetensors, counters.json, manifest.json; there when training has ended
  card.json, card.md          what `regard card` found out about the run
  report.html                 the story so far, for a browser
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from regard.config import Recipe
from regard.errors import CheckpointError, ConfigError
from regard.run.checkpoint import Checkpoint, Shapes, read_checkpoint, write_checkpoint
from regard.run.log import log_line, parse_event
from regard.run.quantize import WeightKind
from regard.storage.folder import LARGE, LOCK, SMALL, Folder, is_leftover, parse_json
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
from regard.toml import decode, dump_toml, parse_toml, to_table

RECIPE, CORPUS, LOG = "recipe.toml", "corpus.json", "log.jsonl"
CARD_JSON, CARD_PAGE, REPORT = "card.json", "card.md", "report.html"
MAX_RECIPE = 2**17  # bytes; parsers of TOML are slow


class Saveable(Protocol):
    """What writes its own files, such as tokenizers."""

    def save(self, folder: Folder) -> None: ...


class RunFolder:
    """One run's files."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.folder = Folder(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        return self.folder.has_file(RECIPE)

    @property
    def finished(self) -> bool:
        return self.exists and (self.folder / "final").has_file(MANIFEST)

    def require(self) -> RunFolder:
        """Itself, if it is a run."""
        if not self.exists:
            raise CheckpointError(
                f"{self.path} is not a run folder (it has no recipe.toml); train one with: regard train"
            )
        return self

    def create(
        self, recipe: Recipe, codec: Saveable, corpus: Mapping[str, Any], extras: Mapping[str, str] | None = None
    ) -> None:
        """Begins the folder. The recipe goes in last, with `extras` such as cards: a folder with a recipe is a run."""
        if self.checkpoints():
            raise CheckpointError(f"{self.path} has checkpoints but no recipe.toml; name another folder with --out")
        if self.folder.make().has_file(MANIFEST):  # of an attempt that was killed before it wrote a recipe
            self.folder.remove(MANIFEST)
        with staged(self.folder, "tokenizer") as folder:
            codec.save(folder)
        self.folder.save_json(CORPUS, corpus)
        contents = {name: text.encode() for name, text in (extras or {}).items()}
        replace_files(self.folder, {**contents, RECIPE: _as_toml(recipe)}, covered=[CORPUS])

    def change_recipe(self, recipe: Recipe) -> None:
        """Replaces the recipe, when settings that may change do."""
        replace_files(self.folder, {RECIPE: _as_toml(recipe)})

    def is_unfinished_export(self) -> bool:
        """Whether all that is here is what an export leaves when it is killed: no recipe yet, and nothing of others."""
        own = {"final", "tokenizer", CORPUS, MANIFEST, CARD_JSON, CARD_PAGE, LOCK}
        return not self.exists and all(name in own or is_leftover(name) for name in self.folder.names())

    def sweep(self) -> None:
        """Removes what a killed process left half done. Only for the process that holds the lock."""
        with self.folder.briefly_locked():
            complete_replacement(self.folder)
        sweep(self.folder)
        sweep(self._checkpoints)

    def locked(self) -> AbstractContextManager[None]:
        """Holds the folder against a second writer."""
        return self.folder.locked(
            busy=f"another process is training {self.path}; wait for it, or name another folder with --out"
        )

    def recipe(self) -> Recipe:
        """The resolved recipe of this run."""
        check_folder(self.require().folder, [CORPUS])
        content = read_checked(self.folder, RECIPE, limit=MAX_RECIPE)
        try:
            return decode(Recipe, parse_toml(content, origin=self.path / RECIPE), where="")
        except ConfigError as error:
            raise CheckpointError(f"{self.path / RECIPE} is damaged: {error}") from error

    def codec_folder(self) -> Folder:
        """Return the intact folder of the tokenizers, labels or whatever else turns text into numbers."""
        folder = self.require().folder / "tokenizer"
        check_folder(folder)
        return folder

    def corpus(self) -> dict[str, dict[str, int | str]]:
        """Sizes and hashes of the text that this run is trained on."""
        content = read_checked(self.require().folder, CORPUS, limit=SMALL)
        try:
            return msgspec.convert(
                parse_json(content, origin=self.path / CORPUS), dict[str, dict[str, int | str]], strict=True
            )
        except msgspec.ValidationError as error:
            raise CheckpointError(f"{self.path / CORPUS} is damaged: {error}") from error

    def problems(self) -> list[str]:
        """A sentence for everything in the folder that is not as it was written; none if it is intact."""
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
        """Writes files about the run beside it, and into its manifest."""
        replace_files(self.folder, {name: text.encode(errors="replace") for name, text in contents.items()})

    def read_extra(self, name: str) -> str | None:
        """A file about the run; None where there is none, or where it is not what was written (`problems` names it)."""
        with suppress(CheckpointError, UnicodeDecodeError):
            if name in read_manifest(self.folder):
                return read_checked(self.folder, name, limit=SMALL).decode()
            if self.folder.has_file(name):  # written before manifests covered such files
                return self.folder.load_text(name)
        return None

    def card(self) -> dict[str, Any]:
        """What `regard card` found out about the run; nothing where it did not, or where its card is damaged."""
        with suppress(CheckpointError):
            found = parse_json((self.read_extra(CARD_JSON) or "{}").encode(), origin=self.path / CARD_JSON)
            return found if isinstance(found, dict) else {}
        return {}

    # Checkpoints

    @property
    def _checkpoints(self) -> Folder:
        return self.folder / "checkpoints"

    def _checkpoint_names(self) -> list[str]:
        """Intact or damaged, oldest first."""
        found = filter(re.compile(r"step-[0-9]{8,15}").fullmatch, self._checkpoints.names())
        return sorted(found, key=lambda name: int(name.removeprefix("step-")))

    def checkpoints(self) -> list[Path]:
        """Intact or damaged, oldest first."""
        return [self._checkpoints.path / name for name in self._checkpoint_names()]

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, oldest first."""
        return [int(name.removeprefix("step-")) for name in self._checkpoint_names()]

    def save(self, checkpoint: Checkpoint, *, step: int) -> Path:
        """Writes a checkpoint."""
        self.sync_log()  # after a crash the log must reach as far as the checkpoint
        write_checkpoint(self._checkpoints, _step_name(step), checkpoint)
        return self._checkpoints.path / _step_name(step)

    def keep(self, steps: set[int]) -> None:
        """Removes all checkpoints but those of these steps."""
        for step in set(self.steps()) - steps:
            remove_folder(self._checkpoints, _step_name(step))

    def latest(self) -> tuple[str | None, list[str]]:
        """The name of the newest intact checkpoint, and a sentence for each damaged one that was passed over."""
        complaints = []
        for name in reversed(self._checkpoint_names()):
            try:
                check_folder(self._checkpoints / name)
            except CheckpointError as error:
                complaints.append(f"checkpoint {name} is not used: {error}")
            else:
                return name, complaints
        return None, complaints

    def finish(self, checkpoint: Checkpoint, *, kind: WeightKind = "float32") -> None:
        """Writes the final weights, which end the run."""
        if self.folder.has_file(LOG):
            self.sync_log()
        write_checkpoint(self.folder, "final", checkpoint, kind=kind)

    def read_checkpoint(self, name: str, expected: Shapes | None = None, *, training: bool = False) -> Checkpoint:
        """Return a checkpoint by its name, or the final weights ("final").

        Weights that do not have the expected shapes, where some are given, are refused before they are read.
        """
        folder = self.folder / "final" if name == "final" else self._checkpoints / name
        return read_checkpoint(folder, training=training, expected=expected)

    def checkpoint_at(self, step: int, expected: Shapes | None = None) -> Checkpoint:
        return self.read_checkpoint(_step_name(step), expected)

    def weights(self, expected: Shapes | None = None) -> tuple[Checkpoint, str]:
        """Return the weights to use, and their name: the final ones, or the newest while training lasts."""
        if self.require().finished:
            return self.read_checkpoint("final", expected), "final"
        problem = CheckpointError(f"{self.path} has no checkpoint yet; let it train until the first one is written")
        for _ in range(5):  # training may remove a checkpoint between our finding and our reading it
            newest, _ = self.latest()
            if newest is None:
                break
            try:
                return self.read_checkpoint(newest, expected), newest
            except CheckpointError as error:
                problem = error
        raise problem

    def weights_digest(self) -> str:
        """A hash of the final weights."""
        return manifest_digest(self.folder / "final")

    def write_batch(self, step: int, batches: Sequence[Any]) -> Path:
        """Writes the token ids of these batches down for a person to look at; where they are."""
        name = f"bad-batch-{step:08d}.json"
        self.folder.save_json(name, {"step": step, "batches": [batch.as_lists() for batch in batches]})
        return self.path / name

    # The log

    def log(self, event: dict[str, Any]) -> None:
        """Appends one event."""
        with self.folder.append_file(LOG) as file:
            file.write(log_line(event).encode())

    def sync_log(self) -> None:
        """Makes sure that what was logged is on the disk."""
        with self.folder.append_file(LOG) as file:
            os.fsync(file.fileno())
        self.folder.sync()

    def read_log(self) -> list[dict[str, Any]]:
        """All events so far; a last line cut off by a crash, and damaged ones, are left out."""
        return self._read_log()[0]

    def log_problems(self) -> list[str]:
        """A sentence for each line of the log that is not what was written."""
        return self._read_log()[1]

    def _read_log(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The events, and a sentence for each line that is not what was written."""
        path = self.path / LOG
        if LOG not in self.folder.names():
            return [], []
        lines = self.folder.load_bytes(LOG, limit=LARGE).split(b"\n")
        events, complaints = [], []
        for number, line in enumerate(lines[:-1], start=1):
            event = parse_event(line)
            if event is None:
                complaints.append(f"{path} is damaged: line {number} is not what was written")
            else:
                events.append(event)
        if lines[-1]:
            complaints.append(f"{path} is damaged: its last line was cut off")
        return events, complaints

    def rewind_log(self, step: int) -> None:
        """Forgets what was logged after a step, so that training it again does not log it twice."""
        kept = [event for event in self.read_log() if event.get("step", 0) <= step]
        self.folder.save_text(LOG, "".join(map(log_line, kept)))


def _as_toml(recipe: Recipe) -> bytes:
    return (dump_toml(to_table(recipe)) + "\n").encode()


def _step_name(step: int) -> str:
    return f"step-{step:08d}"
