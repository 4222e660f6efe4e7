"""The nine parts that `regard ablate` takes away: the task that shows what each is for, and how it is switched off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from regard.config import Recipe
from regard.errors import ConfigError, did_you_mean
from regard.recipe_files import load_recipe


@dataclass(frozen=True)
class Ablation:
    """A part of the model or of training, and the default task that shows what it is for."""

    part: str  # in words
    with_it: str  # what the usual run has
    without_it: str
    recipe: str  # a shipped recipe
    settings: str  # of both runs: overrides of the recipe, separated by spaces
    off: str = ""  # overrides of the run without the part; empty if the model itself is changed


# Six decoder layers as in the paper, post-norm, at its highest learning rate for this width: 64**-0.5 * 4000**-0.5.
# There is no encoder, and no clipping, which would hide what happens.
DEEP = "model.decoder_layers=6 model.norm_order=post train.clip_norm=0 train.lr=2e-3 train.tokens=512 train.steps=250"
# One decoder layer that looks one letter up.
LOOK_UP = "model.num_layers=0 model.decoder_layers=1 train.lr=1e-3 train.tokens=512 train.steps=300"
ONE_LAYER = f"model.width=128 {LOOK_UP}"
ABLATIONS: dict[str, Ablation] = {
    "mask": Ablation("the causal mask", "causal mask", "no mask", "copy", ONE_LAYER),
    "positions": Ablation("positions", "sinusoids", "no positions", "copy", ONE_LAYER, "model.positions=none"),
    "scale": Ablation(
        "the division by √d",
        "scores / √d",
        "scores as they are",
        "copy",
        f"model.num_heads=1 model.width=192 {LOOK_UP}",
    ),
    "residual": Ablation("the residual connections", "x + f(x)", "f(x)", "join", DEEP),
    "heads": Ablation("all heads but one", "4 heads", "1 head", "join", "train.steps=300", "model.num_heads=1"),
    "warmup": Ablation(
        "the warm-up of the learning rate", "warm-up", "no warm-up", "join", DEEP, "train.warmup_steps=0"
    ),
    "smoothing": Ablation(
        "label smoothing",
        "smoothing 0.1",
        "no smoothing",
        "mistakes",
        "model.width=128 model.hidden=512 model.decoder_layers=2 train.lr=2e-3 train.steps=200 train.label_smoothing=0.1",
        "train.label_smoothing=0.0",
    ),
    "ffn": Ablation("the feed-forward layers", "feed-forward", "no feed-forward", "table", "train.steps=400"),
    "norm": Ablation("the norms", "LayerNorm", "no norm", "join", DEEP),
}

KIND = "transformer-without-"  # the beginning of the `model.kind` of a changed model
MOST_STEPS = 250  # of a recipe that the user names, unless --steps says otherwise
VALIDATIONS = 5
POINTS = 50  # of the curve of the training loss


@dataclass(frozen=True)
class AblationRecipes:
    """The recipes of the two runs of an ablation, which differ in one setting or in `model.kind`."""

    with_it: Recipe
    without_it: Recipe


def find_ablation(what: str) -> Ablation:
    """Return an ablation by its name."""
    if what not in ABLATIONS:
        raise ConfigError(f"there is no ablation {what!r}; {did_you_mean(what, ABLATIONS)}")
    return ABLATIONS[what]


def make_sides(what: str, recipe: str | None = None, *, seed: int = 1, steps: int | None = None) -> AblationRecipes:
    """Return the recipes of both runs: those of the default task, or of a recipe by its name or .toml file."""
    ablation = find_ablation(what)
    name, settings = (ablation.recipe, ablation.settings.split()) if recipe is None else (recipe, [])
    usual = _load(name, settings)
    if usual.model.get("kind") != "transformer":
        raise ConfigError(
            f"{name} has model.kind={usual.model.get('kind')}; regard ablate takes parts of a Transformer away, so name a "
            "recipe with model.kind=transformer"
        )
    length = steps or (usual.train.steps if recipe is None else min(usual.train.steps, MOST_STEPS))
    every = max(length // VALIDATIONS, 1)
    settings += [
        f"train.seed={seed}",
        f"train.steps={length}",
        f"train.warmup_steps={min(usual.train.warmup_steps, max(length // 5, 1))}",
        f"train.validate_every={every}",
        f"train.checkpoint_every={every}",
        f"train.log_every={max(length // POINTS, 1)}",
        f"train.validate_pairs={min(usual.train.validate_pairs, 200)}",
        "train.keep=1",
        "train.patience=0",
        "train.threads=1",
        "train.device=cpu",
    ]
    usual = _load(name, settings)
    if not ablation.off:
        return AblationRecipes(usual, msgspec.structs.replace(usual, model={**usual.model, "kind": f"{KIND}{what}"}))
    without = _load(name, [*settings, *ablation.off.split()])
    if without == usual:
        raise ConfigError(f"{name} has {ablation.off} already, so there is nothing to take away; name another recipe")
    return AblationRecipes(usual, without)


def _load(name: str, overrides: Sequence[str]) -> Recipe:
    return load_recipe(name, overrides, warn=lambda text: None)
