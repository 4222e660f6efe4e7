"""Checks of a recipe before training, and of the recipe of a run that resumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from regard.config import Bitext, DataConfig, Recipe
from regard.errors import ConfigError, did_you_mean
from regard.metrics import deciding_metric
from regard.models import MODELS, model_config
from regard.recipe_files import NOT_THE_RUN, differences
from regard.run.folder import RunFolder
from regard.tasks import task_of
from regard.text.tokenizer import refuse_unknown_kinds
from regard.toml import to_table

# Settings that `--accept` may change in a run that has begun: none that its weights, optimizer or order of batches follow
# from.
MAY_CHANGE = (
    *("train.steps", "train.lr", "train.schedule", "train.warmup_steps", "train.decay", "train.weight_decay"),
    *("train.accumulate", "train.label_smoothing", "train.clip_norm", "train.max_bad_steps", "train.average"),
    *("train.final", "train.metric"),
    *("train.patience", "train.validate_every", "train.validate_pairs", "train.checkpoint_every", "train.disk_full"),
    *("train.stall_seconds", "train.kernels", "train.graph", "train.precision", "data.test", "decode", "evaluate"),
)


def resolve(recipe: Recipe) -> Recipe:
    """Return the recipe with its model's preset spelled out, so that the run folder says everything.

    Names that are not registered are refused here.
    """
    _, config = model_config(recipe.model)
    refuse_unknown_kinds(recipe.tokenizer)
    sides = recipe.tokenizer.source is not None or recipe.tokenizer.target is not None
    if sides and getattr(config, "tie", None) == "all":
        # The model would notice only if the vocabularies differ in size.
        raise ConfigError("model.tie is 'all', but each side has a tokenizer of its own; set model.tie=target")
    if recipe.data.tags and not task_of(recipe).reads_tags:
        raise ConfigError(
            f"data.train has the tag {recipe.data.tags[0]!r}, but {task_of(recipe).name} reads no tags; leave it out"
        )
    if recipe.data.augment is not None and not task_of(recipe).augments:
        raise ConfigError(f"data.augment is for translation, not for {task_of(recipe).name}; leave it out")
    deciding_metric(recipe.train.metric, compares=task_of(recipe).compares, names=recipe.evaluate.metrics)
    for (table, name), without in _ignored_options(recipe).items():
        given, default = (getattr(getattr(one, table), name) for one in (recipe, DEFAULTS))
        if given not in (default, without):
            raise ConfigError(
                f"{table}.{name} is {given}, but a {task_of(recipe).name} recipe with model.kind={recipe.model['kind']} "
                "ignores it; leave it out"
            )
    return _with_all_options(recipe)


DEFAULTS = Recipe(name="defaults", data=DataConfig(train=Bitext(pairs="-")), model={})


def _ignored_options(recipe: Recipe) -> dict[tuple[str, str], Any]:
    """Return table and name of each option that has no effect here, and a value that may be given all the same."""
    kind, config = model_config(recipe.model)
    ignored = {("decode", name): getattr(DEFAULTS.decode, name) for name in task_of(recipe).ignored_options}
    family = MODELS.get(kind, where="model.kind")
    # The loss of a conditional random field is not smoothed.
    if not getattr(family.build, "smooths_labels", True) or getattr(config, "crf", False):
        ignored["train", "label_smoothing"] = 0.0
    return ignored


def _with_all_options(recipe: Recipe) -> Recipe:
    """Return the recipe with every option of its model, also those that were added since it was written."""
    kind, config = model_config(recipe.model)
    return msgspec.structs.replace(recipe, model={"kind": kind, **to_table(config)})


def _without_ignored(recipe: Recipe) -> Recipe:
    """Return the recipe with one value for each option that has no effect, whatever it was."""
    for (table, name), without in _ignored_options(recipe).items():
        changed = msgspec.structs.replace(getattr(recipe, table), **{name: without})
        recipe = msgspec.structs.replace(recipe, **{table: changed})
    return recipe


def refuse_other_recipe(run: RunFolder, recipe: Recipe, accept: Sequence[str]) -> None:
    """Raise ConfigError if a run was begun with settings that differ from the recipe's, `accept` excepted."""
    for key in accept:
        if not key.startswith(MAY_CHANGE):
            raise ConfigError(f"{key} cannot change in a run that has begun; {did_you_mean(key, MAY_CHANGE)}")

    def is_meant(change: str) -> bool:
        key = change.partition(":")[0]
        return any(key == meant or key.startswith(f"{meant}.") for meant in (*NOT_THE_RUN, *accept))

    before, now = _without_ignored(_with_all_options(run.recipe())), _without_ignored(recipe)
    changed = [change for change in differences(before, now) if not is_meant(change)]
    if changed:
        what = "a run with other settings" if before.name == now.name else f"a run of another recipe, {before.name}"
        advice = "name another folder with --out, or give the settings it was started with"
        keys = [change.partition(":")[0] for change in changed]
        if all(key.startswith(MAY_CHANGE) for key in keys):
            advice += f", or pass {' '.join(f'--accept {key}' for key in keys)}"
        raise ConfigError(f"{run} holds {what} ({'; '.join(changed[:5])}); {advice}")
