"""The options of a recipe as typed structs, one per table.

`recipe_files` reads them from TOML files, and `toml` converts and writes them. The `[model]` table stays a mapping here: its
keys belong to the model family that `model.kind` names.
"""

from regard.config.data import AugmentConfig, Bitext, DataConfig, TokenizerConfig, TokenizerSide
from regard.config.recipe import EvaluateConfig, Recipe
from regard.config.search_options import SearchOptions, SearchPrecision
from regard.config.struct import LARGEST, MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, Struct, below_one, between
from regard.config.train import TrainConfig

__all__ = [
    "LARGEST",
    "MAX_LAYERS",
    "MAX_POSITIONS",
    "MAX_WIDTH",
    "AugmentConfig",
    "Bitext",
    "DataConfig",
    "EvaluateConfig",
    "Recipe",
    "SearchOptions",
    "SearchPrecision",
    "Struct",
    "TokenizerConfig",
    "TokenizerSide",
    "TrainConfig",
    "below_one",
    "between",
]
