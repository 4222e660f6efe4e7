"""Jobs (the sentences of one request), and a queue of them that is fair between clients and between the jobs of a client.

Fair queueing with virtual time (Demers, Keshav and Shenker 1989; Goyal, Vin and Cheng 1996) at two levels. Every client
has a virtual time that advances by the cost of the items taken from it. The client with the smallest virtual time is
served next, and the same rule applies to its jobs. A new client starts at the shared clock, which advances by the cost
that each client would get if all shared equally. So a short job waits for about one sentence of every other client, not
for all of their work, and a long job gets its share no matter how many short ones arrive.

The queue is not thread-safe.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from regard.config import SearchOptions

JobKind = Literal["translate", "look", "stream"]
_numbers = itertools.count()
WINDOW = 4  # candidates considered per place in a batch, so that items of similar cost can be chosen
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Sentence:
    """A source sentence, its worst-case cost, and what its translation must have."""

    text: str
    cost: int
    demands: Mapping[str, Any] = field(default_factory=dict)  # fields of a `decoding.requests.Request`


def ignore_partial(text: str) -> None:
    """Ignore partial results."""


@dataclass(eq=False)
class TranslationJob:
    """The sentences of one request, and the future of its result."""

    client: str
    model: str
    options: SearchOptions
    sentences: Sequence[Sentence]
    deadline: float  # by time.monotonic
    kind: JobKind = "translate"
    arguments: dict[str, Any] = field(default_factory=dict)  # of a look
    on_partial: Callable[[str], None] = ignore_partial  # gets the text so far of a stream, on an executor's thread
    number: int = field(default_factory=lambda: next(_numbers))
    future: Future[list[Any]] = field(default_factory=Future)
    results: dict[int, Any] = field(default_factory=dict)  # by sentence number

    def __post_init__(self) -> None:
        self.cost = sum(one.cost for one in self.sentences)

    @property
    def done(self) -> bool:
        """Whether the job has its result, has failed or was cancelled."""
        return self.future.done()

    def deliver(self, number: int, result: Any) -> None:
        """Store the result of one sentence; complete the future with the last one."""
        self.results[number] = result
        if len(self.results) == len(self.sentences):
            with suppress(InvalidStateError):  # cancelled in the meantime
                self.future.set_result([self.results[one] for one in range(len(self.sentences))])

    def fail(self, error: Exception) -> None:
        """Complete the future with this error, unless it is complete already."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(eq=False)
class QueueItem:
    """One sentence of a job, on its way through the queue and a worker."""

    job: TranslationJob
    number: int  # of the sentence in the job
    failures: int = 0  # workers that failed while they translated it
    preemptions: int = 0  # times that it was stopped in favour of shorter items

    @property
    def input(self) -> str | dict[str, Any]:
        """What a worker gets: the text, or the fields of a request."""
        sentence = self.job.sentences[self.number]
        return {"text": sentence.text, **sentence.demands} if sentence.demands else sentence.text

    @property
    def cost(self) -> int:
        return self.job.sentences[self.number].cost

    @property
    def group(self) -> Hashable:
        """Items with equal groups can be translated in one batch."""
        if self.job.kind != "translate":
            return self.job.number
        return self.job.model, self.job.options, self.failures


Allowed = Callable[[QueueItem], bool]


class Flow(ABC):
    """A client or a job that shares the workers with others."""

    def __init__(self) -> None:
        self.virtual = 0.0  # advances by the cost of the items taken
        self.served = False
        self.arrival = 0

    @abstractmethod
    def has_items(self) -> bool:
        """Return whether items are queued."""

    @abstractmethod
    def in_order(self, allowed: Allowed) -> Iterator[QueueItem]:
        """Yield the allowed items in the order they would be served, without removing them."""


F = TypeVar("F", bound=Flow)


class FairShare(Generic[Key, F]):
    """Flows that share fairly by cost."""

    def __init__(self) -> None:
        self.flows: dict[Key, F] = {}
        self.clock = 0.0  # virtual time at which new flows start
        self._arrivals = 0

    def join(self, key: Key, flow: F) -> None:
        """Add a flow that has got its first items, or new items after it was empty."""
        self._arrivals += 1
        if flow.virtual <= self.clock:
            flow.virtual, flow.served = self.clock, False
        flow.arrival = self._arrivals
        self.flows[key] = flow

    def charge(self, costs: Counter[Key]) -> None:
        """Advance the virtual times by the costs of items; call before the items are removed."""
        waiting = [flow.virtual for flow in self.flows.values() if flow.has_items()]
        self.clock = max(self.clock, min(waiting, default=0.0)) + costs.total() / max(1, len(waiting))
        for key, cost in costs.items():
            self.flows[key].virtual += cost
            self.flows[key].served = True

    def drop_idle(self) -> None:
        """Drop empty flows whose virtual time is not ahead of that of a new flow."""
        for key in [key for key, one in self.flows.items() if not one.has_items() and one.virtual <= self.clock]:
            del self.flows[key]

    def in_order(self, allowed: Allowed) -> Iterator[QueueItem]:
        """Yield the allowed items of all flows in the order they would be served, without removing them."""
        heap = []
        for flow in self.flows.values():
            items = flow.in_order(allowed)
            if (item := next(items, None)) is not None:
                heap.append((flow.virtual, flow.served, flow.arrival, item, items))
        heapq.heapify(heap)
        while heap:
            virtual, _, arrival, item, items = heap[0]
            yield item
            if (following := next(items, None)) is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (virtual + item.cost, True, arrival, following, items))


class JobFlow(Flow):
    """The queued items of one job, sorted by cost so that similar ones are adjacent."""

    def __init__(self, items: Iterable[QueueItem]) -> None:
        super().__init__()
        self.items = sorted(items, key=lambda item: item.cost)

    def has_items(self) -> bool:
        return bool(self.items)

    def in_order(self, allowed: Allowed) -> Iterator[QueueItem]:
        return filter(allowed, self.items)


class ClientFlow(Flow):
    """The queued jobs of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: FairShare[int, JobFlow] = FairShare()

    def has_items(self) -> bool:
        return any(job.items for job in self.jobs.flows.values())

    def in_order(self, allowed: Allowed) -> Iterator[QueueItem]:
        return self.jobs.in_order(allowed)


class FairQueue:
    """Items that are waiting for a worker."""

    def __init__(self) -> None:
        self.clients: FairShare[str, ClientFlow] = FairShare()
        self.retries: deque[QueueItem] = deque()  # taken first: their worker failed
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def push(self, job: TranslationJob) -> None:
        """Queue all sentences of a job."""
        self._join(job, [QueueItem(job, number) for number in range(len(job.sentences))])

    def push_back(self, items: list[QueueItem]) -> None:
        """Queue items again that were taken before."""
        for job in {item.job for item in items}:
            self._join(job, [item for item in items if item.job is job])

    def _join(self, job: TranslationJob, items: list[QueueItem]) -> None:
        self.length += len(items)
        client = self.clients.flows.get(job.client) or ClientFlow()
        if not client.has_items():
            self.clients.join(job.client, client)
        if flow := client.jobs.flows.get(job.number):
            items = [*flow.items, *items]
        client.jobs.join(job.number, JobFlow(items))

    def push_front(self, items: list[QueueItem]) -> None:
        """Queue items again that were taken before, ahead of all others."""
        self.retries.extend(items)
        self.length += len(items)

    def remove(self, job: TranslationJob) -> None:
        """Remove the queued items of a job."""
        before = len(self.retries)
        self.retries = deque(item for item in self.retries if item.job is not job)
        self.length -= before - len(self.retries)
        client = self.clients.flows.get(job.client)
        flow = client.jobs.flows.pop(job.number, None) if client else None
        if flow:
            self.length -= len(flow.items)
            self.clients.drop_idle()

    def first(self, allowed: Allowed) -> QueueItem | None:
        """Return the next item among those that are allowed now."""
        return next(filter(allowed, self.retries), None) or next(self.clients.in_order(allowed), None)

    def candidates(self, first: QueueItem, size: int, allowed: Allowed) -> list[QueueItem]:
        """Return the next items that can share a batch with the first; more than the batch size, to choose from."""

        def fits(item: QueueItem) -> bool:
            return item.group == first.group and allowed(item)

        in_order = filter(fits, self.retries) if first.failures else self.clients.in_order(fits)
        return [item for item in islice(in_order, size * WINDOW) if item is not first]

    def take(self, items: list[QueueItem]) -> None:
        """Remove items and charge their clients and jobs. Items whose worker failed were charged before."""
        chosen = set(map(id, items))
        self.retries = deque(item for item in self.retries if id(item) not in chosen)
        self.length -= len(items)
        by_client: dict[str, Counter[int]] = {}
        for item in items:
            costs = by_client.setdefault(item.job.client, Counter())
            costs[item.job.number] += 0 if item.failures else item.cost
        self._charge(by_client)
        for name, costs in by_client.items():
            client = self.clients.flows.get(name)
            for number in costs:
                flow = client.jobs.flows.get(number) if client else None
                if client and flow:
                    flow.items = [item for item in flow.items if id(item) not in chosen]
                    if not flow.items:
                        del client.jobs.flows[number]
        self.clients.drop_idle()

    def _charge(self, by_client: dict[str, Counter[int]]) -> None:
        totals = Counter({name: costs.total() for name, costs in by_client.items() if costs.total()})
        if totals:
            self.clients.charge(totals)
        for name in totals:
            self.clients.flows[name].jobs.charge(+by_client[name])
