"""The names of a Transformer's tensors here and in other formats, for both directions.

A format says how it calls the modules of a layer (`modules`) and the tensors outside of layers (`ends`). Where we keep
several projections in one matrix, such as those of queries, keys and values, it lists several names, whose rows follow each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.messages import counted
from regard.models.encoder_decoder import TransformerConfig

Side = Literal["encoder", "decoder"]
Modules = Mapping[str, Sequence[str]]  # our module, such as attention.project, and its names elsewhere
CROSS = ("cross_attention.", "around_cross_attention.")  # modules that only layers of the decoder have
Names = dict[str, tuple[str, ...]]  # our parameter, and the tensors elsewhere whose rows it has

# Tensors whose rows are those of a vocabulary, and the vocabulary.
VOCABULARY_ROWS = {
    "source_embedding": "source",
    "target_embedding": "target",
    "output": "target",
    "output_bias": "target",
}


def parameter_names(
    config: TransformerConfig,
    *,
    modules: Callable[[Side, int], Modules],
    ends: Modules,
    tensor: Callable[[str, str], str],
) -> Names:
    """Return the names of all parameters of a model.

    `modules` names the modules of a layer, `ends` the tensors outside of layers; of both, those are used that the model has.
    `tensor` returns the name of a module's "weight" or "bias".
    """
    depth = config.num_layers if config.decoder_layers is None else config.decoder_layers
    names: Names = {}
    for side, count in (("encoder", config.num_layers), ("decoder", depth)):
        for number in range(count):
            for own, theirs in modules(side, number).items():  # type: ignore[arg-type]
                if side == "encoder" and own.startswith(CROSS):
                    continue
                kinds = ("weight", "bias") if _has_bias(config, own) else ("weight",)
                for kind in kinds:
                    names[f"{side}.{number}.{own}.{kind}"] = tuple(tensor(one, kind) for one in theirs)
    for own in _ends_of(config):
        if own.startswith(("encoder_norm", "decoder_norm")):
            module, kind = own.split(".")
            names[own] = tuple(tensor(one, kind) for one in ends[module])
        else:
            names[own] = tuple(ends[own])
    return names


def _has_bias(config: TransformerConfig, module: str) -> bool:
    if module.endswith("norm"):
        return config.norm == "layer"
    return config.attention_bias or module.startswith("feed_forward")


def _ends_of(config: TransformerConfig) -> list[str]:
    """Return the parameters outside of layers."""
    found = ["target_embedding"]
    found += ["source_embedding"] if config.tie != "all" else []
    found += ["output"] if config.tie == "none" else []
    found += ["output_bias"] if config.output_bias else []
    if config.positions == "learned":
        found += ["source_positions.learned", "target_positions.learned"]
    if config.norm_order == "pre" if config.final_norm is None else config.final_norm:
        kinds = ("weight", "bias") if config.norm == "layer" else ("weight",)
        found += [f"{side}_norm.{kind}" for side in ("encoder", "decoder") for kind in kinds]
    return found


def from_theirs(names: Names, tensors: Mapping[str, Tensor], *, origin: str) -> dict[str, Tensor]:
    """Return our parameters, in float32, made of the tensors that a format names."""
    weights = {}
    for own, theirs in names.items():
        missing = [name for name in theirs if name not in tensors]
        if missing:
            raise ConfigError(f"{origin} has no tensor {missing[0]!r}, which a model of its settings needs")
        parts = [tensors[name].to(torch.float32) for name in theirs]
        if any(part.shape[1:] != parts[0].shape[1:] for part in parts):
            raise ConfigError(f"{origin}: the tensors {', '.join(theirs)} do not fit together")
        weights[own] = torch.cat(parts) if len(parts) > 1 else parts[0].contiguous()
    return weights


def to_theirs(names: Names, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a format, made of our parameters: the inverse of `from_theirs`.

    The parts of a parameter have equally many rows: queries, keys and values of one width.
    """
    tensors: dict[str, Tensor] = {}
    for own, theirs in names.items():
        parts = weights[own].chunk(len(theirs)) if len(theirs) > 1 else [weights[own]]
        assert len({len(part) for part in parts}) == 1, (own, [len(part) for part in parts])
        tensors |= {name: part.contiguous() for name, part in zip(theirs, parts, strict=True)}
    return tensors


def refuse_unused(names: Names, tensors: Mapping[str, Tensor], *, known: Sequence[str] = (), origin: str) -> None:
    """Raise ConfigError if the format has a tensor that no parameter of ours is made of, other than the `known` ones."""
    used = {name for theirs in names.values() for name in theirs}
    for name in tensors:
        if name not in used and name not in known:
            raise ConfigError(
                f"{origin} has the tensor {name[:200]!r}, which has no counterpart here; such models are not imported"
            )


def our_weights(
    names: Names,
    tensors: Mapping[str, Tensor],
    orders: tuple[Sequence[int], Sequence[int]],
    *,
    known: Sequence[str] = (),
    origin: str,
) -> dict[str, Tensor]:
    """Return our parameters, made of the tensors of a format, with the rows of vocabularies in our order.

    `orders` are the ids there of our ids, of source and target. A tensor that no parameter is made of is refused, other than
    the `known` ones, which repeat others or are computed.
    """
    refuse_unused(names, tensors, known=known, origin=origin)
    return reorder_rows(
        from_theirs(names, tensors, origin=origin), dict(zip(("source", "target"), orders, strict=True))
    )


# A logit that exp() makes 0, for columns that a model does not have. It is finite, so that losses and gradients are.
NEVER = -1e4


def reorder_rows(weights: Mapping[str, Tensor], orders: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return the parameters with the rows of each vocabulary in another order: row i is the old row orders[side][i].

    A row of -1 is new: a vector of zeros, with a bias that keeps its symbol from being output.
    """
    result = dict(weights)
    for name, side in VOCABULARY_ROWS.items():
        if name in result:
            order = torch.tensor(orders[side])
            symbols = int((order >= 0).sum())
            if result[name].dim() == 0 or len(result[name]) != symbols:
                raise ConfigError(
                    f"the {side} vocabulary has {counted(symbols, 'symbol')}, but {name} has the shape "
                    f"{list(result[name].shape)}; they do not belong together"
                )
            rows = result[name][order.clamp(min=0)]
            rows[order < 0] = NEVER if name == "output_bias" else 0.0
            result[name] = rows
    return result
