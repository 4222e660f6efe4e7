"""The scheduler: combines the sentences of many clients into batches for the worker processes.

Sentences wait in a queue that is fair to clients (`fair_queue`). One executor per worker (`executor`) takes batches from it,
which `batch_choice` chooses.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from regard.serve.access import Limits
from regard.serve.batch_choice import RETRY_BATCH_SIZES, BatchChoice
from regard.serve.executor import Executor
from regard.serve.fair_queue import FairQueue, QueueItem, TranslationJob
from regard.serve.worker_process import WorkerFailed, WorkerProcess

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
        start: Callable[[], WorkerProcess],
        *,
        workers: int,
        tasks: int = 1,
        models: dict[str, int],
        limits: Limits,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Each worker runs up to `tasks` batches at once."""
        self.models, self.limits, self.workers, self.tasks = models, limits, workers, tasks
        self.batches_done, self.sentences_done = 0, 0
        self.pending_cost = 0  # of all jobs that are queued or running
        self.client_costs: Counter[str] = Counter()
        self._queue = FairQueue()
        self._jobs: set[TranslationJob] = set()  # without a result so far
        self._arrived: dict[TranslationJob, float] = {}
        self._choice = BatchChoice(self._queue, limits, workers=workers, shared=tasks > 1)
        self._changed = threading.Condition()
        self._closed = False
        self.executors: list[Executor] = []
        self.executors += [Executor(number, start, self, say, tasks=tasks) for number in range(workers)]

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
                self._choice.last_interactive = now
            self._jobs.add(job)
            self._arrived[job] = now
            self.pending_cost += job.cost
            self.client_costs[job.client] += job.cost
            self._queue.push(job)
            self._changed.notify_all()
        self._wake_executors()
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

    def _wake_executors(self) -> None:
        for one in self.executors:
            one.wake()

    def _wake_if_queued(self) -> None:
        if self._queue:
            self._wake_executors()

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
        self._wake_executors()
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

    def next_batch(self, worker: int) -> list[QueueItem] | None:
        """Return the items of one more batch; an empty list if there are none for this worker now, None when closed."""
        with self._changed:
            if self.tasks == 1:
                self._wait_for_more(worker)
            return None if self._closed else self._choice.take(worker)

    def items_done(self, worker: int, items: list[QueueItem]) -> None:
        """Record that items of a batch have got their results."""
        with self._changed:
            self._choice.remove(worker, items)
            self.sentences_done += len(items)
        self._wake_if_queued()

    def batch_done(self, worker: int, items: list[QueueItem]) -> None:
        """Record the end of a batch."""
        with self._changed:
            self._choice.remove(worker, items)
            self.batches_done += 1
        self._wake_if_queued()

    def batch_not_started(self, worker: int, items: list[QueueItem]) -> None:
        """Take a batch back that the worker has not seen."""
        with self._changed:
            self._choice.remove(worker, items)
            wanted = [item for item in items if not item.job.done]
            self._queue.push_front([item for item in wanted if item.failures])
            self._queue.push_back([item for item in wanted if not item.failures])
        self._wake_executors()

    def worker_failed(self, worker: int, unfinished: list[QueueItem]) -> None:
        """Retry what a worker was translating when it failed, or refuse it if workers failed with it too often."""
        with self._changed:
            self._choice.running.pop(worker, None)
            for item in unfinished:
                item.failures += 1
            wanted = [item for item in unfinished if not item.job.done]
            refused = [item for item in wanted if item.failures > len(RETRY_BATCH_SIZES)]
            self._queue.push_front([item for item in wanted if item.failures <= len(RETRY_BATCH_SIZES)])
        self._wake_executors()
        for item in refused:
            item.job.fail(WorkerFailed("several workers failed while they translated this"))

    def should_preempt(self, items: list[QueueItem]) -> bool:
        """Return whether to stop a long batch: short items are waiting and no other worker can take them."""
        with self._changed:
            if not self._choice.is_long(items[0]) or not self._choice.recently_interactive():
                return False
            preempted = any(item.preemptions >= MAX_PREEMPTIONS for item in items)
            if preempted or self.ready_workers > self._choice.long_workers():
                return False
            waiting = self._queue.first(lambda item: not self._choice.is_long(item)) if self._queue else None
            since = self._arrived.get(waiting.job, math.inf) if waiting else math.inf
            return time.monotonic() > since + PREEMPT_SECONDS

    def batch_preempted(self, worker: int, items: list[QueueItem], unfinished: list[QueueItem]) -> None:
        """Queue the unfinished items of a batch that was stopped in favour of shorter ones."""
        with self._changed:
            self._choice.remove(worker, items)
            for item in unfinished:
                item.preemptions += 1
            self._queue.push_back([item for item in unfinished if not item.job.done])
        self._wake_executors()

    def _wait_for_more(self, worker: int) -> None:
        """Wait while sentences keep arriving, until a batch is full or its first sentence has waited long enough."""
        while (
            not self._closed
            and (first := self._choice.first(worker))
            and first.job.kind == "translate"
            and not first.failures
        ):
            before = self.queued
            waited = time.monotonic() - self._arrived.get(first.job, 0.0)
            if before >= self.limits.batch_sentences or waited > self.limits.batch_wait:
                return
            self._changed.wait_for(lambda before=before: self.queued != before, self.limits.batch_gap)  # type: ignore[misc]
            if self.queued == before:
                return
