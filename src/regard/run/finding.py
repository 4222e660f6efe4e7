"""Runs by the name that a user types: a folder, one of its checkpoints, or a pretrained model of the package."""

from __future__ import annotations

import os
from pathlib import Path

from regard.errors import CheckpointError, did_you_mean
from regard.run.folder import CHECKPOINT_NAME, RunFolder


def pretrained_models() -> dict[str, Path]:
    """Return the folders of the models that come with the package, by name."""
    parent = Path(__file__).parent.parent / "shipped"
    return {path.parent.name: path.parent for path in sorted(parent.glob("*/recipe.toml"))}


def _run_of_checkpoint(path: Path) -> RunFolder | None:
    """Return the run that a checkpoint folder, RUN/checkpoints/step-N, belongs to; None for a path of another form."""
    full = Path(os.path.abspath(path))
    if full.parent.name != "checkpoints" or not CHECKPOINT_NAME.fullmatch(full.name):
        return None
    # A short path, such as that of a checkpoint in the current folder, does not name the run.
    run = RunFolder((path if path.parent.name == "checkpoints" else full).parent.parent, checkpoint=full.name)
    if not run.exists:
        return None
    steps = [found.name for found in run.checkpoints()]
    if full.name not in steps:
        known = did_you_mean(full.name, steps) if steps else "none is written yet"
        raise CheckpointError(f"{run} has no checkpoint {full.name}; {known}")
    return run


def find_run(name: Path | str) -> RunFolder:
    """Return the run in this folder, the run of this checkpoint folder, or the pretrained model of this name."""
    run = RunFolder(name)
    if run.exists:
        return run
    if (found := _run_of_checkpoint(Path(name))) is not None:
        return found
    models = pretrained_models()
    if str(name) in models:
        return RunFolder(models[str(name)])
    known = f", and no pretrained model has this name ({did_you_mean(str(name), models)})" if models else ""
    what = "not a run folder (it has no recipe.toml)" if Path(name).exists() else "not a run folder: it does not exist"
    raise CheckpointError(f"{name} is {what}{known}; train one with: regard train")
