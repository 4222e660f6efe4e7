"""Which of the queued sentences a worker gets next.

A worker without the engine translates one batch after another: sentences of similar cost, up to the cost of a batch, so that
others do not wait long for its end. Workers with the engine are shared: sentences join its searches at any step and leave
them when they end, so a worker takes whatever comes next as long as its searches have room.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable

from regard.serve.access import Limits
from regard.serve.fair_queue import FairQueue, QueueItem

MIN_SHARED = 8  # sentences that are not split between workers: a step costs almost the same for fewer
RETRY_BATCH_SIZES = (8, 1)  # for sentences whose worker failed once, twice; after that they are refused
# Hypotheses of all sentences that a shared worker has at once. With more, steps take longer, and so do long sentences; with
# fewer, products are less efficient.
MOST_ROWS = 64

Running = dict[QueueItem, None]  # the unfinished items of a worker, in the order in which it got them


class BatchChoice:
    """The items that each worker has, and the choice of more. It is not thread-safe."""

    def __init__(self, queue: FairQueue, limits: Limits, *, workers: int, shared: bool) -> None:
        self.queue, self.limits, self.workers, self.shared = queue, limits, workers, shared
        self.running: defaultdict[int, Running] = defaultdict(dict)  # of each worker that has loaded its models
        self.last_interactive = -math.inf  # arrival of the last interactive job

    def take(self, worker: int) -> list[QueueItem]:
        """Return the next items for a worker, which are no longer queued; an empty list if there are none for it now."""
        size = self._share(worker)
        first = self.first(worker) if size > 0 else None
        if first is None:
            return []
        if first.failures:
            size = RETRY_BATCH_SIZES[first.failures - 1]
        candidates = self.queue.candidates(first, size, self._allowed(worker))
        choose = self._within_rows if self.shared else self._within_cost
        items = choose(worker, first, candidates, size)
        self.queue.take(items)
        self.running[worker].update(dict.fromkeys(items))
        return items

    def remove(self, worker: int, items: list[QueueItem]) -> None:
        """Remove items that a worker no longer has."""
        for item in items:
            self.running[worker].pop(item, None)

    def first(self, worker: int) -> QueueItem | None:
        """Return the item that a worker takes next; None if there is none for it now."""
        return self.queue.first(self._allowed(worker)) if self.queue else None

    def is_long(self, item: QueueItem) -> bool:
        return item.cost > self.limits.short_cost

    def recently_interactive(self) -> bool:
        """Return whether an interactive job has arrived in the last few seconds."""
        return time.monotonic() < self.last_interactive + self.limits.interactive_seconds

    def long_workers(self) -> int:
        """Return the number of workers that are occupied by long items; shared workers always have room for short ones."""
        return 0 if self.shared else sum(any(map(self.is_long, running)) for running in self.running.values())

    def _long_cost(self, worker: int) -> int:
        return sum(item.cost for item in self.running[worker] if self.is_long(item))

    def _allowed(self, worker: int) -> Callable[[QueueItem], bool]:
        """Return a filter of the items that a worker may take now, in addition to those that it has."""
        running = self.running[worker]
        if self.shared and running:
            # What was running when a worker failed runs alone, so that nothing else fails with it again.
            short_only = self._long_cost(worker) >= self.limits.shared_long_cost
            return lambda item: not item.failures and not (short_only and self.is_long(item))
        # Long ones leave one worker free for interactive jobs.
        if self.workers > 1 and self.long_workers() >= self.workers - 1 and self.recently_interactive():
            return lambda item: not self.is_long(item)
        return lambda item: True

    def _share(self, worker: int) -> int:
        """Return how many items a worker may take, so that all workers have equally many."""
        running = self.running[worker]
        if self.shared and (_is_retry(running) or _rows(running) >= MOST_ROWS):
            return 0
        counts = [len(one) for one in self.running.values() if not (self.shared and _is_retry(one))]
        fair = math.ceil(_level(counts, len(self.queue)) - len(running))
        return fair if self.shared else min(self.limits.batch_sentences, max(MIN_SHARED, fair))

    def _within_rows(self, worker: int, first: QueueItem, candidates: list[QueueItem], size: int) -> list[QueueItem]:
        """Return the next items, as many as the searches of a worker have room for."""
        rows, long = _rows(self.running[worker]), self._long_cost(worker)
        items: list[QueueItem] = []
        for item in [first, *candidates]:
            fits = rows + item.job.options.beam <= MOST_ROWS
            fits = fits and not (self.is_long(item) and long >= self.limits.shared_long_cost)
            if len(items) < size and (fits or not rows):
                items.append(item)
                rows += item.job.options.beam
                long += item.cost * self.is_long(item)
        return items

    def _within_cost(self, worker: int, first: QueueItem, candidates: list[QueueItem], size: int) -> list[QueueItem]:
        """Return the first item and those of similar cost, up to the cost of a batch."""
        limits = self.limits
        budget = limits.long_batch_cost if self.is_long(first) else limits.batch_cost
        bulk_budget = min(budget, limits.bulk_batch_cost) if self.recently_interactive() else budget
        items: list[QueueItem] = []
        for item in [first, *sorted(candidates, key=lambda item: abs(item.cost - first.cost))]:
            bulk = item.job.cost > limits.interactive_cost
            fits = item.cost <= budget and (not bulk or item.cost <= bulk_budget)
            if len(items) < size and (fits or item is first):
                items.append(item)
                budget -= item.cost
                bulk_budget -= item.cost * bulk
        return items


def _rows(running: Running) -> int:
    return sum(item.job.options.beam for item in running)


def _is_retry(running: Running) -> bool:
    """Return whether a worker runs what another one has failed with."""
    return any(item.failures for item in running)


def _level(counts: list[int], queued: int) -> float:
    """Return how many items the workers with the fewest would have if they got all that are queued and had equally many."""
    counts, total = sorted(counts), queued
    for number, count in enumerate(counts, 1):
        total += count
        if number == len(counts) or total <= number * counts[number]:
            break
    return total / number
