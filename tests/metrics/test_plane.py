"""Metrics of hulls, tours and triangulations, on cases worked out by hand."""

import numpy as np
import pytest

from regard.config import EvaluateConfig
from regard.errors import DataError
from regard.metrics import score_all
from regard.metrics.plane import HULLS, TOURS, TRIANGLES, is_simple, same_cycle

# A square of side 4 with two points inside it: corners 0 1 2 3.
SQUARE = "0,0 4,0 4,4 0,4 1,2 2,2"


def scores(kind, outputs, reference):
    found = score_all(outputs, [reference] * len(outputs), [SQUARE] * len(outputs), EvaluateConfig(), compares=kind)
    return {score.name: score.value for score in found}


def test_a_hull_is_right_wherever_it_begins():
    assert same_cycle([2, 3, 0, 1], [0, 1, 2, 3]) and not same_cycle([3, 2, 1, 0], [0, 1, 2, 3])
    assert not same_cycle([0, 1], [0, 1, 2]) and not same_cycle([4], [0]) and same_cycle([], [])
    assert scores(HULLS, ["2 3 0 1", "0 1 2"], "0 1 2 3")["hull_accuracy"] == 50


def test_the_area_is_that_of_simple_polygons_alone():
    # A triangle has half of the area; sides of the third cross; the fourth repeats a corner; the fifth has two corners.
    found = scores(HULLS, ["0 1 2 3", "0 1 2", "0 2 1 3", "0 1 0 2", "0 1"], "0 1 2 3")
    assert found["area_coverage"] == pytest.approx(75) and found["invalid_hulls"] == pytest.approx(60)
    assert scores(HULLS, [""], "0 1 2 3") == {
        "exact": 0,
        "hull_accuracy": 0,
        "area_coverage": 0,
        "invalid_hulls": 100,
    }


def test_a_simple_polygon_need_not_be_convex():
    assert is_simple(np.array([[0, 0], [4, 0], [1, 1], [0, 4]])) and not is_simple(
        np.array([[0, 0], [1, 1], [1, 0], [0, 1]])
    )


def test_the_length_of_a_tour_has_the_way_back_and_a_broken_tour_is_mended():
    # Around the square, over both inner points: 4 + 4 + 4 + 2 sides of a triangle and a step of 1.
    best = "0 1 2 3 4 5"
    length = 12 + 5**0.5 + 1 + 8**0.5
    found = scores(TOURS, [best, "0 1 2 3"], best)
    assert found["tour_length"] == pytest.approx(length, rel=1e-6) and found["tour_ratio"] == pytest.approx(1)
    assert found["invalid_tours"] == 50
    # Mended to 0 1 2 3 4 5.
    assert scores(TOURS, ["0 1 1 2 3"], best)["tour_ratio"] == pytest.approx(1)


def test_triangles_count_in_any_order():
    found = scores(TRIANGLES, ["2 1 0 0 2 3", "0 1 2 1 2 3"], "0 1 2 0 2 3")
    assert found["triangulation_accuracy"] == 50 and found["triangle_coverage"] == 75


def test_inputs_that_are_no_points_are_refused():
    config = EvaluateConfig()
    with pytest.raises(DataError, match=r"is not a line of points.*evaluate\.positions=sequence"):
        score_all(["0"], ["0"], ["a b c"], config, compares=HULLS)
    with pytest.raises(DataError, match="outside of its 1 point"):
        score_all(["0 1 2"], ["0"], ["1,2"], config, compares=HULLS)
