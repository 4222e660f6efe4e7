"""What the torch peers share: padded batches and the training step, timed.

B sentences, S source positions, T target positions, V vocabulary.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workload import BOS, EOS, PAD, Sentences, Setup

INIT_STD = 0.02


@dataclass(frozen=True)
class PaddedBatch:
    """Ids as [B, S] and [B, T]."""

    source: Tensor  # words, end token, padding
    target_in: Tensor  # begin token, words, padding
    target_out: Tensor  # words, end token, padding
    source_lengths: Tensor  # on the host


def pad(rows: list[list[int]], device: str) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=device)


def pad_batch(batch: Sentences, device: str) -> PaddedBatch:
    return PaddedBatch(
        pad([[*ids, EOS] for ids in batch.sources], device),
        pad([[BOS, *ids] for ids in batch.targets], device),
        pad([[*ids, EOS] for ids in batch.targets], device),
        torch.tensor([len(ids) + 1 for ids in batch.sources]),
    )


def configure_torch(setup: Setup) -> None:
    """Threads, seed and the kernels to choose from: the same for every system that runs on torch."""
    torch.set_num_threads(setup.threads)
    torch.manual_seed(setup.seed)
    if setup.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
        # cuDNN's attention can return NaN gradients under a mask (pytorch #196678), so no system uses it.
        torch.backends.cuda.enable_cudnn_sdp(False)


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def autocast(setup: Setup) -> AbstractContextManager[None]:
    if setup.precision == "fp32":
        return nullcontext()
    return torch.autocast(torch.device(setup.device).type, dtype=torch.bfloat16)


def draw_weights(model: nn.Module) -> None:
    """Normal matrices, zero biases, unit norms."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and parameter.requires_grad:
            nn.init.normal_(parameter, std=INIT_STD)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trained parameters; a shared matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


class PaddedTrainer(ABC):
    """A peer on padded batches; subclasses define how to build the model and compute logits."""

    model: nn.Module

    def __init__(self, *, compiled: bool = False) -> None:
        self.compiled = compiled

    @abstractmethod
    def build(self, setup: Setup) -> nn.Module: ...

    @abstractmethod
    def logits(self, batch: PaddedBatch) -> Tensor: ...

    def prepare(self, setup: Setup, job: str) -> int:
        assert job == "train", job
        configure_torch(setup)
        self.setup = setup
        self.model = self.build(setup).to(setup.device).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=setup.lr, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.timed_loss: Callable[[PaddedBatch], Tensor] = torch.compile(self.loss) if self.compiled else self.loss
        return count_parameters(self.model)

    def collate(self, batches: list[Sentences]) -> list[PaddedBatch]:
        return [pad_batch(batch, self.setup.device) for batch in batches]

    def loss(self, batch: PaddedBatch) -> Tensor:
        """Return the mean smoothed cross-entropy over the real target tokens."""
        logits_BTV = self.logits(batch)
        return F.cross_entropy(
            logits_BTV.flatten(0, 1),
            batch.target_out.flatten(),
            ignore_index=PAD,
            label_smoothing=self.setup.smoothing,
        )

    def step(self, batch: PaddedBatch) -> Tensor:
        self.optimizer.zero_grad()
        with autocast(self.setup):
            loss = self.timed_loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), self.setup.clip)
        self.optimizer.step()
        return loss.detach()

    def train_round(self, batches: list[PaddedBatch]) -> tuple[float, float]:
        synchronize(self.setup.device)
        began = time.perf_counter()
        losses = [self.step(batch) for batch in batches]
        synchronize(self.setup.device)
        seconds = time.perf_counter() - began
        return seconds, torch.stack(losses).mean().item()
