"""Which candidate is taken: by dev scores, within the bound on the general score."""

import pytest

from regard.adapting.candidates import candidates_for
from regard.adapting.choosing import Point, best_point, superseded
from regard.adapting.replay import replay_weight
from regard.adapting.scoring import DevScores
from regard.data.mixing import examples_drawn

BASE = DevScores(domain=40.0, general=60.0)


def point(name, domain, general, share=1.0):
    return Point(name, 20, domain, general, seconds=1.0, share=share)


def test_the_best_score_of_the_domain_wins_within_the_bound():
    points = [point("a", 45.0, 59.9), point("b", 50.0, 59.5), point("c", 44.0, 61.0)]
    assert best_point(points, BASE, bound=0.2).candidate == "a"
    assert best_point(points, BASE, bound=0.5).candidate == "b"


def test_if_all_lose_too_much_the_one_that_loses_least_is_taken():
    points = [point("a", 45.0, 58.0), point("b", 44.0, 59.0)]
    assert best_point(points, BASE, bound=0.2).candidate == "b"


def test_without_general_text_only_the_domain_counts():
    points = [point("a", 45.0, None), point("b", 46.0, None), point("c", 44.0, None)]
    assert best_point(points, DevScores(40.0, None), bound=0.2).candidate == "b"


def test_weights_are_kept_while_they_may_be_taken_or_averaged():
    first, second, third = point("a", 45.0, 59.0), point("b", 46.0, 58.0), point("a", 47.0, 59.0)
    assert superseded([first, second], second) == []  # the first one forgets less
    assert superseded([first, second, third], third) == [first, second]
    mean, other = point("a", 48.0, 59.5, share=0.8), point("a", 49.0, 59.6, share=0.65)
    assert superseded([third, mean], mean) == []  # the next mean is made of the trained weights, too
    assert superseded([third, mean, other], other) == [mean]


@pytest.mark.parametrize(("kind", "share"), [("general", 1.0), ("self", 0.5)])
@pytest.mark.parametrize(("train", "replay"), [(20, 20), (400, 20_000), (4000, 500)])
def test_replay_is_drawn_as_often_as_its_share_says(kind, share, train, replay):
    drawn = examples_drawn((train, replay), (1.0, replay_weight(kind, train=train, replay=replay)))
    assert drawn[1] / drawn[0] == pytest.approx(share, rel=0.05)


def test_wider_models_get_lower_rates():
    narrow, wide = candidates_for(256), candidates_for(512)
    assert [one.rate for one in wide] == pytest.approx([one.rate / 2 for one in narrow], rel=0.05)
    assert len({one.name for one in narrow}) == len(narrow)
