"""The scheduler: combines the sentences of many clients into batches for the worker processes.

Sentences wait in a queue that is fair to clients (`fair_queue`). One executor per worker takes batches from it (`executor`).
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from regard.serve.access import Limits
from regard.serve.executor import Executor
from regard.serve.fair_queue import FairQueue, QueueItem, TranslationJob
from regard.serve.lanes import Lane
from regard.serve.worker_process import WorkerFailed, WorkerProcess

MIN_SHARED = 8  # sentences that are not split between workers: a step costs almost the same for fewer
RETRY_BATCH_SIZES = (8, 1)  # for sentences whose worker failed once, twice; after that they are refused
FULL_SHARE = 0.9  # of the total cost, from which on a load balancer should send requests elsewhere
PREEMPT_SECONDS = 0.3  # that short items wait before a long batch is stopped
MAX_PREEMPTIONS = 2  # of one item; then it runs to its end
CLOSE_SECONDS = 15.0  # for an executor to end


class QueueFull(Exception):
    """The total cost of pending jobs would exceed the limit."""


class ClientLimitExceeded(Exception):
    """The cost of one client's pending jobs would exceed the limit."""


class SchedulerClosed(Exception):
    """The scheduler accepts no more jobs."""


class Scheduler:
    """The queue, the running batches, and the executors."""

    def __init__(
        self,
        start: Callable[[], WorkerProcess | Lane],
        *,
        workers: int,
        lanes: int = 1,
        models: dict[str, int],
        limits: Limits,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        # Each worker process runs as many batches at once as it has lanes; `start` gives one lane after another.
        self.models, self.limits, self.workers, self.lanes = models, limits, workers * lanes, lanes
        self.batches_done, self.sentences_done = 0, 0
        self.pending_cost = 0  # of all jobs that are queued or running
        self.client_costs: Counter[str] = Counter()
        self._queue = FairQueue()
        self._jobs: set[TranslationJob] = set()  # without a result so far
        self._arrived: dict[TranslationJob, float] = {}
        self._running: list[list[QueueItem]] = []  # one batch per busy worker
        self._changed = threading.Condition()
        self._closed, self._idle = False, 0
        self._last_interactive = -math.inf  # arrival of the last interactive job
        self.executors: list[Executor] = []
        self.executors += [Executor(number // lanes, start, self, say) for number in range(self.workers)]

    # For requests

    def submit(self, job: TranslationJob) -> None:
        """Queue a job; its future receives the results. Cancel the future to drop the job."""
        with self._changed:
            if self._closed:
                raise SchedulerClosed
            if self.client_costs[job.client] + job.cost > self.limits.client_cost:
                raise ClientLimitExceeded
            if self.pending_cost + job.cost > self.limits.total_cost:
                raise QueueFull
            now = time.monotonic()
            if job.cost <= self.limits.interactive_cost:
                self._last_interactive = now
            self._jobs.add(job)
            self._arrived[job] = now
            self.pending_cost += job.cost
            self.client_costs[job.client] += job.cost
            self._queue.push(job)
            self._changed.notify_all()
        job.future.add_done_callback(lambda future: self._release(job, future))

    def _release(self, job: TranslationJob, future: Future[list[object]]) -> None:
        """Forget a job that is complete or was cancelled."""
        with self._changed:
            self._jobs.discard(job)
            self._arrived.pop(job, None)
            self._queue.remove(job)
            self.pending_cost -= job.cost
            self.client_costs[job.client] -= job.cost
            if self.client_costs[job.client] <= 0:
                del self.client_costs[job.client]
            self._changed.notify_all()

    # For monitoring

    @property
    def queued(self) -> int:
        """Number of sentences in the queue."""
        return len(self._queue)

    @property
    def failures(self) -> int:
        """Number of workers that were replaced."""
        return sum(one.failures for one in self.executors)

    @property
    def ready_workers(self) -> int:
        """Number of worker processes that can take a batch."""
        return -(-self._ready_lanes() // self.lanes)

    def _ready_lanes(self) -> int:
        return sum(one.ready for one in self.executors)

    def not_ready_reason(self) -> str | None:
        """Return why a request would not be translated now; None if it would."""
        if self._closed:
            return "the server is shutting down"
        if not self.ready_workers:
            return "no worker is ready"
        if self.pending_cost >= FULL_SHARE * self.limits.total_cost:
            return "the queue is full"
        return None

    def abandon(self) -> None:
        """Fail all pending jobs and accept no more."""
        with self._changed:
            self._closed = True
            jobs = list(self._jobs)
            self._changed.notify_all()
        for job in jobs:
            job.fail(SchedulerClosed())

    def close(self) -> None:
        """Abandon all jobs and end all processes within a bounded time."""
        self.abandon()
        threads = [threading.Thread(target=one.close, args=(CLOSE_SECONDS,), daemon=True) for one in self.executors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * CLOSE_SECONDS)

    # For executors

    def next_batch(self, timeout: float) -> list[QueueItem] | None:
        """Return the next items to translate together; an empty list after the timeout, None when closed."""
        with self._changed:
            self._idle += 1
            try:
                if not self._changed.wait_for(lambda: self._closed or self._first(), timeout):
                    return []
                if self._closed:
                    return None
                self._wait_for_more()
                first = self._first()
                if first is None:  # another executor has taken it
                    return []
                items = self._choose(first)
                self._queue.take(items)
                self._running.append(items)
                return items
            finally:
                self._idle -= 1

    def batch_done(self, items: list[QueueItem], unfinished: list[QueueItem]) -> None:
        """Record the end of a batch; retry unfinished items, or refuse them if their workers failed too often."""
        refused: list[QueueItem] = []
        with self._changed:
            self._running = [batch for batch in self._running if batch is not items]
            self.batches_done += not unfinished
            for item in unfinished:
                item.failures += 1
            wanted = [item for item in unfinished if not item.job.done]
            refused = [item for item in wanted if item.failures > len(RETRY_BATCH_SIZES)]
            self._queue.push_front([item for item in wanted if item.failures <= len(RETRY_BATCH_SIZES)])
            self._changed.notify_all()
        for item in refused:
            item.job.fail(WorkerFailed("several workers failed while they translated this"))

    def batch_not_started(self, items: list[QueueItem]) -> None:
        """Take a batch back that no worker has seen."""
        with self._changed:
            self._running = [batch for batch in self._running if batch is not items]
            wanted = [item for item in items if not item.job.done]
            self._queue.push_front([item for item in wanted if item.failures])
            self._queue.push_back([item for item in wanted if not item.failures])
            self._changed.notify_all()

    def should_preempt(self, items: list[QueueItem]) -> bool:
        """Return whether to stop a long batch: short items are waiting and no other worker can take them."""
        with self._changed:
            if not self._is_long(items[0]) or not self._recently_interactive():
                return False
            if any(item.preemptions >= MAX_PREEMPTIONS for item in items) or self._ready_lanes() > self._long_batches():
                return False
            waiting = self._queue.first(lambda item: not self._is_long(item)) if self._queue else None
            since = self._arrived.get(waiting.job, math.inf) if waiting else math.inf
            return time.monotonic() > since + PREEMPT_SECONDS

    def batch_preempted(self, items: list[QueueItem], unfinished: list[QueueItem]) -> None:
        """Queue the unfinished items of a batch that was stopped in favour of shorter ones."""
        with self._changed:
            self._running = [batch for batch in self._running if batch is not items]
            for item in unfinished:
                item.preemptions += 1
            self._queue.push_back([item for item in unfinished if not item.job.done])
            self._changed.notify_all()

    def count_translated(self, sentences: int) -> None:
        with self._changed:
            self.sentences_done += sentences

    def _is_long(self, item: QueueItem) -> bool:
        return item.cost > self.limits.short_cost

    def _recently_interactive(self) -> bool:
        """Return whether an interactive job has arrived in the last few seconds."""
        return time.monotonic() < self._last_interactive + self.limits.interactive_seconds

    def _allowed(self) -> Callable[[QueueItem], bool]:
        """Return a filter of the items that may run now: long ones leave one worker free for interactive jobs."""
        if self.workers > 1 and self._long_batches() >= self.workers - 1 and self._recently_interactive():
            return lambda item: not self._is_long(item)
        return lambda item: True

    def _long_batches(self) -> int:
        return sum(self._is_long(batch[0]) for batch in self._running)

    def _first(self) -> QueueItem | None:
        """Return the item that runs next; None if there is none, or it must wait."""
        first = self._queue.first(self._allowed()) if self._queue else None
        if first is None or self.lanes == 1:
            return first
        # What was running when a process failed runs alone, so that nothing else fails with it again.
        alone = first.failures > 0 or any(batch[0].failures for batch in self._running)
        return None if alone and self._running else first

    def _wait_for_more(self) -> None:
        """Wait while sentences keep arriving, until a batch is full or its first sentence has waited long enough."""
        while not self._closed and (first := self._first()) and first.job.kind == "translate" and not first.failures:
            before = self.queued
            waited = time.monotonic() - self._arrived.get(first.job, 0.0)
            if before >= self.limits.batch_sentences or waited > self.limits.batch_wait:
                return
            self._changed.wait_for(lambda before=before: self.queued != before, self.limits.batch_gap)  # type: ignore[misc]
            if self.queued == before:
                return

    def _choose(self, first: QueueItem) -> list[QueueItem]:
        """Return the first item and those of similar cost that fit in a batch, up to a fair share of the queue."""
        limits, taken = self.limits, sum(map(len, self._running))
        fair = min((self.queued + taken) / self.workers, self.queued / self._idle)
        size = min(limits.batch_sentences, max(MIN_SHARED, math.ceil(fair)))
        if first.failures:
            size = RETRY_BATCH_SIZES[first.failures - 1]
        budget = limits.long_batch_cost if self._is_long(first) else limits.batch_cost
        bulk_budget = min(budget, limits.bulk_batch_cost) if self._recently_interactive() else budget
        items: list[QueueItem] = []
        candidates = self._queue.candidates(first, size, self._allowed())
        for item in [first, *sorted(candidates, key=lambda item: abs(item.cost - first.cost))]:
            bulk = item.job.cost > limits.interactive_cost
            fits = item.cost <= budget and (not bulk or item.cost <= bulk_budget)
            if len(items) < size and (fits or item is first):
                items.append(item)
                budget -= item.cost
                bulk_budget -= item.cost * bulk
        return items
