"""The processes that train one model together, and their communication.

`torchrun` starts them and sets their ranks in the environment. A process that was started without it is a world of one.
Messages are JSON in tensors of bytes, never objects that run code when they are read.
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
# How long a process waits for the others: validation and the training of tokenizers take long.
TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class World:
    """One process among all: its rank, their number, and its device."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes files and reports events."""
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Return each number summed over all processes."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        result: list[float] = total.tolist()
        return result

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return self.sum(float(flag))[0] > 0

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum the tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, message: Any) -> list[Any]:
        """Return the messages of all processes, by rank. A message is any value that JSON can hold."""
        if self.size == 1:
            return [message]
        mine = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8).to(self.device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([mine.numel()], device=self.device))
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8, device=self.device)
        padded[: mine.numel()] = mine
        everyone = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(everyone, padded)
        return [json.loads(bytes(one[: int(n)].tolist())) for one, n in zip(everyone, sizes, strict=True)]

    def wait(self) -> None:
        """Wait until all processes have called this."""
        self.sum(0.0)


ALONE = World()


def launched() -> tuple[int, int, int]:
    """Return rank, number of processes, and rank on this machine, as torchrun sets them; (0, 1, 0) without it."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(name in os.environ for name in names):
        return 0, 1, 0
    rank, size, local_rank = (int(os.environ[name]) for name in names)
    return rank, size, local_rank


def own_device(name: str) -> str:
    """Return the name of the device for this process: each process of a machine has its own GPU."""
    _, size, local_rank = launched()
    if size > 1 and name in ("auto", "cuda") and torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"process {local_rank} has no GPU: this machine has {torch.cuda.device_count()}; "
                "start at most one process per GPU, or set train.device=cpu"
            )
        return f"cuda:{local_rank}"
    return name


@contextmanager
def join(device: torch.device) -> Iterator[World]:
    """Connect to the other processes within this context, and yield the world of this one."""
    rank, size, _ = launched()
    if size == 1:
        yield World(device=device)
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=_rendezvous_store(), rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield World(rank, size, device)
        # The threads of gloo outlive the group (PyTorch 2.13); a barrier lets them release what they hold.
        if backend == "gloo":
            dist.barrier()
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        raise TrainingError("another process of this run has ended; its own message gives the reason") from error
    finally:
        dist.destroy_process_group()


def _rendezvous_store() -> Any:
    """Return the store in which processes find each other's addresses, a new one after each restart.

    Under torchrun the store outlives the processes (PyTorch 2.13). Restarted ones would connect to addresses of dead ones.
    """
    store, _, _ = next(dist.rendezvous("env://", timeout=TIMEOUT))  # type: ignore[attr-defined]
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]


def _is_lost_connection(error: RuntimeError) -> bool:
    """Return whether another process has ended. Gloo has no error class of its own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()
