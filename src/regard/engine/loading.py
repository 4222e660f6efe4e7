"""A run as the engine reads it: its recipe, tokenizers and weights, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from regard.config import Recipe
from regard.config.transformer import PRESETS, TransformerConfig
from regard.config.transformer_shapes import transformer_shapes
from regard.decoding.translator import Translator
from regard.engine.backend import EngineBackend
from regard.engine.bindings import library
from regard.engine.model import EngineModel, Tensor
from regard.errors import ConfigError
from regard.run.folder import RunFolder
from regard.text.languages import Languages
from regard.text.symbols import BOS, EOS
from regard.text.tokenizer_pair import load_tokenizers
from regard.toml import with_preset

if TYPE_CHECKING:
    from regard.models.base import Model


def why_not_in_engine() -> str | None:
    """Return why the engine can compute nothing here; None: it can."""
    return (
        None
        if library() is not None
        else "it has not been compiled from these sources (no C compiler at installation; in a checkout: make engine)"
    )


@dataclass(frozen=True)
class EngineRun:
    """A translation run with a Transformer."""

    folder: RunFolder
    recipe: Recipe
    config: TransformerConfig

    @classmethod
    def read(cls, folder: RunFolder) -> EngineRun | str:
        """Return the run, or why the engine cannot compute it."""
        recipe = folder.recipe()
        table = dict(recipe.model)
        kind = table.pop("kind", None)
        if kind != "transformer":
            return f"it computes Transformers alone, and model.kind is {kind!r}"
        if recipe.task not in (None, "translation"):
            return f"it translates, and the task is {recipe.task}"
        try:
            config = with_preset(TransformerConfig, table, PRESETS, where="model")
        except ConfigError as error:
            return str(error)
        if config.copy:
            return "it does not copy words of the source (model.copy)"
        return cls(folder, recipe, config)

    def translator(
        self, warn: Callable[[str], None], load_model: Callable[[str], Model], *, int8: bool, threads: int
    ) -> Translator:
        """Return the model in use. Raise ConfigError if it has an option that the engine does not have.

        `load_model` returns it as a module of PyTorch, given the name of its weights.
        """
        tokenizers = load_tokenizers(self.folder.codec_folder())
        sizes = {"source_size": tokenizers.source.size, "target_size": tokenizers.target.size}
        if self.config.tie == "all" and sizes["source_size"] != sizes["target_size"]:
            raise ConfigError("model.tie is 'all' but the two sides have separate vocabularies; set model.tie=target")
        shapes = transformer_shapes(self.config, **sizes)
        stored, name = self.folder.stored_weights(shapes)
        weights = ((key, Tensor(*weight)) for key, weight in stored.tensors())
        model = EngineModel(self.config, weights, **sizes, bos=BOS, eos=EOS, int8=int8)
        count = sum(math.prod(shape) for shape in shapes.values())
        backend = EngineBackend(model, num_parameters=count, load_model=partial(load_model, name), threads=threads)
        languages = Languages(self.recipe.data.language_pairs)
        translator = Translator(backend, tokenizers, self.recipe.decode, warn=warn, languages=languages)
        step = int(stored.counters.get("step", 0))
        translator.calibrated_temperature = self.folder.calibrated_temperature(step)
        return translator
