"""The state of an optimizer and a scheduler that the caller made, as tensors and JSON and back. No code is stored.

Any PyTorch optimizer and scheduler can be stored: `state_dict()` gives tensors, numbers, text, and lists, tuples and
dicts of them. A function in it is left out, as PyTorch's schedulers do: the program that resumes the run makes it again.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from regard.errors import CheckpointError, ConfigError
from regard.run.torch_tensors import TYPES

FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)


class OptimizerState:
    """What a checkpoint holds of an optimizer and its scheduler. Tensors are named by the parameters they belong to."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler | None) -> None:
        self.optimizer, self.scheduler = optimizer, scheduler
        self.names = _parameter_names(model, optimizer)
        _refuse_closure(optimizer)
        self.pack()  # refuses what a checkpoint cannot hold before the first step

    def pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the state as JSON that names tensors, and these tensors."""
        state, tensors = self.optimizer.state_dict(), dict[str, Tensor]()
        of_parameters = {self.names[key]: value for key, value in state["state"].items()}
        packed = {
            "kind": type(self.optimizer).__name__,
            "state": pack(of_parameters, "optimizer", tensors),
            "param_groups": pack(state["param_groups"], "param_groups", tensors),
            "scheduler_kind": type(self.scheduler).__name__,
            "scheduler": pack(self.scheduler.state_dict() if self.scheduler else None, "scheduler", tensors),
        }
        return packed, tensors

    def restore(self, packed: Mapping[str, Any], tensors: Mapping[str, Tensor], *, origin: str) -> None:
        """Load a state that `pack` returned."""
        kinds = [type(self.optimizer).__name__, type(self.scheduler).__name__]
        if [packed.get("kind"), packed.get("scheduler_kind")] != kinds:
            raise CheckpointError(
                f"{origin} holds the state of {packed.get('kind')} with the scheduler {packed.get('scheduler_kind')}, "
                f"not of {kinds[0]} with {kinds[1]}; resume it with the ones it was trained with"
            )
        numbers = {name: number for number, name in self.names.items()}
        try:
            of_parameters = unpack(packed["state"], tensors)
            state = {numbers[name]: value for name, value in of_parameters.items()}
            groups = unpack(packed["param_groups"], tensors)
            self.optimizer.load_state_dict({"state": state, "param_groups": groups})
            if self.scheduler is not None:
                self.scheduler.load_state_dict(unpack(packed["scheduler"], tensors))
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{origin} does not fit this optimizer: {error}") from error


def pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON. A tensor is replaced by its path, under which it is added to `tensors`."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case Tensor() if value.dtype in TYPES:
            tensors[path] = value
            return {"tensor": path}
        case list():
            return [pack(one, f"{path}/{place}", tensors) for place, one in enumerate(value)]
        case tuple():
            return {"tuple": pack(list(value), path, tensors)}
        case dict() if all(isinstance(key, int | str) for key in value):
            entries = {key: one for key, one in value.items() if not isinstance(one, FUNCTIONS)}
            pairs = [[key, pack(one, f"{path}/{key}", tensors)] for key, one in entries.items()]
            return {"counter" if isinstance(value, Counter) else "dict": pairs}
    raise ConfigError(
        f"a checkpoint cannot hold {path}, a {type(value).__name__}; the state of an optimizer or scheduler may "
        "consist of tensors, numbers, text, and lists, tuples and dicts of them"
    )


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that `pack` was given. Raise ValueError or LookupError for what it cannot have written."""
    match packed:
        case None | bool() | int() | float() | str():
            return packed
        case list():
            return [unpack(one, tensors) for one in packed]
        case {"float": str(text)}:
            return float(text)
        case {"tensor": str(path)}:
            return tensors[path]
        case {"tuple": list(items)}:
            return tuple(unpack(one, tensors) for one in items)
        case {"dict": list(pairs)}:
            return {_key(key): unpack(one, tensors) for key, one in pairs}
        case {"counter": list(pairs)}:
            return Counter({_key(key): unpack(one, tensors) for key, one in pairs})
    raise ValueError(f"{str(packed)[:80]} is not part of a state")


def _key(key: Any) -> int | str:
    if not isinstance(key, int | str):
        raise ValueError(f"{str(key)[:80]} is not a key of a state")
    return key


def _parameter_names(model: nn.Module, optimizer: Optimizer) -> dict[int, str]:
    """Return the name of each of the optimizer's parameters, by its number in `state_dict()`."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        if id(parameter) not in names:
            raise ConfigError(
                f"the optimizer has a parameter of shape {list(parameter.shape)} that is not one of the model; "
                "make it from model.parameters()"
            )
    return {number: names[id(parameter)] for number, parameter in enumerate(parameters)}


def _refuse_closure(optimizer: Optimizer) -> None:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{type(optimizer).__name__} computes the loss several times per step (closure), which Trainer does not do; "
            "use an optimizer whose step() takes no closure, such as torch.optim.AdamW"
        )
