"""Options of search and demands on outputs, for every model that outputs a sequence: neighbours change nothing."""

import pytest
import torch

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.automaton import Automaton, Phrase
from regard.decoding.constraints import Demands
from regard.decoding.forced_decoding import forced_scores
from regard.decoding.hypothesis import length_penalty
from regard.decoding.search import search
from regard.models.base import Seq2Seq, TextSeq2Seq
from tests.laws.conftest import fitting, found_once, tables_with
from tests.laws.test_search import SOURCES

OPTIONS = {
    "sampling": {"sample": True, "beam": 3, "nbest": 3},
    "cold": {"sample": True, "beam": 2, "nbest": 2, "temperature": 0.5, "top_k": 4},
    "nucleus": {"sample": True, "beam": 2, "nbest": 2, "top_p": 0.8, "epsilon": 0.02},
    "diverse": {"beam": 4, "beam_groups": 2, "nbest": 3},
    "no repeated bigram": {"beam": 3, "no_repeat_ngram": 2, "nbest": 2},
    "no loops": {"beam": 3, "max_repeats": 1},
    "no loops, greedy": {"beam": 1, "max_repeats": 2},
    "until none can be better": {"beam": 3, "early_stopping": "never", "nbest": 2},
}


def find(model, rows, options, automata=None):
    sources = [SOURCES[row] for row in rows]
    if automata is None:
        return found_once(model, sources, options)
    demands = Demands([automata[row] for row in rows])
    return search(model, Ragged.from_lists(sources), options=options, demands=demands)


def assert_neighbours_change_nothing(model, options, automata=None):
    *shorter, longest = range(len(SOURCES))
    together = find(model, [*shorter, longest], options, automata)
    alone = find(model, [longest], options, automata)
    backwards = [*alone, *find(model, shorter[::-1], options, automata)][::-1]
    for one, other in zip(together, backwards, strict=True):
        assert [each.ids for each in one] == [each.ids for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)
    return together


QUICK = ("sampling", "diverse")


@pytest.mark.parametrize(("model", "name"), tables_with(Seq2Seq, OPTIONS, every=QUICK), indirect=["model"])
def test_neighbours_change_nothing(model, name):
    assert_neighbours_change_nothing(model, SearchOptions(max_extra=3, token_scores=True, **OPTIONS[name]))


@pytest.mark.parametrize("name", [*QUICK, pytest.param("no repeated bigram", marks=pytest.mark.slow)])
def test_scores_descend_and_equal_those_of_forced_decoding(model, name):
    options = SearchOptions(max_extra=3, token_scores=True, **OPTIONS[name])
    results = find(model, range(len(SOURCES)), options)
    found = [(source, one) for source, best in zip(SOURCES, results, strict=True) for one in best]
    labels = [[*one.ids, model.eos][: len(one.token_scores)] for _, one in found]
    # All hypotheses in one batch, and in batches of few tokens.
    for tokens in (2048, 30):
        forced = forced_scores(model, [source for source, _ in found], labels, tokens=tokens)
        for (_, one), given in zip(found, forced, strict=True):
            assert one.token_scores == pytest.approx(given.scores, abs=1e-3)
            penalty = length_penalty(len(given.scores), options)
            assert one.score == pytest.approx(sum(given.scores) / penalty, abs=1e-3)
    for best in results:
        assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)


def test_forced_decoding_gives_the_probabilities_of_decoding_and_those_under_a_temperature(model):
    source, labels = SOURCES[0], [*fitting(model, [4, 9, 3], len(SOURCES[0])), model.eos]
    neighbour = [*fitting(model, [7], len(SOURCES[1])), model.eos]
    [found, _] = forced_scores(model, [source, SOURCES[1]], [labels, neighbour], temperature=2.0)
    with torch.no_grad():
        memory = model.encode(Ragged.from_lists([source]))
        logits = model.decode(Ragged.from_lists([[model.bos, *labels[:-1]]]), memory)
    for scores, expected in ((found.scores, logits), (found.calibrated, logits / 2)):
        logp = expected.log_softmax(-1)
        assert scores == pytest.approx([logp[place, token].item() for place, token in enumerate(labels)], abs=1e-3)


@pytest.mark.slow
def test_samples_follow_from_the_seed_and_greedy_search_from_no_temperature(model):
    settings = {"sample": True, "beam": 4, "nbest": 4, "max_extra": 4}
    first, other = (find(model, range(len(SOURCES)), SearchOptions(seed=seed, **settings)) for seed in (1, 2))
    assert first == search(model, Ragged.from_lists(SOURCES), options=SearchOptions(seed=1, **settings))
    assert [[one.ids for one in some] for some in first] != [[one.ids for one in some] for some in other]
    frozen = find(model, range(len(SOURCES)), SearchOptions(sample=True, temperature=0.0, beam=1, max_extra=4))
    greedy = find(model, range(len(SOURCES)), SearchOptions(beam=1, max_extra=4))
    assert [some[0].ids for some in frozen] == [some[0].ids for some in greedy]


def test_repetitions_are_not_there(model):
    for size in (1, 2):
        options = SearchOptions(beam=3, no_repeat_ngram=size, max_extra=4)
        for (best,) in find(model, range(len(SOURCES)), options):
            runs = [tuple(best.ids[at : at + size]) for at in range(len(best.ids) - size + 1)]
            assert len(set(runs)) == len(runs), best.ids
    for beam in (1, 3):
        for (best,) in find(model, range(len(SOURCES)), SearchOptions(beam=beam, max_repeats=2, max_extra=8)):
            ids = best.ids
            for size in range(1, len(ids) // 3 + 1):
                for at in range(len(ids) - 3 * size + 1):
                    run = ids[at : at + size]
                    assert ids[at : at + 3 * size] != run * 3, ids


def test_outputs_contain_their_phrases(model):
    if not isinstance(model, TextSeq2Seq) or model.max_length is not None:
        pytest.skip("its outputs are not text, or not longer than its longest source")
    phrases = [
        [[(5, 6)]],
        [],
        [[(9,), (8, 8)], [(4, 4)]],
        [[(7, 7, 7)], [(7, 8)]],
        [[(3, 10)]],
        [[(6, 5, 6)], [(5, 6)]],
    ]
    automata = [
        Automaton(model.eos, phrases=tuple(Phrase(tuple(forms)) for forms in some), continuing={10}) if some else None
        for some in phrases
    ]
    for extra in (4, 0):
        options = SearchOptions(beam=4, nbest=2, max_extra=extra)
        found = assert_neighbours_change_nothing(model, options, automata)
        for automaton, best in zip(automata, found, strict=True):
            assert automaton is None or all(automaton.unmet(one.ids) == [] for one in best), best
    free = find(model, range(len(SOURCES)), SearchOptions(beam=4, max_extra=4))
    assert found[1][0].ids == free[1][0].ids or extra == 0
