"""The automaton of one sentence: whatever is output within what it allows, everything is met where there is room."""

import random

from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.automaton import Allowed, Automaton, Phrase, State

EOS = 0
TOKENS = range(8)
CONTINUING = {1, 2}
# A phrase begins with the beginning of a word.
forms = st.tuples(st.integers(3, 5), st.lists(st.integers(1, 5), max_size=2)).map(lambda two: (two[0], *two[1]))
phrases = st.lists(st.lists(forms, min_size=1, max_size=2, unique=True).map(tuple).map(Phrase), max_size=3).map(tuple)


def walk(automaton, room, draw):
    """Return a random output within what the automaton allows, of at most so many tokens."""
    state, output = State(), []
    others = {6, 7} - set(automaton.symbols)  # which the search never outputs
    while len(output) < room:
        only, never = automaton.next_tokens(state, room - len(output))
        token = draw.choice(
            sorted(only) if only is not None else [one for one in TOKENS if one not in others and one not in never]
        )
        if token == EOS:
            break
        output.append(token)
        state = automaton.advance(state, token)
    return output


def contains(output, form):
    """Whether an output contains a form, and the word at its end is not continued; not by the automaton's own means."""
    ends = [at + len(form) for at in range(len(output)) if tuple(output[at : at + len(form)]) == form]
    return any(end == len(output) or output[end] not in CONTINUING for end in ends)


@given(phrases, st.lists(st.sampled_from([6, 7]), unique=True), st.integers(0, 3), st.integers(0, 10**6))
def test_an_output_with_room_for_everything_has_everything(some, symbols, more, seed):
    automaton = Automaton(EOS, phrases=some, symbols=tuple(symbols), in_order=tuple(symbols), continuing=CONTINUING)
    output = walk(automaton, automaton.total + more, random.Random(seed))
    for phrase in some:
        assert any(contains(output, form) for form in phrase.forms), output
    assert [token for token in output if token in (6, 7)] == symbols
    assert automaton.unmet(output) == []


@given(phrases, st.lists(st.integers(1, 5), max_size=12))
def test_what_an_output_lacks_is_named(some, output):
    automaton = Automaton(EOS, phrases=some, continuing=CONTINUING)
    lacking = [number for number, phrase in enumerate(some) if not any(contains(output, form) for form in phrase.forms)]
    assert automaton.unmet(output) == lacking


def test_a_prefix_comes_first_and_counts():
    automaton = Automaton(EOS, prefix=(3, 4), phrases=(Phrase(((4,),)),))
    state = State()
    for token in (3, 4):
        assert automaton.next_tokens(state, 5) == Allowed(only=frozenset({token}))
        state = automaton.advance(state, token)
    assert automaton.accepts(state) and automaton.remaining(state) == 0


def test_an_output_may_not_end_before_and_may_not_break_off_where_there_is_no_room_to_begin_again():
    automaton = Automaton(EOS, phrases=(Phrase(((3, 4, 5),)),))
    assert automaton.next_tokens(State(), 4) == Allowed(never=(EOS,))
    begun = automaton.advance(State(), 3)
    assert (automaton.remaining(begun), automaton.wanted(begun)) == (2, {3, 4})
    assert automaton.next_tokens(begun, 3) == Allowed(only=frozenset({4}))
    assert automaton.next_tokens(automaton.advance(automaton.advance(begun, 4), 5), 1).only == {EOS}


def test_a_word_that_is_continued_is_another_word():
    automaton = Automaton(EOS, phrases=(Phrase(((3,),)),), continuing={1})
    begun = automaton.advance(State(), 3)
    assert automaton.accepts(begun)
    assert not automaton.accepts(automaton.advance(begun, 1))
    assert automaton.unmet([3, 4]) == [] and automaton.unmet([3, 1]) == [0]


def begun(output, form):
    """Return how many tokens of a form an output ends with."""
    return max(count for count in range(len(form) + 1) if tuple(output)[len(output) - count :] == form[:count])


@given(phrases, st.lists(st.integers(1, 5), max_size=12))
def test_what_remains_and_is_wanted_is_what_comparing_all_forms_gives(some, output):
    automaton, state = Automaton(EOS, phrases=some, continuing=CONTINUING), State()
    for token in output:
        state = automaton.advance(state, token)
    unmet = [phrase for number, phrase in enumerate(some) if not state.met >> number & 1]
    counts = {form: begun(output, form) for phrase in unmet for form in phrase.forms}
    shortest = [min(map(len, phrase.forms)) for phrase in unmet]
    missing = [min(len(form) - counts[form] for form in phrase.forms) for phrase in unmet]
    saved = max([0, *(one - other for one, other in zip(shortest, missing, strict=True))])
    assert automaton.remaining(state) == sum(shortest) - saved
    following = {form[count] for form, count in counts.items() if count < len(form)}
    assert automaton.wanted(state) == {form[0] for form in counts} | following
