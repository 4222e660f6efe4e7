"""Laws of search that hold for every model that outputs a sequence."""

import itertools

import pytest
import torch

from regard import kernels
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.automaton import Automaton
from regard.decoding.beam_search import BeamSearch
from regard.decoding.constraints import Demands
from regard.decoding.cuda_graph_model import CudaGraphModel, with_cuda_graphs
from regard.decoding.next_tokens import NextTokens
from regard.decoding.search import refine, search, search_each
from regard.decoding.torch_scores import TorchStepModel
from regard.models.base import Seq2Seq, StaticSeq2Seq, TextSeq2Seq
from regard.text.tokenizer import BOS, EOS
from tests.laws.conftest import fitting, found_once, tables_with

SOURCES = [[5, 6, 7, 8, 2], [9, 2], [3, 4, 5, 2], [10, 10, 2], [7, 2], [4, 4, 4, 4, 4, 4, 2]]
LONGEST = 5  # the row of SOURCES that is also searched alone
NEVER = float("-inf")


@pytest.mark.parametrize("beam", [1, 4])
def test_output_does_not_depend_on_batch_size_or_order(model, beam):
    options = SearchOptions(beam=beam, nbest=beam, max_extra=4)
    together = found_once(model, SOURCES, options)
    *shorter, longest = SOURCES
    alone = search(model, Ragged.from_lists([longest]), options=options)
    backwards = [*alone, *search(model, Ragged.from_lists(shorter[::-1]), options=options)][::-1]
    for one, other in zip(together, backwards, strict=True):
        assert [found.ids for found in one] == [found.ids for found in other]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-4)


BEAM_AND_EXTRA = [
    (3, 2),
    (1, 2),
    (1, 8),
    (3, 8),
]  # with two extra tokens there is room for the placeholders and little else


@pytest.mark.parametrize(
    ("model", "beam_and_extra"), tables_with(Seq2Seq, BEAM_AND_EXTRA, every=BEAM_AND_EXTRA[:1]), indirect=["model"]
)
def test_each_output_has_the_placeholders_of_its_source_exactly_once(model, beam_and_extra):
    beam, extra = beam_and_extra
    if not isinstance(model, TextSeq2Seq) or model.max_length is not None:
        pytest.skip("its outputs are not text, or not longer than its longest source")
    ids = (9, 10, 8)
    wanted = [((9, 10), (9, 10)), ((), ()), ((8,), ()), ((9, 10, 8), (10, 8)), ((10,), ()), ((9, 8), ())]
    automata = [Automaton(model.eos, symbols=some, in_order=ordered) or None for some, ordered in wanted]
    options = SearchOptions(beam=beam, max_extra=extra)

    def find(rows):
        source, demands = (
            Ragged.from_lists([SOURCES[row] for row in rows]),
            Demands([automata[row] for row in rows], ids),
        )
        found = search(model, source, options=options, demands=demands)
        return [best[0].ids for best in found]

    outputs = find(range(len(SOURCES)))
    for output, (some, ordered) in zip(outputs, wanted, strict=True):
        found = [token for token in output if token in ids]
        assert sorted(found) == sorted(some)
        assert [token for token in found if token in ordered] == list(ordered)
    assert [outputs[LONGEST]] == find([LONGEST])
    assert outputs[:LONGEST] == find(range(LONGEST)[::-1])[::-1]


@pytest.mark.parametrize("beam", [1, 4])
def test_kernels_find_what_pytorch_finds(model, beam):
    options = SearchOptions(beam=beam, max_extra=4, nbest=beam)
    with kernels.allowed(False):
        plain = search(model, Ragged.from_lists(SOURCES), options=options)
    found = search(model.for_inference(), Ragged.from_lists(SOURCES), options=options)
    assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in plain]
    scores = [[one.score for best in some for one in best] for some in (found, plain)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("extra", [0, 1])  # without extra tokens some sentences end in the first step
def test_each_sentence_is_returned_once_and_short_ones_first(model, beam, extra):
    # With so large a min_length each output runs to its limit.
    options = SearchOptions(beam=beam, min_length=99, max_extra=extra)
    found = list(search_each(model, Ragged.from_lists(SOURCES), options=options))
    sentences = [sentence for some in found for sentence, _ in some]
    assert sorted(sentences) == list(range(len(SOURCES))) and len(found) > 1
    lengths = [[len(best[0].ids) for _, best in some] for some in found]
    assert all(max(earlier) <= min(later) for earlier, later in itertools.pairwise(lengths))
    together = search(model, Ragged.from_lists(SOURCES), options=options)
    assert all(together[sentence] == best for some in found for sentence, best in some)


def test_a_beam_of_one_is_greedy_search(model):
    source = Ragged.from_lists(SOURCES)
    options = SearchOptions(beam=1, max_extra=4)
    greedy = found_once(model, SOURCES, options)
    limits = [options.limit(len(ids) - 1) for ids in SOURCES]
    with torch.inference_mode():
        beam = BeamSearch(TorchStepModel(model), model.encode(source), limits, NextTokens(model, options, None))
        found = dict(one for some in beam.run() for one in some)
    for sentence, one in enumerate(greedy):
        assert one[0].ids == found[sentence][0].ids
        assert one[0].score == pytest.approx(found[sentence][0].score, abs=1e-4)


def test_scores_are_the_models_and_sorted(model):
    options = SearchOptions(beam=4, nbest=4, length_penalty=0.0, max_extra=3)
    results = search(model, Ragged.from_lists(SOURCES), options=options)
    for found in results:
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert len({tuple(one.ids) for one in found}) == len(found)
    pairs = [(source, one) for source, found in zip(SOURCES, results, strict=True) for one in found]
    labels = [[*one.ids, model.eos] if len(one.ids) < len(source) - 1 + 3 else one.ids for source, one in pairs]
    target = Ragged.from_lists([[model.bos, *ids[:-1]] for ids in labels])
    with torch.no_grad():
        logp = model.decode(target, model.encode(Ragged.from_lists([source for source, _ in pairs]))).log_softmax(-1)
    for (_, one), ids, scores in zip(pairs, labels, Ragged(logp, target.layout).split(), strict=True):
        assert one.score == pytest.approx(sum(scores[range(len(ids)), ids].tolist()), abs=1e-3)


@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_keep_to_the_fewest_and_the_most_tokens(model, beam):
    options = SearchOptions(beam=beam, max_extra=2, min_length=2)
    for source, found in zip(SOURCES, search(model, Ragged.from_lists(SOURCES), options=options), strict=True):
        assert 2 <= len(found[0].ids) <= len(source) - 1 + 2


@pytest.mark.parametrize("beam", [1, 3])
def test_non_autoregressive_output_does_not_depend_on_batch_size_or_order(non_autoregressive, beam):
    options = SearchOptions(beam=beam, nbest=beam, max_extra=4, iterations=4)
    together = refine(non_autoregressive, Ragged.from_lists(SOURCES), options=options)
    backwards = refine(non_autoregressive, Ragged.from_lists(SOURCES[::-1]), options=options)[::-1]
    alone = [refine(non_autoregressive, Ragged.from_lists([source]), options=options)[0] for source in SOURCES]
    for one, other, third in zip(together, alone, backwards, strict=True):
        assert [found.ids for found in one] == [found.ids for found in other] == [found.ids for found in third]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-4)


def test_non_autoregressive_output_is_short_enough_sorted_and_without_bos_and_eos(non_autoregressive):
    options = SearchOptions(beam=3, nbest=3, max_extra=2, iterations=2)
    for source, found in zip(
        SOURCES, refine(non_autoregressive, Ragged.from_lists(SOURCES), options=options), strict=True
    ):
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            assert len(one.ids) <= len(source) - 1 + 2
            # BOS is also the mask and the blank.
            assert not {BOS, EOS} & set(one.ids)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("extra", [0, 4])
def test_steps_with_a_static_state_find_what_the_models_own_steps_find(model, beam, extra, monkeypatch):
    # So few that search has to make room on the way.
    monkeypatch.setattr("regard.decoding.cuda_graph_model.FIRST_STEPS", 2)
    options = SearchOptions(beam=beam, nbest=beam, max_extra=extra)
    if not (isinstance(model, StaticSeq2Seq) and model.has_static_state):
        assert with_cuda_graphs(model) is model
        return
    recorded = CudaGraphModel(model)
    recorded.device_search = None  # its laws are in test_device_search.py
    for sources in (SOURCES, SOURCES[:1], SOURCES[2:5]) if extra else (SOURCES,):
        found = search(recorded, Ragged.from_lists(sources), options=options)
        for one, other in zip(found, found_once(model, sources, options), strict=True):
            assert [each.ids for each in one] == [each.ids for each in other]
            assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
def test_outputs_begin_with_their_prefixes(model, beam):
    options = SearchOptions(beam=beam, nbest=beam, max_extra=4)
    free = found_once(model, SOURCES, options)
    prefixes = [[], [4], [9, 9, 3], [5, 6], [8, 7, 6, 5, 4, 3], [3]]
    prefixes = [fitting(model, ids, len(source)) for ids, source in zip(prefixes, SOURCES, strict=True)]
    for prefix, found in zip(
        prefixes,
        search(model, Ragged.from_lists(SOURCES), options=options, demands=Demands.prefixes(prefixes, eos=model.eos)),
        strict=True,
    ):
        assert found[0].ids[: len(prefix)] == prefix
    own = [found[0].ids[:2] for found in free]
    again = search(model, Ragged.from_lists(SOURCES), options=options, demands=Demands.prefixes(own, eos=model.eos))
    # A wider beam may have found its best along other prefixes.
    if beam == 1:
        assert [one[0].ids for one in again] == [one[0].ids for one in free]
        assert [one[0].score for one in again] == pytest.approx([one[0].score for one in free], abs=1e-4)
