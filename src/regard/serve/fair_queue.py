"""A queue that is fair to clients, and to the requests of each.

Fair queueing with virtual time (Demers, Keshav and Shenker 1989; Goyal, Vin and Cheng 1996) at two levels. Every client
has a virtual time, which advances by the cost of what was taken for it; the client with the least is served next, and of
its requests likewise. A newcomer starts at the current virtual time of all, which advances by what each would get if all
shared equally. So a short request waits for about one sentence of everybody else, not for all that they asked for, and a
long one gets its share however many short ones arrive.

Not thread-safe.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from regard.serve.work import Item, Work

WINDOW = 4  # times as many candidates as fit are considered for a batch, so that similar costs can be chosen

Allowed = Callable[[Item], bool]


class Flow(ABC):
    """Whoever takes turns with others."""

    def __init__(self) -> None:
        self.virtual = 0.0  # grows with what it was given
        self.served = False
        self.arrival = 0

    @abstractmethod
    def waits(self) -> bool:
        """Whether it has items that wait."""

    @abstractmethod
    def in_order(self, allowed: Allowed) -> Iterator[Item]:
        """Its allowed items in the order in which they would be taken; changes nothing."""


Key = TypeVar("Key", bound=Hashable)
F = TypeVar("F", bound=Flow)


class Turns(Generic[Key, F]):
    """Flows that share fairly."""

    def __init__(self) -> None:
        self.flows: dict[Key, F] = {}
        self.clock = 0.0  # where newcomers start
        self._arrivals = 0

    def join(self, key: Key, flow: F) -> None:
        """A flow begins to wait, for the first time or again."""
        self._arrivals += 1
        if flow.virtual <= self.clock:
            flow.virtual, flow.served = self.clock, False
        flow.arrival = self._arrivals
        self.flows[key] = flow

    def charge(self, costs: Counter[Key]) -> None:
        """Advance the virtual times by what is being taken; call it while the items are still waiting."""
        waiting = [flow.virtual for flow in self.flows.values() if flow.waits()]
        self.clock = max(self.clock, min(waiting, default=0.0)) + costs.total() / max(1, len(waiting))
        for key, cost in costs.items():
            self.flows[key].virtual += cost
            self.flows[key].served = True

    def forget_idle(self) -> None:
        """Drop flows that wait for nothing and have no more virtual time than a newcomer would get."""
        for key in [key for key, one in self.flows.items() if not one.waits() and one.virtual <= self.clock]:
            del self.flows[key]

    def in_order(self, allowed: Allowed) -> Iterator[Item]:
        """Allowed items of all flows in the order in which they would be taken one after the other; changes nothing."""
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


class RequestFlow(Flow):
    """The waiting items of one request, those of similar cost next to each other, the cheap ones first."""

    def __init__(self, items: Iterable[Item]) -> None:
        super().__init__()
        self.items = sorted(items, key=lambda item: item.cost)

    def waits(self) -> bool:
        return bool(self.items)

    def in_order(self, allowed: Allowed) -> Iterator[Item]:
        return filter(allowed, self.items)


class ClientFlow(Flow):
    """The waiting requests of one client."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Turns[int, RequestFlow] = Turns()

    def waits(self) -> bool:
        return any(request.items for request in self.requests.flows.values())

    def in_order(self, allowed: Allowed) -> Iterator[Item]:
        return self.requests.in_order(allowed)


class FairQueue:
    """Items that wait for a worker."""

    def __init__(self) -> None:
        self.clients: Turns[str, ClientFlow] = Turns()
        self.retries: deque[Item] = deque()  # before all others: their worker ended while it had them
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def push(self, work: Work) -> None:
        """All sentences of a request."""
        self._join(work, [Item(work, number) for number in range(len(work.sentences))])

    def push_back(self, items: list[Item]) -> None:
        """Items that were taken before, to be taken again when it is their turn."""
        for work in {item.work for item in items}:
            self._join(work, [item for item in items if item.work is work])

    def _join(self, work: Work, items: list[Item]) -> None:
        self.length += len(items)
        client = self.clients.flows.get(work.client) or ClientFlow()
        if not client.waits():
            self.clients.join(work.client, client)
        if request := client.requests.flows.get(work.number):
            items = [*request.items, *items]
        client.requests.join(work.number, RequestFlow(items))

    def push_front(self, items: list[Item]) -> None:
        """Items that were taken before, to be taken again before all others."""
        self.retries.extend(items)
        self.length += len(items)

    def remove(self, work: Work) -> None:
        """Forget what waits of a request."""
        before = len(self.retries)
        self.retries = deque(item for item in self.retries if item.work is not work)
        self.length -= before - len(self.retries)
        client = self.clients.flows.get(work.client)
        request = client.requests.flows.pop(work.number, None) if client else None
        if request:
            self.length -= len(request.items)
            self.clients.forget_idle()

    def first(self, allowed: Allowed) -> Item | None:
        """The item whose turn it is, of those that are allowed now."""
        return next(filter(allowed, self.retries), None) or next(self.clients.in_order(allowed), None)

    def candidates(self, first: Item, most: int, allowed: Allowed) -> list[Item]:
        """Items that can go into a batch with the first, those whose turn is soonest: more than `most`, to choose from."""

        def fits(item: Item) -> bool:
            return item.group == first.group and allowed(item)

        in_order = filter(fits, self.retries) if first.failures else self.clients.in_order(fits)
        return [item for item in islice(in_order, most * WINDOW) if item is not first]

    def take(self, items: list[Item]) -> None:
        """Remove these, and charge whoever asked for them; those whose worker failed were charged before."""
        chosen = set(map(id, items))
        self.retries = deque(item for item in self.retries if id(item) not in chosen)
        self.length -= len(items)
        by_client: dict[str, Counter[int]] = {}
        for item in items:
            costs = by_client.setdefault(item.work.client, Counter())
            costs[item.work.number] += 0 if item.failures else item.cost
        self._charge(by_client)
        for name, costs in by_client.items():
            client = self.clients.flows.get(name)
            for number in costs:
                request = client.requests.flows.get(number) if client else None
                if client and request:
                    request.items = [item for item in request.items if id(item) not in chosen]
                    if not request.items:
                        del client.requests.flows[number]
        self.clients.forget_idle()

    def _charge(self, by_client: dict[str, Counter[int]]) -> None:
        totals = Counter({name: costs.total() for name, costs in by_client.items() if costs.total()})
        if totals:
            self.clients.charge(totals)
        for name in totals:
            self.clients.flows[name].requests.charge(+by_client[name])
