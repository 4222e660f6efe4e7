"""Whether the largest batch that can come fits into memory: asked before the first step, not hours after it.

On a GPU that batch is tried, with room kept for what the optimizer will remember. On a CPU, where too much memory ends in
the process being killed, small ones are, and what they keep is compared with what the machine has left.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.data.columns import Dataset
from regard.data.packed_shapes import shapes_by_length
from regard.data.packing import largest_rectangle
from regard.errors import TrainingError
from regard.models.base import Model
from regard.nn.device import autocast
from regard.run.machine import memory_left

SMALL = 8  # a CPU tries this many times the smallest budget
PASSING = 1.5  # what is held for a moment, beside what is kept: gradients of activations, chunks of logits
SPARE = 0.9  # of the memory that is left may be planned with
SMALLEST, LARGEST = 256, 65_536  # budgets that "auto" chooses from

MakeBatch = Callable[[int], Batch]  # a batch of so many tokens
Probe = Callable[[int, int], Batch]  # a batch of examples of a length, so many of them


def longest_sentences(max_length: int, probe: Probe) -> MakeBatch:
    """Return a maker of batches of the longest sentences: with padded attention, the most that a token budget can cost."""

    def batch_of(budget: int) -> Batch:
        length = min(max_length, max(budget - 1, 1))
        return probe(length, max(1, budget // (length + 1)))

    return batch_of


def rectangles(pairs: Dataset, max_length: int, probe: Probe) -> MakeBatch:
    """Return a maker of batches of twice the largest shape: captured steps keep their memory while another runs."""
    longest = pairs.upto(max_length).longest + 1

    def batch_of(budget: int) -> Batch:
        shapes = shapes_by_length(pairs, max_length, max(budget, longest))
        return largest_rectangle(shapes, lambda length: probe(length, 1), times=2)

    return batch_of


def check_memory(model: Model, budget: int, batch_of: MakeBatch, *, precision: torch.dtype) -> None:
    """Refuses a token budget that does not fit, and says which one does."""
    fits = _trial(model, batch_of, precision)
    if fits(budget):
        return
    best = _largest(fits, below=budget)
    advice = (
        f"train.tokens={best} does (or train.tokens=auto)" if best else "not even a small one does: use a smaller model"
    )
    raise TrainingError(f"a batch of train.tokens={budget} does not fit into memory; {advice}")


def largest_budget(model: Model, batch_of: MakeBatch, *, precision: torch.dtype) -> int:
    """The largest token budget that fits."""
    fits = _trial(model, batch_of, precision)
    best = LARGEST if fits(LARGEST) else _largest(fits, below=LARGEST)
    if not best:
        raise TrainingError(f"not even a batch of {SMALLEST} tokens fits into memory; use a smaller model")
    return best


def _largest(fits: Callable[[int], bool], *, below: int) -> int:
    """The largest budget that fits, to an eighth of it; 0 if none does."""
    low, high = 0, below
    while high - low > max(low // 8, SMALLEST // 8):
        middle = (low + high) // 2 if low else max(high // 2, SMALLEST // 8)
        if fits(middle):
            low = middle
        else:
            high = middle
    return low if low >= SMALLEST else 0


def _trial(model: Model, batch_of: MakeBatch, precision: torch.dtype) -> Callable[[int], bool]:
    device = next(model.parameters()).device
    if device.type == "cuda":
        return lambda budget: _fits_on_gpu(model, batch_of(budget), precision)
    growth = _growth(model, batch_of, precision)
    left = memory_left() * SPARE - 5 * _size(model)  # two moments, the gradients of two threads, and their sum
    return lambda budget: growth(budget) <= left


def _size(model: Model) -> int:
    return sum(one.numel() * one.element_size() for one in model.parameters())


def _fits_on_gpu(model: Model, batch: Batch, precision: torch.dtype) -> bool:
    device = next(model.parameters()).device
    try:
        moments = torch.empty(2 * _size(model), dtype=torch.uint8, device=device)
        model.train()
        with autocast(device, precision):
            loss = model(batch.to(device), smoothing=0.1)
        loss.backward()
        torch.cuda.synchronize(device)
        del moments
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()


def _growth(model: Model, batch_of: MakeBatch, precision: torch.dtype) -> Callable[[int], float]:
    """Bytes that a batch of so many tokens takes on a CPU, from what small ones keep for their backward pass."""
    few, many = SMALLEST, SMALL * SMALLEST
    try:
        each = (_kept(model, batch_of(many), precision) - _kept(model, batch_of(few), precision)) / (many - few)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        each = float("inf")
    return lambda budget: budget * each * PASSING


def _kept(model: Model, batch: Batch, precision: torch.dtype) -> int:
    """Bytes that a forward pass keeps for the backward pass, weights not counted."""
    weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}  # held, so that no address is used twice

    def remember(tensor: Tensor) -> None:
        # Nothing is returned: a graph that holds its own output is a cycle that Python cannot collect.
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage

    def never(saved: object) -> Tensor:
        raise AssertionError("there is no backward pass")

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(remember, never), autocast(torch.device("cpu"), precision):
        model(batch, smoothing=0.1)
    return sum(storage.nbytes() for storage in storages.values())


def out_of_memory(error: BaseException) -> bool:
    """Whether this is what PyTorch says when memory is used up; on a CPU it has no error class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
