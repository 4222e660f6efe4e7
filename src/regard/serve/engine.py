"""The requests of many clients, translated together: those that wait are taken in batches, each by a worker process.

Requests wait in a queue that is fair to clients (`fair_queue`); an executor per worker takes batches from it (`executor`).
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from regard.serve.executor import Executor
from regard.serve.fair_queue import FairQueue
from regard.serve.limits import Limits
from regard.serve.work import Item, Work
from regard.serve.worker_process import WorkerFailed, WorkerProcess

FEWEST = 8  # sentences that are not shared among workers: a step costs almost the same for fewer
RETRIED_TOGETHER = (8, 1)  # sentences of a batch whose worker failed once, and twice; after that they are refused
FULL = 0.9  # share of the room at which a server that balances load should send requests elsewhere
CLOSE_SECONDS = 15.0  # that an executor may take to end


class QueueFull(Exception):
    """Too much is waiting already."""


class ClientFull(Exception):
    """Too much of this client is waiting already."""


class Closed(Exception):
    """The engine takes nothing more."""


class Engine:
    """What waits, what is being translated, and the executors."""

    def __init__(
        self,
        start: Callable[[], WorkerProcess],
        *,
        workers: int,
        models: dict[str, int],
        limits: Limits,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.models, self.limits, self.workers = models, limits, workers
        self.batches, self.sentences = 0, 0  # that are done
        self.waiting_cost = 0  # of all that is waiting or being translated
        self.cost_of_client: Counter[str] = Counter()
        self._queue = FairQueue()
        self._works: set[Work] = set()  # whose result somebody waits for
        self._arrived: dict[Work, float] = {}
        self._running: list[list[Item]] = []  # batches that workers have now
        self._changed = threading.Condition()
        self._closed, self._idle = False, 0
        self._interactive = -math.inf  # when the last interactive request arrived
        self.executors: list[Executor] = []
        self.executors += [Executor(number, start, self, say) for number in range(workers)]

    # For requests

    def submit(self, work: Work) -> None:
        """Have this translated; its future will have the results. Cancel the future if nobody waits for them any more."""
        with self._changed:
            if self._closed:
                raise Closed
            if self.cost_of_client[work.client] + work.cost > self.limits.client_cost:
                raise ClientFull
            if self.waiting_cost + work.cost > self.limits.total_cost:
                raise QueueFull
            now = time.monotonic()
            if work.cost <= self.limits.interactive_cost:
                self._interactive = now
            self._works.add(work)
            self._arrived[work] = now
            self.waiting_cost += work.cost
            self.cost_of_client[work.client] += work.cost
            self._queue.push(work)
            self._changed.notify_all()
        work.future.add_done_callback(lambda future: self._release(work, future))

    def _release(self, work: Work, future: Future[list[object]]) -> None:
        """A request has its result, or wants none any more."""
        with self._changed:
            self._works.discard(work)
            self._arrived.pop(work, None)
            self._queue.remove(work)
            self.waiting_cost -= work.cost
            self.cost_of_client[work.client] -= work.cost
            if self.cost_of_client[work.client] <= 0:
                del self.cost_of_client[work.client]
            self._changed.notify_all()

    # For whoever watches

    @property
    def queued(self) -> int:
        """Sentences that wait."""
        return len(self._queue)

    @property
    def failures(self) -> int:
        """Workers that had to be replaced."""
        return sum(one.failures for one in self.executors)

    @property
    def ready_workers(self) -> int:
        return sum(one.ready for one in self.executors)

    def why_not_ready(self) -> str | None:
        """Why a request now would not be translated, if so."""
        if self._closed:
            return "the server is shutting down"
        if not self.ready_workers:
            return "no worker is ready"
        if self.waiting_cost >= FULL * self.limits.total_cost:
            return "the queue is full"
        return None

    def abandon(self) -> None:
        """Refuse what is waiting or being translated, and whatever comes."""
        with self._changed:
            self._closed = True
            works = list(self._works)
            self._changed.notify_all()
        for work in works:
            work.fail(Closed())

    def close(self) -> None:
        """Abandon all work, and end all processes, within a bounded time."""
        self.abandon()
        threads = [threading.Thread(target=one.close, args=(CLOSE_SECONDS,), daemon=True) for one in self.executors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * CLOSE_SECONDS)

    # For executors

    def next_batch(self, timeout: float) -> list[Item] | None:
        """Items that can be translated together, whose turn it is."""
        with self._changed:
            self._idle += 1
            try:
                if not self._changed.wait_for(lambda: self._closed or self._first(), timeout):
                    return []
                if self._closed:
                    return None
                self._wait_for_more()
                first = self._first()
                if first is None:  # another executor was faster
                    return []
                items = self._choose(first)
                self._queue.take(items)
                self._running.append(items)
                return items
            finally:
                self._idle -= 1

    def ended(self, items: list[Item], unfinished: list[Item]) -> None:
        """A batch is over; unfinished items go to another worker, unless theirs failed too often."""
        refused: list[Item] = []
        with self._changed:
            self._running = [batch for batch in self._running if batch is not items]
            self.batches += not unfinished
            for item in unfinished:
                item.failures += 1
            wanted = [item for item in unfinished if not item.work.done]
            refused = [item for item in wanted if item.failures > len(RETRIED_TOGETHER)]
            self._queue.push_front([item for item in wanted if item.failures <= len(RETRIED_TOGETHER)])
            self._changed.notify_all()
        for item in refused:
            item.work.fail(WorkerFailed("workers ended while they translated this"))

    def translated(self, count: int) -> None:
        with self._changed:
            self.sentences += count

    def _is_long(self, item: Item) -> bool:
        return item.cost > self.limits.short_cost

    def _interactive_now(self) -> bool:
        """Whether somebody is likely to wait in front of a screen."""
        return time.monotonic() < self._interactive + self.limits.interactive_seconds

    def _allowed(self) -> Callable[[Item], bool]:
        """Which items may be taken now: long ones must leave a worker to the short ones, while there may be some."""
        long = sum(any(map(self._is_long, batch)) for batch in self._running)
        if self.workers > 1 and long >= self.workers - 1 and self._interactive_now():
            return lambda item: not self._is_long(item)
        return lambda item: True

    def _first(self) -> Item | None:
        return self._queue.first(self._allowed()) if self._queue else None

    def _wait_for_more(self) -> None:
        """While sentences keep coming, until there are enough for a batch or the first has waited long enough."""
        while not self._closed and (first := self._first()) and first.work.kind == "translate" and not first.failures:
            before = self.queued
            waited = time.monotonic() - self._arrived.get(first.work, 0.0)
            if before >= self.limits.batch_sentences or waited > self.limits.batch_wait:
                return
            self._changed.wait_for(lambda before=before: self.queued != before, self.limits.batch_gap)  # type: ignore[misc]
            if self.queued == before:
                return

    def _choose(self, first: Item) -> list[Item]:
        """The first item, and those nearest to it in cost that can go with it: what fits, and a fair part of all."""
        limits, taken = self.limits, sum(map(len, self._running))
        fair = min((self.queued + taken) / self.workers, self.queued / self._idle)
        most = min(limits.batch_sentences, max(FEWEST, math.ceil(fair)))
        if first.failures:
            most = RETRIED_TOGETHER[first.failures - 1]
        budget = limits.long_batch_cost if self._is_long(first) else limits.batch_cost
        bulk_budget = min(budget, limits.bulk_batch_cost) if self._interactive_now() else budget
        items: list[Item] = []
        candidates = self._queue.candidates(first, most, self._allowed())
        for item in [first, *sorted(candidates, key=lambda item: abs(item.cost - first.cost))]:
            bulk = item.work.cost > limits.interactive_cost
            fits = item.cost <= budget and (not bulk or item.cost <= bulk_budget)
            if len(items) < most and (fits or item is first):
                items.append(item)
                budget -= item.cost
                bulk_budget -= item.cost * bulk
        return items
