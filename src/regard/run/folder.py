"""The run folder: what training writes and everything after it reads.

runs/NAME/
  recipe.toml                 the resolved recipe; with corpus.json in manifest.json
  corpus.json                 sizes and hashes of the text
  tokenizer/                  vocabularies, manifest.json
  log.jsonl                   one event a line
  checkpoints/step-00000500/  weights.safetensors, training.safetensors, counters.json, manifest.json
  final/                      weights.safetensors, counters.json, manifest.json; there when training has ended
  card.json, card.md          what `regard card` found out about the run
  report.html                 the story so far, for a browser
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from regard.config import Recipe, decode, dump_toml, read_toml, to_table
from regard.errors import CheckpointError, ConfigError
from regard.run.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from regard.run.compact import WeightKind
from regard.run.files import (
    check_folder,
    held,
    make_folder,
    matches,
    move,
    read_json,
    remove_folder,
    seal_folder,
    write_json,
    write_manifest,
    write_text,
)
from regard.run.log import log_line, parse_log_line
from regard.text.tokenizer import Tokenizers, load_tokenizers

NEW_RECIPE = ".recipe.toml.new"


class RunFolder:
    """One run's files."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        return (self.path / "recipe.toml").is_file()

    @property
    def finished(self) -> bool:
        return self.exists and (self.path / "final" / "manifest.json").is_file()

    def require(self) -> RunFolder:
        """Itself, if it is a run."""
        if not self.exists:
            raise CheckpointError(
                f"{self.path} is not a run folder (it has no recipe.toml); train one with: regard train"
            )
        return self

    def create(self, recipe: Recipe, tokenizers: Tokenizers, corpus: dict[str, Any]) -> None:
        """Begins the folder. The recipe goes in last: a folder with a recipe is a run."""
        if self.checkpoints():
            raise CheckpointError(f"{self.path} has checkpoints but no recipe.toml; name another folder with --out")
        make_folder(self.path)
        temporary = self.path / ".tokenizer.tmp"
        if temporary.exists():
            shutil.rmtree(temporary)
        tokenizers.save(temporary)
        seal_folder(temporary, self.path / "tokenizer")
        write_json(self.path / "corpus.json", corpus)
        self.write_recipe(recipe)

    def write_recipe(self, recipe: Recipe) -> None:
        """Puts the recipe in its place, last of all: a folder with a recipe is a run, and whole."""
        new = self.path / NEW_RECIPE
        write_text(new, dump_toml(to_table(recipe)) + "\n")
        write_manifest(self.path, {"corpus.json": self.path / "corpus.json", "recipe.toml": new})
        move(new, self.path / "recipe.toml")

    def _recipe_path(self) -> Path:
        """The recipe, checked with the corpus; the new one where a process died before it was in its place."""
        new = self.require().path / NEW_RECIPE
        if new.exists() and matches(self.path, "recipe.toml", new):
            check_folder(self.path, besides={"recipe.toml"})
            return new
        check_folder(self.path)
        return self.path / "recipe.toml"

    def sweep(self) -> None:
        """Puts away what a killed process left half done. Only for who holds the lock."""
        new = self.path / NEW_RECIPE
        if new.exists():
            if matches(self.path, "recipe.toml", new):
                move(new, self.path / "recipe.toml")
            else:
                new.unlink()
        for left in [*self.path.glob(".*.tmp"), *(self.path / "checkpoints").glob(".step-*")]:
            if left.is_dir():
                shutil.rmtree(left)

    def locked(self) -> AbstractContextManager[None]:
        """Holds the folder against a second writer."""
        return held(self.path, busy=f"another process is training {self.path}; wait for it, or name another --out")

    def recipe(self) -> Recipe:
        """The resolved recipe of this run."""
        path = self._recipe_path()
        try:
            return decode(Recipe, read_toml(path), where="")
        except ConfigError as error:
            raise CheckpointError(f"{self.path / 'recipe.toml'} is damaged: {error}") from error

    def tokenizers(self) -> Tokenizers:
        check_folder(self.require().path / "tokenizer")
        return load_tokenizers(self.path / "tokenizer")

    def corpus(self) -> Any:
        """Sizes and hashes of the text that this run is trained on."""
        self._recipe_path()
        return read_json(self.path / "corpus.json")

    def problems(self) -> list[str]:
        """A sentence for everything in the folder that is not as it was written; none if it is whole."""
        folders = [self.require().path, self.path / "tokenizer", *self.checkpoints()]
        if (self.path / "final").exists():
            folders.append(self.path / "final")
        found = []
        for folder in folders:
            try:
                check_folder(folder)
            except CheckpointError as error:
                found.append(str(error))
        return found + self.log_problems()

    # Checkpoints

    def checkpoints(self) -> list[Path]:
        """Whole or damaged, oldest first."""
        found = (self.path / "checkpoints").glob("step-*")
        return sorted(path for path in found if path.name.removeprefix("step-").isdecimal())

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, oldest first."""
        return [int(path.name.removeprefix("step-")) for path in self.checkpoints()]

    def save(self, checkpoint: Checkpoint, *, step: int) -> Path:
        """Writes a checkpoint; what was logged before it is on the disk first, since resuming logs it no more."""
        self._sync_log()
        folder = self._checkpoint_path(step)
        write_checkpoint(folder, checkpoint)
        return folder

    def keep(self, steps: set[int]) -> None:
        """Lets go of all checkpoints but those of these steps."""
        for step in set(self.steps()) - steps:
            remove_folder(self._checkpoint_path(step))

    def _checkpoint_path(self, step: int) -> Path:
        return self.path / "checkpoints" / f"step-{step:08d}"

    def latest(self) -> tuple[Path | None, list[str]]:
        """The newest whole checkpoint, and a sentence for each damaged one that was passed over."""
        complaints = []
        for folder in reversed(self.checkpoints()):
            try:
                check_folder(folder)
            except CheckpointError as error:
                complaints.append(f"checkpoint {folder.name} is not used: {error}")
            else:
                return folder, complaints
        return None, complaints

    def finish(self, checkpoint: Checkpoint, *, kind: WeightKind = "float32") -> None:
        """Writes the final weights, which end the run; nobody mends the log after that, so it is on the disk first."""
        self._sync_log()
        write_checkpoint(self.path / "final", checkpoint, kind=kind)

    def checkpoint_at(self, step: int) -> Checkpoint:
        return read_checkpoint(self._checkpoint_path(step))

    def weights(self) -> tuple[Checkpoint, str]:
        """The weights to translate with, and their name: the final ones, or while training goes on the newest."""
        if self.require().finished:
            return read_checkpoint(self.path / "final"), "final"
        problem = CheckpointError(f"{self.path} has no checkpoint yet; let it train until the first one is written")
        for _ in range(5):  # training may let go of a checkpoint between our finding and our reading it
            newest, _ = self.latest()
            if newest is None:
                break
            try:
                return read_checkpoint(newest), newest.name
            except CheckpointError as error:
                problem = error
        raise problem

    def write_batch(self, step: int, batches: Sequence[Any]) -> Path:
        """Writes the token ids of these batches down for a person to look at; where they are."""
        path = self.path / f"bad-batch-{step:08d}.json"
        write_json(path, {"step": step, "batches": [batch.as_lists() for batch in batches]})
        return path

    # The log

    def log(self, event: dict[str, Any]) -> None:
        """Appends one event."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(log_line(event))

    def _sync_log(self) -> None:
        if (self.path / "log.jsonl").exists():
            with (self.path / "log.jsonl").open("rb") as file:
                os.fsync(file.fileno())

    def read_log(self) -> list[dict[str, Any]]:
        """All events so far; a last line cut off by a crash, and damaged ones, are left out."""
        return self._read_log()[0]

    def log_problems(self) -> list[str]:
        """A sentence for each line of the log that is not what was written."""
        return self._read_log()[1]

    def _read_log(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The events, and a sentence for each line that is not what was written."""
        path = self.path / "log.jsonl"
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        events, complaints = [], []
        for number, line in enumerate(lines[:-1], start=1):
            event = parse_log_line(line)
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
        write_text(self.path / "log.jsonl", "".join(map(log_line, kept)))
