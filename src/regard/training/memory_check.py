"""Checks before the first step that the largest possible batch fits into memory, instead of failing hours later.

On a GPU this batch is tried, with memory reserved for the state of the optimizer. On a CPU, where the system kills a process
that uses too much memory, small batches are tried, and their memory is extrapolated and compared with what is free.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.data.batch_structure import BatchStructure
from regard.data.columns import Dataset
from regard.data.packed_rows import largest_rectangle
from regard.data.packed_shapes import shapes_by_length
from regard.errors import TrainingError
from regard.models.base import Model
from regard.nn.device import autocast
from regard.storage.memory import memory_left

SMALL = 8  # a CPU tries this many times the smallest budget
# Peak memory as a multiple of what the forward pass saves: gradients of activations and chunks of logits are temporary.
TEMPORARY = 1.5
USABLE = 0.9  # of the free memory
SMALLEST, LARGEST = 256, 65_536  # budgets that "auto" chooses from

MakeBatch = Callable[[int], Batch]  # a batch for a token budget
Probe = Callable[[int, int], Batch]  # (length, count): a batch of `count` examples of this length


def longest_sentences(max_length: int, probe: Probe, *, added: int) -> MakeBatch:
    """Return a function that makes batches of the longest sentences, which take the most memory where attention pads.

    `added` is the number of tokens that a batch adds to a sentence.
    """

    def batch_of(budget: int) -> Batch:
        length = min(max_length, max(budget - added, 1))
        return probe(length, max(1, budget // (length + added)))

    return batch_of


def rectangles(dataset: Dataset, structure: BatchStructure, max_length: int, probe: Probe) -> MakeBatch:
    """Return a function that makes batches of twice the largest shape: a captured step keeps its memory while others run."""
    longest = dataset.upto(max_length).longest + max(count.more for count in structure.limits)

    def batch_of(budget: int) -> Batch:
        shapes = shapes_by_length(dataset, structure, max_length, max(budget, longest))
        return largest_rectangle(shapes, lambda length: probe(length, 1), times=2)

    return batch_of


def check_memory(model: Model, budget: int, batch_of: MakeBatch, *, precision: torch.dtype) -> None:
    """Raise TrainingError if a batch of this token budget does not fit into memory, and name a budget that does."""
    fits = _memory_test(model, batch_of, precision)
    if fits(budget):
        return
    best = _largest(fits, below=budget)
    advice = (
        f"train.tokens={best} does (or train.tokens=auto)" if best else "not even a small one does: use a smaller model"
    )
    raise TrainingError(f"a batch of train.tokens={budget} does not fit into memory; {advice}")


def largest_budget(model: Model, batch_of: MakeBatch, *, precision: torch.dtype) -> int:
    """Return the largest token budget that fits into memory."""
    fits = _memory_test(model, batch_of, precision)
    best = LARGEST if fits(LARGEST) else _largest(fits, below=LARGEST)
    if not best:
        raise TrainingError(f"not even a batch of {SMALLEST} tokens fits into memory; use a smaller model")
    return best


def _largest(fits: Callable[[int], bool], *, below: int) -> int:
    """Return the largest budget that fits, to within an eighth; 0 if none does."""
    low, high = 0, below
    while high - low > max(low // 8, SMALLEST // 8):
        middle = (low + high) // 2 if low else max(high // 2, SMALLEST // 8)
        if fits(middle):
            low = middle
        else:
            high = middle
    return low if low >= SMALLEST else 0


def _memory_test(model: Model, batch_of: MakeBatch, precision: torch.dtype) -> Callable[[int], bool]:
    device = next(model.parameters()).device
    if device.type == "cuda":
        return lambda budget: _fits_on_gpu(model, batch_of(budget), precision)
    needed = _cpu_memory(model, batch_of, precision)
    # Two moments of Adam, the gradients of two threads, and their sum.
    free = memory_left() * USABLE - 5 * _size(model)
    return lambda budget: needed(budget) <= free


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


def _cpu_memory(model: Model, batch_of: MakeBatch, precision: torch.dtype) -> Callable[[int], float]:
    """Return a function from a token budget to the bytes it takes on a CPU, extrapolated from small batches."""
    few, many = SMALLEST, SMALL * SMALLEST
    try:
        large, small = (_saved_bytes(model, batch_of(budget), precision) for budget in (many, few))
        each = (large - small) / (many - few)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        each = float("inf")
    return lambda budget: budget * each * TEMPORARY


def _saved_bytes(model: Model, batch: Batch, precision: torch.dtype) -> int:
    """Return the bytes that a forward pass saves for the backward pass, without weights."""
    weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
    # Held here, so that no address is used twice.
    storages: dict[int, torch.UntypedStorage] = {}

    def record(tensor: Tensor) -> None:
        # Nothing is returned: a graph that holds its own output is a cycle that Python cannot collect.
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage

    def restore(saved: object) -> Tensor:
        raise AssertionError("there is no backward pass")

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(record, restore), autocast(torch.device("cpu"), precision):
        model(batch, smoothing=0.1)
    return sum(storage.nbytes() for storage in storages.values())


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out. PyTorch has no error class for this on a CPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
