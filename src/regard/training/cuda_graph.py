"""The training step as a CUDA graph: captured once, replayed for every batch, so that Python does not slow it down.

A graph reads its batch from fixed memory, into which each batch is copied, and learning rate, dropout seed and number of
tokens from the device. Each batch shape (`data.packing`) has its own graph. The first few steps of a shape run uncaptured,
because libraries initialize themselves in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from regard import kernels
from regard.config import TrainConfig
from regard.data.packed_rows import PackedBatch, unpack
from regard.data.packed_shapes import PackedShape
from regard.training.data_parallel import DistributedModel
from regard.training.optimizers import CapturableOptimizer
from regard.training.schedules import set_rate
from regard.training.step import change_weights

STEPS_BEFORE = 3  # uncaptured, of each shape


@dataclass
class CapturedStep:
    """The memory for batches of some shapes, and the graph of a step with them."""

    rows: list[Tensor]
    steps: int = 0  # taken so far
    graph: torch.cuda.CUDAGraph | None = None


class CudaGraphStep:
    """`training_step` for packed batches, captured after a few steps.

    A graph repeats the optimizer's options as they were when it was captured, except for the learning rate. Set `capture`
    to False if anything changes the others.
    """

    def __init__(
        self,
        distributed: DistributedModel,
        optimizer: Optimizer,
        config: TrainConfig,
        *,
        precision: torch.dtype,
        note: Callable[[str], None],
        capture: bool = True,
    ) -> None:
        self.distributed, self.optimizer, self.config, self.precision = distributed, optimizer, config, precision
        self.note = note
        self.device = next(distributed.model.parameters()).device
        self.stream = torch.cuda.Stream(self.device)
        # Graphs are replayed one at a time, so they share their memory.
        self.pool = torch.cuda.graph_pool_handle()
        self.result = torch.zeros(4, device=self.device)
        # Communication between processes is not captured.
        single = distributed.world.size == 1
        self.captures = capture and config.graph and single and isinstance(optimizer, CapturableOptimizer)
        self.captured: dict[tuple[PackedShape, ...], CapturedStep] = {}

    def __call__(self, batches: Sequence[PackedBatch], *, rate: float | None = None) -> Tensor:
        shapes = tuple(batch.shape for batch in batches)
        if shapes not in self.captured:
            self.captured[shapes] = CapturedStep([torch.empty_like(batch.row) for batch in batches])
        step = self.captured[shapes]
        for row, batch in zip(step.rows, batches, strict=True):
            row.copy_(batch.row, non_blocking=True)
        if rate is not None:
            set_rate(self.optimizer, rate)
        if step.steps == STEPS_BEFORE and self.captures:
            self._capture(step, shapes)
        step.steps += 1
        if step.graph is not None:
            step.graph.replay()
        else:
            self._run(step.rows, shapes)
        return self.result.clone()

    def _run(self, rows: list[Tensor], shapes: Sequence[PackedShape]) -> None:
        assert kernels.usable(rows[0]), "only our kernels need no lengths on the host"
        batches = [unpack(row, shape, shape.tokens("labels")) for row, shape in zip(rows, shapes, strict=True)]
        tokens = torch.cat([row[-1:] for row in rows]).sum().float()
        self.result.copy_(
            change_weights(self.distributed, self.optimizer, batches, tokens, self.config, self.precision)
        )

    def _capture(self, step: CapturedStep, shapes: Sequence[PackedShape]) -> None:
        started = time.monotonic()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads call CUDA meanwhile, to pin batches and to copy checkpoints.
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                self._run(step.rows, shapes)
        except RuntimeError as error:
            self.distributed.model.zero_grad()
            self.distributed.model.noise.rewind()
            self.note(f"a step of this shape cannot be captured as a CUDA graph, so it runs uncaptured: {error}")
            return
        first = not any(other.graph for other in self.captured.values())
        step.graph = graph
        if first:
            self.note(f"the step is captured as one CUDA graph ({time.monotonic() - started:.1f} s)")
