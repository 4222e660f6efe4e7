"""Runs by the name that a user types: a folder, or a pretrained model that comes with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from regard.errors import CheckpointError, did_you_mean
from regard.run.folder import RunFolder


def pretrained_models() -> dict[str, Path]:
    """Return the folders of the models that come with the package, by name."""
    parent = Path(str(files("regard"))) / "shipped"
    return {path.parent.name: path.parent for path in sorted(parent.glob("*/recipe.toml"))}


def find_run(name: Path | str) -> RunFolder:
    """Return the run in this folder, or the pretrained model of this name."""
    run = RunFolder(name)
    if run.exists:
        return run
    models = pretrained_models()
    if str(name) in models:
        return RunFolder(models[str(name)])
    known = f", and no pretrained model has this name ({did_you_mean(str(name), models)})" if models else ""
    raise CheckpointError(f"{name} is not a run folder (it has no recipe.toml){known}; train one with: regard train")
