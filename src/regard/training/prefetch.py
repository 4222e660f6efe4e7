"""Prefetching of packed batches: a thread prepares the next blocks of rows while the device works on the current one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from dataclasses import replace

from regard.data.batch_sampler import Position
from regard.data.packed_rows import PackedBatch, PackedRows
from regard.data.packing import PackedLoader
from regard.training.world import World

AHEAD = 2  # blocks


def prefetch(
    loader: PackedLoader, position: Position, world: World
) -> Generator[tuple[PackedBatch, Position], None, None]:
    """Yield each batch of this process from a position on, on its device, with the position after those of all processes."""
    ready: queue.Queue[PackedRows | BaseException] = queue.Queue(maxsize=AHEAD)
    stopped = threading.Event()
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
