"""How beams are divided: over what has been met, and between groups. The numbers are worked by hand."""

import torch

from regard.config import SearchOptions
from regard.decoding.automaton import Automaton, Phrase, State
from regard.decoding.sampling import SampleOptions
from regard.decoding.selection import Continuation, DiverseGroups, select_by_progress
from regard.decoding.torch_scores import draw

EOS = 0


def test_beams_are_given_in_turn_to_those_that_have_met_most():
    automaton = Automaton(EOS, phrases=(Phrase(((5, 6),), whole_words=False),))
    states = {0: State(), 1: automaton.advance(State(), 5)}
    pool = [
        *(Continuation(-1.0, 3, 0), Continuation(-2.0, 4, 0), Continuation(-3.0, 7, 0), Continuation(-8.0, 5, 0)),
        *(Continuation(-9.0, 6, 1), Continuation(-4.0, 3, 1)),
    ]
    found = select_by_progress(pool, automaton, states, beams=4)
    # One that has met all, one that has begun, and two that have met nothing.
    assert [(one.token, one.row) for one in found.open] == [(6, 1), (5, 0), (3, 0), (4, 0)]
    assert found.ended == []


def test_an_output_ends_if_it_is_among_the_best_of_those_with_everything_met():
    automaton = Automaton(EOS, phrases=(Phrase(((5,),), whole_words=False),))
    states = {0: State(), 1: automaton.advance(State(), 5)}
    better = [Continuation(-1.0, 3, 0), Continuation(-1.5, 4, 0)]
    done = [Continuation(-6.0, EOS, 1), Continuation(-7.0, 3, 1)]
    assert select_by_progress([*better, *done], automaton, states, beams=1).ended == done[:1]
    worse = [Continuation(-7.5, EOS, 1), Continuation(-7.0, 3, 1)]
    assert select_by_progress([*better, *worse], automaton, states, beams=1).ended == []


def test_a_group_avoids_the_tokens_that_earlier_groups_have_just_taken():
    groups = DiverseGroups(SearchOptions(beam=2, beam_groups=2, diversity_penalty=1.0), EOS)
    first = groups.select(0, [Continuation(-1.0, 3, 0), Continuation(-1.5, 4, 0), Continuation(-3.0, 5, 0)])
    assert [one.token for one in first.open] == [3, 4]
    # Each group continues its own beam; both would take token 6, which costs the second one more than token 7 does.
    pool = [Continuation(-2.0, 6, 0), Continuation(-3.0, 7, 0), Continuation(-2.5, 6, 1), Continuation(-3.2, 7, 1)]
    second = groups.select(0, pool)
    assert [(one.token, one.row, one.score) for one in second.open] == [(6, 0, -2.0), (7, 1, -3.2)]


def test_the_nucleus_and_epsilon_leave_out_unlikely_tokens():
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log().expand(100, 4)
    numbers = torch.linspace(0, 1, 100, dtype=torch.float64)
    assert set(draw(logits, SampleOptions(top_p=0.7), numbers).tolist()) == {0, 1}
    assert set(draw(logits, SampleOptions(top_p=0.76), numbers).tolist()) == {0, 1, 2}
    assert set(draw(logits, SampleOptions(epsilon=0.12), numbers).tolist()) == {0, 1, 2}
    assert set(draw(logits, SampleOptions(epsilon=0.9), numbers).tolist()) == {0}
    found = draw(logits, SampleOptions(top_p=0.7), numbers)
    assert (found == 0).sum() == 67  # two thirds of the evenly spaced numbers
