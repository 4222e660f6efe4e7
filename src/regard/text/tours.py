"""Shortest round trips through cities in the plane (the travelling salesman problem), for many instances at once.

`optimal_tours` is exact: dynamic programming over sets of visited cities (Held and Karp 1962). Its time and memory double
with each city. `short_tours` is a heuristic for more cities: tours built by farthest insertion from several cities, improved
by the best 2-opt or Or-opt move until there is none. The shortest of them is returned.

Shapes: R instances, n cities, m = n - 1 cities besides the first, M moves.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Tours = NDArray[np.int64]  # cities in the order of the visit: [R, n]
Distances = NDArray[np.float32]  # [R, n, n]

MOST_EXACT = 12  # cities, in corpora
LONGEST_SEGMENT = 3  # cities that an Or-opt move takes elsewhere
STARTS = 3
STATES = 2**22  # of dynamic programming that are in memory at once
ROWS = 512  # instances that are improved together
LEAST_GAIN = 1e-6  # smaller ones are rounding


def distances_between(points: NDArray[np.generic]) -> Distances:
    """Return the distances between the points of each instance: [R, n, 2] to [R, n, n]."""
    numbers = points.astype(np.float64)
    between: Distances = np.sqrt(((numbers[:, :, None] - numbers[:, None]) ** 2).sum(axis=-1)).astype(np.float32)
    return between


def lengths_of(distances: Distances, tours: Tours) -> NDArray[np.float64]:
    """Return the length of each tour, the way back to its first city included: [R]."""
    rows = np.arange(len(tours))[:, None]
    lengths: NDArray[np.float64] = distances[rows, tours, np.roll(tours, -1, axis=1)].sum(axis=1, dtype=np.float64)
    return lengths


def solve(distances: Distances) -> Tours:
    """Return a tour per instance: the shortest up to MOST_EXACT cities, a short one for more."""
    return optimal_tours(distances) if distances.shape[1] <= MOST_EXACT else short_tours(distances)


# Exact


def optimal_tours(distances: Distances) -> Tours:
    """Return a shortest tour per instance, from city 0. Lengths are compared in single precision."""
    count, n = distances.shape[:2]
    if n <= 3:
        return np.tile(np.arange(n), (count, 1))
    rows = max(1, STATES // (2 ** (n - 1) * (n - 1)))
    return np.concatenate([_optimal(distances[first : first + rows]) for first in range(0, count, rows)])


def _optimal(distances: Distances) -> Tours:
    count, m = len(distances), distances.shape[1] - 1
    home = distances[:, 0, 1:].T.copy()  # [m, R]
    # From every other city to one of them: [m, m, R].
    towards = distances[:, 1:, 1:].transpose(2, 1, 0).copy()
    # best[cities, last]: the shortest way from city 0 through a set of cities (its bits), ending at the last: [2^m, m, R].
    best = np.full((2**m, m, count), np.inf, dtype=np.float32)
    for city in range(m):
        best[1 << city, city] = home[city]
    way = np.empty((m, count), dtype=np.float32)
    for cities in range(3, 2**m):
        for last in range(m):
            before = cities & ~(1 << last)
            if before and before != cities:
                np.add(best[before], towards[last], out=way)
                way.min(axis=0, out=best[cities, last])
    instances = np.arange(count)
    tours = np.zeros((count, m + 1), dtype=np.int64)
    visited = np.full(count, 2**m - 1)
    last = (best[-1] + home).argmin(axis=0)
    for place in range(m, 0, -1):
        tours[:, place] = last + 1
        visited &= ~(1 << last)
        last = (best[visited, :, instances] + towards[last, :, instances]).argmin(axis=1)
    return tours


# Heuristic


def short_tours(distances: Distances, *, starts: int = STARTS) -> Tours:
    """Return a short tour per instance: the best of those that are built from `starts` cities and improved."""
    count, n = distances.shape[:2]
    best = np.zeros((count, n), dtype=np.int64)
    for first in range(0, count, ROWS):
        some = distances[first : first + ROWS]
        tours = [_improve(some, _insert_farthest(some, start * n // starts)) for start in range(starts)]
        lengths = np.stack([lengths_of(some, one) for one in tours])
        best[first : first + ROWS] = np.stack(tours)[lengths.argmin(axis=0), np.arange(len(some))]
    return best


def _insert_farthest(distances: Distances, start: int) -> Tours:
    """Return tours that grow by the city farthest from them, at the place where it adds least."""
    count, n = distances.shape[:2]
    rows, places = np.arange(count), np.arange(n)
    tours = np.full((count, n), start)
    near = distances[:, start].copy()  # distance of each city from the tour; minus 1 for its own cities
    near[:, start] = -1
    for size in range(1, n):
        city = near.argmax(axis=1)
        here, after = tours[:, :size], np.roll(tours[:, :size], -1, axis=1)
        every = rows[:, None]
        added = (
            distances[every, here, city[:, None]]
            + distances[every, city[:, None], after]
            - distances[every, here, after]
        )
        place = added.argmin(axis=1)[:, None] + 1
        tours = np.where(places < place, tours, np.roll(tours, 1, axis=1))
        tours[rows, place[:, 0]] = city
        near = np.minimum(near, distances[rows, city])
        near[rows, city] = -1
    return tours


@lru_cache(maxsize=64)
def _moves(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges that each move adds and removes, as place * n + place, [M, 3] each, and the new order: [M, n]."""
    orders = []
    for first in range(n - 1):
        for last in range(first + 1, n):  # 2-opt: reverse a stretch
            if last - first < n - 2:
                orders.append([*range(first), *range(last, first - 1, -1), *range(last + 1, n)])
    for size in range(1, min(LONGEST_SEGMENT, n - 3) + 1):  # Or-opt: move a segment, forwards or reversed
        for first in range(n):
            segment = [(first + place) % n for place in range(size)]
            rest = [(first + place) % n for place in range(size, n)]
            for place in range(1, len(rest)):
                for piece in (segment, segment[::-1])[: min(size, 2)]:
                    orders.append([*rest[:place], *piece, *rest[place:]])
    added: list[list[int]] = []
    removed: list[list[int]] = []
    kept = {frozenset((place, (place + 1) % n)) for place in range(n)}
    for order in orders:
        now = {frozenset(edge) for edge in zip(order, [*order[1:], order[0]], strict=True)}
        # A move changes two or three edges; place 0 to itself has length 0.
        for edges, found in ((now - kept, added), (kept - now, removed)):
            pairs = [min(edge) * n + max(edge) for edge in edges]
            found.append([*pairs, *[0] * (3 - len(pairs))])
    return np.array(added), np.array(removed), np.array(orders)


def _improve(distances: Distances, tours: Tours) -> Tours:
    """Return the tours after the best move of each, and so on until no move makes one shorter."""
    n = tours.shape[1]
    if n < 5:
        return tours
    added, removed, orders = _moves(n)
    tours, active = tours.copy(), np.arange(len(tours))
    while len(active):
        now = tours[active]
        by_place = distances[active[:, None, None], now[:, :, None], now[:, None]].reshape(len(active), -1)
        gain = by_place[:, removed[:, 0]] - by_place[:, added[:, 0]]
        for column in (1, 2):
            gain += by_place[:, removed[:, column]]
            gain -= by_place[:, added[:, column]]
        move = gain.argmax(axis=1)
        better = gain[np.arange(len(active)), move] > LEAST_GAIN * by_place.max(axis=1)
        active, now, move = active[better], now[better], move[better]
        tours[active] = np.take_along_axis(now, orders[move], axis=1)
    return tours
