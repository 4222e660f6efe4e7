"""Prefetching of packed batches: a thread prepares the next blocks of rows while the device works on the current one.

Another thread draws the examples of the next epoch while those of the current one are used, so that the device does not wait
where every epoch has new examples.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import replace

from regard.data.batch_sampler import Position
from regard.data.columns import Dataset
from regard.data.packed_rows import PackedBatch, PackedRows
from regard.data.packing import PackedLoader
from regard.training.world import World

AHEAD = 2  # blocks


class EpochsAhead:
    """The examples of each epoch, drawn while those of the epoch before are used."""

    def __init__(self, dataset_of: Callable[[int], Dataset]) -> None:
        self.dataset_of = dataset_of
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="epochs")
        self.drawn: dict[int, Future[Dataset]] = {}

    def __call__(self, epoch: int) -> Dataset:
        both = (epoch, epoch + 1)
        self.drawn = {one: self.drawn.get(one) or self.executor.submit(self.dataset_of, one) for one in both}
        return self.drawn[epoch].result()

    def close(self) -> None:
        """Wait for the examples that are being drawn, and draw no others."""
        self.executor.shutdown(cancel_futures=True)


def prefetch(
    loader: PackedLoader, position: Position, world: World
) -> Generator[tuple[PackedBatch, Position], None, None]:
    """Yield each batch of this process from a position on, on its device, with the position after those of all processes."""
    ready: queue.Queue[PackedRows | BaseException] = queue.Queue(maxsize=AHEAD)
    stopped = threading.Event()
    loader, ahead = copy(loader), EpochsAhead(loader.dataset_of)
    loader.dataset_of = ahead
    thread = threading.Thread(target=_prepare_blocks, args=(loader, position, world, ready, stopped), name="prefetch")
    try:
        thread.start()
        while True:
            block = ready.get()
            if isinstance(block, BaseException):
                raise block
            yield from replace(block, rows=block.rows.to(world.device, non_blocking=True)).batches()
    finally:
        stopped.set()
        if thread.ident is not None:
            # A thread that still runs when the interpreter exits can crash the process.
            thread.join()
        ahead.close()


def _prepare_blocks(
    loader: PackedLoader,
    position: Position,
    world: World,
    ready: queue.Queue[PackedRows | BaseException],
    stopped: threading.Event,
) -> None:
    try:
        for block in loader.blocks_of_rows(position, rank=world.rank, ranks=world.size):
            pinned = replace(block, rows=block.rows.pin_memory()) if world.device.type == "cuda" else block
            _put(ready, pinned, stopped)
            if stopped.is_set():
                return
    # Raised again in the thread that waits for batches.
    except BaseException as error:
        _put(ready, error, stopped)


def _put(
    ready: queue.Queue[PackedRows | BaseException], item: PackedRows | BaseException, stopped: threading.Event
) -> None:
    """Wait until the queue has room, or the reader has stopped."""
    while not stopped.is_set():
        try:
            return ready.put(item, timeout=0.2)
        except queue.Full:
            continue
