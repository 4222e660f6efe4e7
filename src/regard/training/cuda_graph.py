"""The whole training step recorded as a CUDA graph and played again for every batch, so that Python is out of the way.

Batches of a shape (`data.packing`) are copied into one place; learning rate, dropout seed and the number of tokens are
numbers on the device. Each shape has a recording of its own. The first few steps with it run as they are, because libraries
set themselves up in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard import kernels
from regard.config import TrainConfig
from regard.data.packed_shapes import PackedShape
from regard.data.packing import PackedBatch, unpack
from regard.training.data_parallel import DistributedModel
from regard.training.step import Optimizer, change_weights

STEPS_BEFORE = 3


@dataclass
class CapturedStep:
    """The place for batches of some shapes, and the step with them."""

    rows: list[Tensor]
    steps: int = 0  # taken
    graph: torch.cuda.CUDAGraph | None = None


class CudaGraphStep:
    """`training_step` for packed batches; records itself when it has run a few times."""

    def __init__(
        self,
        distributed: DistributedModel,
        optimizer: Optimizer,
        config: TrainConfig,
        *,
        precision: torch.dtype,
        note: Callable[[str], None],
    ) -> None:
        self.distributed, self.optimizer, self.config, self.precision = distributed, optimizer, config, precision
        self.note = note
        self.device = next(distributed.model.parameters()).device
        self.stream = torch.cuda.Stream(self.device)
        self.pool = torch.cuda.graph_pool_handle()  # no two recordings are played at a time, so they share their memory
        self.numbers = torch.zeros(3, device=self.device)
        alone = distributed.world.size == 1  # a recording does not hold what processes tell each other
        self.records = config.graph and alone
        self.recordings: dict[tuple[PackedShape, ...], CapturedStep] = {}

    def __call__(self, batches: Sequence[PackedBatch], *, rate: float) -> Tensor:
        shapes = tuple(batch.shape for batch in batches)
        if shapes not in self.recordings:
            self.recordings[shapes] = CapturedStep([torch.empty_like(batch.row) for batch in batches])
        found = self.recordings[shapes]
        for row, batch in zip(found.rows, batches, strict=True):
            row.copy_(batch.row, non_blocking=True)
        self.optimizer.rate.fill_(rate)
        if found.steps == STEPS_BEFORE and self.records:
            self._record(found, shapes)
        found.steps += 1
        if found.graph is not None:
            found.graph.replay()
        else:
            self._run(found.rows, shapes)
        return self.numbers.clone()

    def _run(self, rows: list[Tensor], shapes: Sequence[PackedShape]) -> None:
        assert kernels.usable(rows[0]), "only our kernels leave dummy tokens out of the loss"
        batches = [unpack(row, shape, shape.target_tokens) for row, shape in zip(rows, shapes, strict=True)]
        tokens = torch.cat([row[-1:] for row in rows]).sum().float()
        self.numbers.copy_(
            change_weights(self.distributed, self.optimizer, batches, tokens, self.config, self.precision)
        )

    def _record(self, found: CapturedStep, shapes: Sequence[PackedShape]) -> None:
        started = time.monotonic()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads go on with their own calls meanwhile: batches are being pinned, checkpoints copied.
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                self._run(found.rows, shapes)
        except RuntimeError as error:
            self.optimizer.forget_gradients()
            self.distributed.model.noise.rewind()
            self.note(f"a step of this shape cannot be recorded as a CUDA graph, so it is run as it is: {error}")
            return
        first = not any(recording.graph for recording in self.recordings.values())
        found.graph = graph
        if first:
            self.note(f"the step is recorded as one CUDA graph ({time.monotonic() - started:.1f} s)")
