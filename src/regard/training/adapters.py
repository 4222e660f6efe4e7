"""Which parameters are trained (`train.freeze`, `train.adapt`), and low-rank adapters (LoRA, Hu et al. 2022).

An adapter trains W = W₀ + (alpha / rank) · up · down in place of W, with W₀ fixed. The model always holds W itself, so it
needs to know nothing of adapters: the forward and backward passes, validation, checkpoints and the final weights are those
of a plain model. The gradients of up and down follow from that of W by the chain rule, after the backward pass. This takes
the time of training W, and less memory: there are no moments of W. A weight that holds several matrices (queries, keys
and values) has one adapter for each.

Shapes: F width out, D width in, R rank, P matrices in one weight.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import TrainConfig
from regard.errors import CheckpointError, ConfigError, did_you_mean
from regard.nn.linear import Linear

# The matrices of layers are called weight, weight_ih_l0 or similar, or as in a paper by one capital letter.
MATRIX = re.compile(r"(^|\.)(weight\w*|[A-Z])$")
BIAS = re.compile(r"(^|[._])bias\w*$")
PREFIX = "lora/"  # of the names in a checkpoint


def choose_parameters(model: nn.Module, config: TrainConfig, *, new: Collection[str] = ()) -> LowRankAdapters | None:
    """Freeze what the recipe does not train. Return the adapters if it trains some.

    `new` are parameters that do not come from another run; they are trained whatever `train.adapt` says.
    """
    parameters = dict(model.named_parameters())
    frozen = _named(parameters, config.freeze)
    adapted = {name for name, one in parameters.items() if _is_adapted(name, one, config) and name not in new}
    if config.adapt != "none" and not adapted - frozen:
        what = "matrices of layers" if config.adapt == "lora" else "biases"
        raise ConfigError(
            f"train.adapt is {config.adapt}, but no {what} of this model are left to train; use adapt=none"
        )
    trained = (set(parameters) if config.adapt == "none" else adapted | set(new)) - frozen
    if not trained:
        raise ConfigError("train.freeze names every parameter of this model; leave some to train")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in trained)
    if config.adapt != "lora":
        return None
    return LowRankAdapters(
        model, sorted(adapted - frozen), rank=config.lora_rank, alpha=config.lora_alpha, seed=config.seed
    )


def _named(parameters: Collection[str], prefixes: Collection[str]) -> set[str]:
    """Return the parameters with these names, or with names that begin with one of them and a dot."""
    found: set[str] = set()
    for prefix in prefixes:
        own = {name for name in parameters if name == prefix or name.startswith(f"{prefix}.")}
        if not own:
            parts = [name.split(".") for name in parameters]
            known = {".".join(part[:count]) for part in parts for count in range(1, prefix.count(".") + 2)}
            raise ConfigError(
                f"train.freeze has {prefix!r}, which no parameter of this model begins with; {did_you_mean(prefix, known)}"
            )
        found |= own
    return found


def _is_adapted(name: str, parameter: Tensor, config: TrainConfig) -> bool:
    if config.adapt == "lora":
        return parameter.dim() == 2 and MATRIX.search(name) is not None
    return config.adapt == "bias" and BIAS.search(name) is not None


def trained_parameters(model: nn.Module, adapters: LowRankAdapters | None = None) -> dict[str, nn.Parameter]:
    """Return what an optimizer updates, by name: parameters of the model that are not frozen, or their adapters."""
    own = {name: one for name, one in model.named_parameters() if one.requires_grad}
    if adapters is None:
        return own
    return {name: one for name, one in own.items() if name not in adapters.adapters} | adapters.parameters()


class Adapter(NamedTuple):
    """The adapter of one weight."""

    weight: nn.Parameter  # W: [F, D]
    base: Tensor  # W₀
    up: nn.Parameter  # [F, R], zero at first
    down: nn.Parameter  # [P * R, D]
    heights: list[int]  # rows of each matrix in W

    def parts(self, of_weight: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the rows of a tensor [F, D] that belong to each matrix, with its part of up and down."""
        rank = self.up.size(1)
        yield from zip(of_weight.split(self.heights), self.up.split(self.heights), self.down.split(rank), strict=True)


class LowRankAdapters:
    """The adapters of some weights of a model. No module holds them."""

    def __init__(self, model: nn.Module, names: list[str], *, rank: int, alpha: float, seed: int) -> None:
        self.scale = alpha / rank
        parameters = dict(model.named_parameters())
        heights = {module.weight: module.widths_out for module in model.modules() if isinstance(module, Linear)}
        generator = torch.Generator().manual_seed(seed)
        self.adapters: dict[str, Adapter] = {}
        for name in names:
            weight = parameters[name]
            own, (height, width) = heights.get(weight, [weight.size(0)]), weight.shape
            most = min(rank, width, *own)
            # As nn.Linear does, so that down · x is as large as x whatever the width.
            bound = width**-0.5
            down = torch.empty(len(own) * most, width).uniform_(-bound, bound, generator=generator)
            self.adapters[name] = Adapter(
                weight,
                weight.detach().clone(),
                nn.Parameter(weight.new_zeros(height, most)),
                nn.Parameter(down.to(weight)),
                own,
            )

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return what is trained in place of the weights, by name."""
        return {f"{name}.{part}": getattr(one, part) for name, one in self.adapters.items() for part in ("up", "down")}

    @torch.no_grad()
    def pass_back(self) -> None:
        """Turn the gradients of the weights into those of the adapters."""
        for one in self.adapters.values():
            gradient = one.weight.grad
            one.up.grad = one.down.grad = one.weight.grad = None
            if gradient is None:
                continue
            parts = list(one.parts(gradient))
            one.up.grad = torch.cat([slope @ down.t() for slope, _, down in parts]).mul_(self.scale)
            one.down.grad = torch.cat([up.t() @ slope for slope, up, _ in parts]).mul_(self.scale)

    @torch.no_grad()
    def merge(self) -> None:
        """Write W₀ + scale · up · down into the model."""
        for one in self.adapters.values():
            for (base, up, down), weight in zip(
                one.parts(one.base), one.weight.detach().split(one.heights), strict=True
            ):
                torch.addmm(base, up, down, alpha=self.scale, out=weight)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint holds."""
        bases = {f"{name}.base": one.base for name, one in self.adapters.items()}
        return {PREFIX + name: tensor.detach() for name, tensor in {**bases, **self.parameters()}.items()}

    @torch.no_grad()
    def restore(self, training: Mapping[str, Tensor], *, origin: str) -> None:
        """Copy what `state` returned. The weights of the model stay: a checkpoint holds them, too."""
        for name, tensor in self.state().items():
            if name not in training or training[name].shape != tensor.shape:
                raise CheckpointError(f"{origin} does not fit these adapters: {name!r} is missing or of another shape")
            tensor.copy_(training[name])
