"""A trained model as exports need it: options, weights, and the symbols of both vocabularies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from regard.config import Recipe, SearchOptions
from regard.errors import ConfigError
from regard.loading import require_translation
from regard.models import model_config
from regard.models.encoder_decoder import TransformerConfig
from regard.run.finding import find_run
from regard.text.listed_subwords import ListedSubwords
from regard.text.subwords import SubwordTokenizer
from regard.text.symbols import RESERVED
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_pair import Tokenizers
from regard.torch_loading import checked_weights, task_of_run

SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
# Names of our reserved symbols in other engines. A vocabulary may have one of the last ones as an ordinary symbol.
UNKNOWN, END, STARTS = "<unk>", "</s>", ("<pad>", "<s>", "<bos>", "<start>")


@dataclass(frozen=True)
class Portable:
    """A translation model of the Transformer family."""

    name: str
    recipe: Recipe
    config: TransformerConfig
    weights: Mapping[str, Tensor]  # by our names
    tokenizers: Tokenizers
    start: str  # the symbol that stands for BOS

    @property
    def options(self) -> SearchOptions:
        return self.recipe.decode

    @property
    def num_positions(self) -> int:
        """The most positions that a search with the recipe's options reaches, EOS included."""
        if self.config.positions == "learned":
            return self.config.max_positions
        return self.options.max_source + self.options.max_extra + 2

    def symbols(self, side: str) -> list[str]:
        """Return the symbol of each id of the source or target vocabulary; no two are equal."""
        tokenizer = self.tokenizers.source if side == "source" else self.tokenizers.target
        return [UNKNOWN, self.start, END, *_own_symbols(tokenizer)]

    @property
    def tags(self) -> list[str]:
        """Symbols of an imported vocabulary that a source may begin with, such as >>fra<<."""
        return self.tokenizers.source.tags if isinstance(self.tokenizers.source, ListedSubwords) else []

    @property
    def one_vocabulary(self) -> bool:
        return self.symbols("source") == self.symbols("target")

    def models(self) -> dict[str, bytes]:
        """Return the SentencePiece files, by the names that they get."""
        return {SOURCE_MODEL: _model(self.tokenizers.source), TARGET_MODEL: _model(self.tokenizers.target)}


def load_portable(run: Path | str) -> Portable:
    """Return a run's model. Raise ConfigError for runs that are never exported to other engines."""
    require_translation(run, "exporting to other engines")
    folder = find_run(run)
    task = task_of_run(folder)
    recipe, codec = task.recipe, task.load_codec(folder.codec_folder())
    kind, config = model_config(recipe.model)
    if kind != "transformer":
        raise ConfigError(f"model.kind is {kind!r}, which other engines do not have; only 'transformer' is exported")
    assert isinstance(config, TransformerConfig)
    if 0 in (config.num_layers, config.decoder_layers):
        raise ConfigError("model.num_layers or model.decoder_layers is 0, which other engines do not have")
    _refuse_tokenizers(codec, recipe)
    own = {symbol for side in (codec.source, codec.target) for symbol in _own_symbols(side)}
    start = next((name for name in STARTS if name not in own), None)
    if start is None or own & {UNKNOWN, END}:
        taken = sorted(own & {UNKNOWN, END, *STARTS})
        raise ConfigError(f"the vocabulary has the symbols {', '.join(taken)}, which other engines reserve")
    checkpoint, _ = checked_weights(folder, task, codec)
    weights = {name: one.to(torch.float32) for name, one in checkpoint.weights.items()}
    return Portable(folder.path.absolute().name, recipe, config, weights, codec, start)


def _refuse_tokenizers(codec: Tokenizers, recipe: Recipe) -> None:
    if codec.tags:
        raise ConfigError(
            f"the sources of this model begin with tags ({', '.join(list(codec.tags)[:3])}), which SentencePiece files "
            "do not have; models with tags are not exported"
        )
    for side, tokenizer in (("source", codec.source), ("target", codec.target)):
        if not isinstance(tokenizer, SubwordTokenizer | ListedSubwords):
            raise ConfigError(
                f"the {side} tokenizer is of the kind {tokenizer.kind!r}, which is not a SentencePiece file; only models "
                "with tokenizer.kind=bpe, unigram or sentencepiece are exported"
            )


def _own_symbols(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.tokens(range(len(RESERVED), tokenizer.size))


def _model(tokenizer: Tokenizer) -> bytes:
    assert isinstance(tokenizer, SubwordTokenizer | ListedSubwords), tokenizer
    return tokenizer.model


# What a target can express


def refuse_options(config: TransformerConfig, target: str, fitting: Mapping[str, Collection[Any]]) -> None:
    """Raise ConfigError for the first option of the model that has none of the values a target can express."""
    for name, values in fitting.items():
        value = getattr(config, name)
        if value not in values:
            shown = [msgspec.json.encode(one).decode().strip('"') for one in values if one is not None]
            fits = f"; it can express {' or '.join(shown)}" if shown else ""
            raise ConfigError(
                f"model.{name} is {msgspec.json.encode(value).decode()}, which {target} cannot express{fits}"
            )


def refuse_other_heads(config: TransformerConfig, target: str) -> None:
    """Raise ConfigError unless the heads share the width evenly."""
    if {config.heads.key_width, config.heads.value_width} != {config.width // config.num_heads}:
        raise ConfigError(
            f"model.key_width or model.value_width is not width / num_heads ({config.width // config.num_heads}), "
            f"which {target} cannot express"
        )


def has_final_norm(config: TransformerConfig) -> bool:
    return config.norm_order == "pre" if config.final_norm is None else config.final_norm


def with_biases(config: TransformerConfig, weights: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Return the weights with a bias of zeros for each of these names that the model does not have."""
    result = dict(weights)
    for name in names:
        if name not in result:
            like = "target_embedding" if name == "output_bias" else name.removesuffix("bias") + "weight"
            assert name.endswith("bias"), name
            result[name] = torch.zeros(len(weights[like]))
    return result


_WIDTH_COLUMNS = ("embedding", "output", ".project.weight", ".query.weight", ".memory.weight", ".inner.weight")
_WIDTH_ROWS = (".output.weight", ".output.bias", ".outer.weight", ".outer.bias", "norm.weight", "norm.bias")


def reorder_width(weights: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Return the weights of a model that computes the same with the entries of its vectors of width D in another order."""
    result = {}
    for name, tensor in weights.items():
        if name.endswith(_WIDTH_COLUMNS):
            result[name] = tensor[:, order]
        elif name.endswith(_WIDTH_ROWS):
            result[name] = tensor[order]
        else:
            result[name] = tensor
    return {name: tensor.contiguous() for name, tensor in result.items()}


def sines_first(width: int) -> Tensor:
    """Return the order of entries in which the paper's sinusoids have all sines before all cosines."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
