"""Hulls, tours and triangulations of points: small ones by hand, many random ones by their definition."""

from itertools import combinations, permutations

import numpy as np
import pytest

from regard.errors import ConfigError, DataError
from regard.text import plane, tours
from regard.text.generators import generate

SQUARE = np.array([[[0, 0], [2, 2], [4, 4], [4, 0], [0, 4], [2, 0]]])  # corners 0, 3, 2, 4; the others are not


def random_points(count, n, seed=1):
    return np.random.default_rng(seed).integers(0, 10**6, size=(count, n, 2))


def turn(a, b, c):
    """Twice the signed area of a triangle."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def first_of(answers):
    return answers.positions[0, : answers.sizes[0]].tolist()


def test_the_hull_of_a_square_has_its_corners_alone():
    assert first_of(plane.convex_hulls(SQUARE)) == [0, 3, 2, 4]
    moved = SQUARE[:, ::-1]  # the corners are now 5, 2, 3, 1, and 5 is the lowest and leftmost
    assert first_of(plane.SOLVERS["hull"](moved, "index")) == [1, 5, 2, 3]
    assert first_of(plane.SOLVERS["hull"](moved, "lowest")) == [5, 2, 3, 1]


@pytest.mark.parametrize("n", [3, 4, 10, 50])
def test_every_point_is_left_of_every_side_of_its_hull(n):
    points = random_points(20, n)
    for row, (positions, size) in enumerate(zip(*plane.convex_hulls(points), strict=True)):
        corners = points[row, positions[:size]]
        for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            assert all(turn(a, b, point) >= 0 for point in points[row])
        assert len(set(positions[:size].tolist())) == size >= 3


def test_exact_tours_are_the_shortest_of_all_orders():
    distances = tours.distances_between(random_points(10, 6))
    found = tours.lengths_of(distances, tours.optimal_tours(distances))
    for row in range(10):
        every = np.array([(0, *order) for order in permutations(range(1, 6))])
        best = tours.lengths_of(np.broadcast_to(distances[row], (len(every), 6, 6)), every).min()
        assert found[row] == pytest.approx(best, rel=1e-5)


def test_tours_of_the_heuristic_are_within_half_a_percent_of_the_shortest():
    distances = tours.distances_between(random_points(150, 10))
    best = tours.lengths_of(distances, tours.optimal_tours(distances))
    short = tours.short_tours(distances)
    assert (np.sort(short, axis=1) == np.arange(10)).all()
    ratio = tours.lengths_of(distances, short) / best
    assert ratio.min() > 1 - 1e-5 and ratio.mean() < 1.005


def test_a_tour_is_counter_clockwise_from_where_it_is_asked_to_begin():
    corners = np.array([[[4, 4], [0, 0], [0, 4], [4, 0]]])
    assert first_of(plane.SOLVERS["tour"](corners, "index")) == [0, 2, 1, 3]
    assert first_of(plane.SOLVERS["tour"](corners, "lowest")) == [1, 3, 0, 2]


def test_the_triangles_of_a_square_with_a_point_in_it():
    # The incenters of the four triangles are left, below, above (the same x), and right.
    points = np.array([[[0, 0], [40, 0], [40, 40], [0, 40], [20, 20]]])
    found = first_of(plane.SOLVERS["delaunay"](points, "index"))
    assert found == [0, 3, 4, 0, 1, 4, 2, 3, 4, 1, 2, 4]
    # Counter-clockwise, from the lowest corner; of equally low ones the leftmost.
    assert first_of(plane.SOLVERS["delaunay"](points, "lowest")) == [0, 4, 3, 0, 1, 4, 4, 2, 3, 1, 2, 4]


@pytest.mark.parametrize("n", [5, 9])
def test_a_triangulation_has_as_many_triangles_as_its_hull_allows(n):
    points = random_points(20, n)
    hulls, triangles = plane.convex_hulls(points), plane.SOLVERS["delaunay"](points, "index")
    # Euler: n points with h corners have 2n - 2 - h triangles.
    assert (triangles.sizes == 3 * (2 * n - 2 - hulls.sizes)).all()
    for row in range(20):
        corners = triangles.positions[row, : triangles.sizes[row]].reshape(-1, 3)
        assert set(map(tuple, corners.tolist())) <= set(combinations(range(n), 3))


# Corpora


def test_lines_hold_the_points_of_which_the_answer_is():
    options = {"min_points": 4, "max_points": 6, "count": 40}
    pairs = list(generate("hull/valid", options))
    assert {len(pair.source.split()) for pair in pairs} == {4, 5, 6}
    for pair in pairs:
        points = np.array([[float(one) for one in point.split(",")] for point in pair.source.split()])
        exact = np.rint(points * 10**6).astype(np.int64)[None]
        assert [int(one) for one in pair.target.split()] == first_of(plane.SOLVERS["hull"](exact, "index"))
    assert plane.lines_of(np.array([[[250000, 7], [0, 999999]]])) == ["0.250000,0.000007 0.000000,0.999999"]


def test_training_epochs_differ_and_other_splits_stay():
    options = {"min_points": 5, "max_points": 5, "count": 3}
    of = {
        (split, epoch): list(generate(f"tour/{split}", options, epoch=epoch))
        for split in ("train", "test")
        for epoch in (0, 1)
    }
    assert of["train", 0] != of["train", 1] and of["test", 0] == of["test", 1] != of["train", 0]
    assert of["train", 0] == list(generate("tour/train", options))


def test_options_that_do_not_fit_are_refused():
    for options, message in [
        ({"min_points": 2}, "min_points is 2; it must be from 3"),
        ({"min_points": 9, "max_points": 8}, "more than max_points"),
        ({"count": 2**24, "max_points": 1000}, "so many points do not fit"),
        ({"start": "left"}, "start"),
    ]:
        with pytest.raises(ConfigError, match=message):
            list(generate("hull/train", options))
    with pytest.raises(ConfigError, match="max_points is 100"):
        list(generate("delaunay/train", {"max_points": 100}))
    with pytest.raises(DataError, match="hull has no split 'dev'"):
        list(generate("hull/dev", {}))
