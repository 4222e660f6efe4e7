"""The whole training step recorded once as a CUDA graph and played again for every batch, so that Python is out of the way.

Batches have one shape (`data.packing`) and are copied into one place; learning rate, dropout seed and the number of tokens
are numbers on the device. The first few steps run as they are, because libraries set themselves up in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard import kernels
from regard.config import TrainConfig
from regard.data.packing import PackedBatch, Shape, unpack
from regard.training.spread import Spread
from regard.training.step import Optimizer, change_weights

STEPS_BEFORE = 3


class RecordedStep:
    """`training_step` for packed batches; records itself when it has run a few times."""

    def __init__(
        self,
        spread: Spread,
        optimizer: Optimizer,
        config: TrainConfig,
        shape: Shape,
        *,
        precision: torch.dtype,
        note: Callable[[str], None],
    ) -> None:
        self.spread, self.optimizer, self.config, self.precision = spread, optimizer, config, precision
        self.note = note
        self.shape = shape
        self.device = next(spread.model.parameters()).device
        self.rows = torch.zeros(config.accumulate, sum(shape.parts), dtype=torch.int32, device=self.device)
        self.stream = torch.cuda.Stream(self.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.numbers = torch.zeros(3, device=self.device)
        alone = spread.world.size == 1  # a recording does not hold what processes tell each other
        self.steps_left = STEPS_BEFORE if config.graph and alone else -1  # until the recording; below zero: never

    def __call__(self, batches: Sequence[PackedBatch], *, rate: float) -> Tensor:
        for row, batch in zip(self.rows, batches, strict=True):
            row.copy_(batch.row, non_blocking=True)
        self.optimizer.rate.fill_(rate)
        if self.graph is None and self.steps_left == 0:
            self._record()
        self.steps_left -= 1
        if self.graph is not None:
            self.graph.replay()
        else:
            self._run()
        return self.numbers.clone()

    def _run(self) -> None:
        assert kernels.usable(self.rows), "only our kernels leave dummy tokens out of the loss"
        batches = [unpack(row, self.shape, self.shape.target_tokens) for row in self.rows]
        tokens = self.rows[:, -1].sum().float()
        self.numbers.copy_(change_weights(self.spread, self.optimizer, batches, tokens, self.config, self.precision))

    def _record(self) -> None:
        started = time.monotonic()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads go on with their own calls meanwhile: batches are being pinned, checkpoints copied.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._run()
        except RuntimeError as error:
            self.optimizer.forget_gradients()
            self.spread.model.noise.rewind()
            self.note(f"this step cannot be recorded as a CUDA graph, so training goes on without: {error}")
            return
        self.graph = graph
        self.note(f"the step is recorded as one CUDA graph ({time.monotonic() - started:.1f} s)")
