"""Packed batches on their way to the device: a thread writes the next blocks of rows while the device works on these."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from dataclasses import replace

from regard.data.batch_sampler import Position
from regard.data.packing import PackedBatch, PackedLoader, PackedRows
from regard.training.world import World

AHEAD = 2  # blocks


def prefetch(
    loader: PackedLoader, position: Position, world: World
) -> Generator[tuple[PackedBatch, Position], None, None]:
    """Each batch of this process from here on, on its device, with the position after those of all processes."""
    ready: queue.Queue[PackedRows | BaseException] = queue.Queue(maxsize=AHEAD)
    stopped = threading.Event()
    thread = threading.Thread(target=_write_ahead, args=(loader, position, world, ready, stopped), name="feed")
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
            thread.join()  # one that is still at work when Python ends takes the process down with it


def _write_ahead(
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
    except BaseException as error:  # told where the batches are waited for
        _put(ready, error, stopped)


def _put(
    ready: queue.Queue[PackedRows | BaseException], what: PackedRows | BaseException, stopped: threading.Event
) -> None:
    """Waits for room, or for the reader to go."""
    while not stopped.is_set():
        try:
            return ready.put(what, timeout=0.2)
        except queue.Full:
            continue
