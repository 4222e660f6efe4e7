"""The run folder: what training writes and everything after it reads.

runs/NAME/
  recipe.toml                 the resolved recipe
  tokenizer/                  vocabularies
  log.jsonl                   one event a line
  checkpoints/step-00000500/  weights.safetensors, training.safetensors, counters.json, manifest.json
  final/                      weights.safetensors, counters.json, manifest.json; there when training has ended
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from regard.config import Recipe, decode, dump_toml, read_toml, to_table
from regard.errors import CheckpointError, ConfigError
from regard.run.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from regard.run.files import check_folder, write_text
from regard.text.tokenizer import Tokenizers, load_tokenizers


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
        return (self.path / "final" / "manifest.json").is_file()

    def require(self) -> RunFolder:
        """Itself, if it is a run."""
        if not self.exists:
            raise CheckpointError(
                f"{self.path} is not a run folder (it has no recipe.toml); train one with: regard train"
            )
        return self

    def create(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        """Begins the folder. The recipe goes in last: a folder with a recipe is a run."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "tokenizer").mkdir(exist_ok=True)
        tokenizers.save(self.path / "tokenizer")
        write_text(self.path / "recipe.toml", dump_toml(to_table(recipe)) + "\n")

    def recipe(self) -> Recipe:
        """The resolved recipe of this run."""
        try:
            return decode(Recipe, read_toml(self.require().path / "recipe.toml"), where="")
        except ConfigError as error:
            raise CheckpointError(f"{self.path / 'recipe.toml'} is damaged: {error}") from error

    def tokenizers(self) -> Tokenizers:
        return load_tokenizers(self.require().path / "tokenizer")

    # Checkpoints

    def checkpoints(self) -> list[Path]:
        """Whole or damaged, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def save(self, checkpoint: Checkpoint, *, step: int, keep: int, best: int | None) -> Path:
        """Writes a checkpoint, then lets go of old ones: the newest `keep` stay, and the best."""
        folder = self._checkpoint_path(step)
        write_checkpoint(folder, checkpoint)
        spared = {folder.name, *([self._checkpoint_path(best).name] if best is not None else [])}
        for old in self.checkpoints()[:-keep]:
            if old.name not in spared:
                shutil.rmtree(old)
        return folder

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

    def finish(self, checkpoint: Checkpoint) -> None:
        """Writes the final weights, which end the run."""
        write_checkpoint(self.path / "final", checkpoint)

    def checkpoint_at(self, step: int) -> Checkpoint:
        return read_checkpoint(self._checkpoint_path(step))

    def weights(self) -> tuple[Checkpoint, str]:
        """The weights to translate with, and their name: the final ones, or while training goes on the newest."""
        if self.require().finished:
            return read_checkpoint(self.path / "final"), "final"
        for _ in range(5):  # training may let go of a checkpoint between our finding and our reading it
            newest, _ = self.latest()
            if newest is None:
                break
            try:
                return read_checkpoint(newest), newest.name
            except CheckpointError:
                if newest.exists():
                    raise
        raise CheckpointError(f"{self.path} has no checkpoint yet; let it train until the first one is written")

    # The log

    def log(self, event: dict[str, Any]) -> None:
        """Appends one event."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")

    def read_log(self) -> list[dict[str, Any]]:
        """All events so far; a last line cut off by a crash is left out."""
        path = self.path / "log.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        return [json.loads(line) for line in lines[:-1]]

    def rewind_log(self, step: int) -> None:
        """Forgets what was logged after a step, so that training it again does not log it twice."""
        kept = [event for event in self.read_log() if event.get("step", 0) <= step]
        write_text(self.path / "log.jsonl", "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in kept))
