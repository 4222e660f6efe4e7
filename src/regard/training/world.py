"""The processes that train one model together, and what they tell each other.

`torchrun` starts them and says who is who in the environment; a process started by itself is a world of one. Words travel as
JSON in tensors of bytes, never as objects that run code when they are read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from regard.errors import ConfigError, TrainingError

CPU = torch.device("cpu")
PATIENCE = timedelta(minutes=30)  # that a process waits for the others: validation and tokenizers take their time


@dataclass(frozen=True)
class World:
    """This process among all."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def writes(self) -> bool:
        """Whether this is the one process that writes, shows and logs."""
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Each number summed over all processes."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        result: list[float] = total.tolist()
        return result

    def any(self, yes: bool) -> bool:
        """Whether it is so for any process."""
        return self.sum(float(yes))[0] > 0

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, summed over all processes in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, words: Any) -> list[Any]:
        """What every process says, by rank. Anything that JSON can hold."""
        if self.size == 1:
            return [words]
        mine = torch.frombuffer(bytearray(json.dumps(words).encode()), dtype=torch.uint8).to(self.device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([mine.numel()], device=self.device))
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8, device=self.device)
        padded[: mine.numel()] = mine
        everyone = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(everyone, padded)
        return [json.loads(bytes(one[: int(n)].tolist())) for one, n in zip(everyone, sizes, strict=True)]

    def wait(self) -> None:
        """Until all processes are here."""
        self.sum(0.0)


ALONE = World()


def launched() -> tuple[int, int, int]:
    """Rank, number of processes, and rank on this machine, as torchrun says; (0, 1, 0) without it."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(name in os.environ for name in names):
        return 0, 1, 0
    rank, size, local_rank = (int(os.environ[name]) for name in names)
    return rank, size, local_rank


def own_device(name: str) -> str:
    """The device that this process should ask for: each process of a machine has a GPU of its own."""
    _, size, local_rank = launched()
    if size > 1 and name in ("auto", "cuda") and torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"process {local_rank} of this machine has no GPU of its own: there are {torch.cuda.device_count()}; "
                "start as many processes, or set train.device=cpu"
            )
        return f"cuda:{local_rank}"
    return name


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """The world of this process, for as long as the context lasts."""
    rank, size, _ = launched()
    if size == 1:
        yield World(device=device)
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=_meeting_place(), rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield World(rank, size, device)
        if backend == "gloo":  # its threads outlive the group (PyTorch 2.13): let them put down what they hold
            dist.barrier()
    except RuntimeError as error:
        if not _broke_off(error):
            raise
        raise TrainingError("another process of this run has ended; its own message says why") from error
    finally:
        dist.destroy_process_group()


def _meeting_place() -> Any:
    """Where processes tell each other their addresses; another one after each restart.

    Under torchrun the place outlives the processes (PyTorch 2.13), and who is started again would call the dead.
    """
    store, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]


def _broke_off(error: RuntimeError) -> bool:
    """Whether the others are gone: gloo has no error class of its own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()
