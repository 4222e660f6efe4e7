"""Finding a run by what a person types: a folder, or the name of a model in the box."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from regard.errors import CheckpointError, did_you_mean
from regard.run.folder import RunFolder


def shipped_models() -> dict[str, Path]:
    """The models in the box, by name."""
    box = Path(str(files("regard"))) / "shipped"
    return {path.parent.name: path.parent for path in sorted(box.glob("*/recipe.toml"))}


def find_run(name: Path | str) -> RunFolder:
    """The run in that folder, or the model in the box that has that name."""
    run = RunFolder(name)
    if run.exists:
        return run
    box = shipped_models()
    if str(name) in box:
        return RunFolder(box[str(name)])
    known = f", and no model in the box is called so ({did_you_mean(str(name), box)})" if box else ""
    raise CheckpointError(f"{name} is not a run folder (it has no recipe.toml){known}; train one with: regard train")
