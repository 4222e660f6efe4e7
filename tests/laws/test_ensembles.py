"""Laws of ensembles: one model is itself, and several have the mean of their probabilities, for every family."""

import copy

import pytest
import torch

from regard.config import SearchOptions
from regard.data.batch import make_batch
from regard.data.ragged import Ragged
from regard.decoding.cuda_graph_model import CudaGraphModel
from regard.decoding.ensemble import Ensemble
from regard.decoding.search import search
from regard.errors import ConfigError
from regard.models.base import StaticSeq2Seq
from tests.laws.conftest import ALL, SOURCES, small


def other_weights(model):
    """The same model with other weights."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(9)
    for parameter in other.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return other


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3, "nbest": 3}, {"sample": True, "beam": 2, "nbest": 2}])
def test_an_ensemble_of_one_equals_the_model(model, source, options):
    options = SearchOptions(max_extra=4, **options)
    for one, other in zip(
        search(Ensemble([model]), source, options=options), search(model, source, options=options), strict=True
    ):
        assert [each.ids for each in one] == [each.ids for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)


def test_probabilities_are_means(model, source, target):
    other = other_weights(model)
    with torch.no_grad():
        probabilities = [one.decode(target, one.encode(source)).softmax(dim=-1) for one in (model, other)]
        ensemble = Ensemble([model, other])
        found = ensemble.decode(target, ensemble.encode(source)).exp()
    torch.testing.assert_close(found, (probabilities[0] + probabilities[1]) / 2)
    assert not torch.allclose(probabilities[0], probabilities[1], atol=1e-3)


def test_neighbours_change_nothing_and_order_neither(model):
    other, options = other_weights(model), SearchOptions(beam=3, nbest=2, max_extra=4)
    together = search(Ensemble([model, other]), Ragged.from_lists(SOURCES), options=options)
    for ids, expected in zip(SOURCES, together, strict=True):
        (alone,) = search(Ensemble([other, model]), Ragged.from_lists([ids]), options=options)
        assert [one.ids for one in alone] == [one.ids for one in expected]
        assert [one.score for one in alone] == pytest.approx([one.score for one in expected], abs=1e-4)


def test_steps_of_members_can_be_captured(model, source):
    if not isinstance(model, StaticSeq2Seq) or not model.has_static_state:
        pytest.skip("its steps are not captured")
    other, options = other_weights(model), SearchOptions(beam=3, nbest=2, max_extra=4)
    plain = search(Ensemble([model, other]), source, options=options)
    captured = Ensemble([CudaGraphModel(model), CudaGraphModel(other)])
    assert captured.members == (model, other)
    for one, expected in zip(search(captured, source, options=options), plain, strict=True):
        assert [each.ids for each in one] == [each.ids for each in expected]


def test_families_can_be_mixed_and_the_shortest_limit_holds():
    members = [small(ALL["transformer-learned"]), small(ALL["rnn-additive"]), small(ALL["bytenet-plain"])]
    ensemble = Ensemble(members)
    assert ensemble.max_length == members[0].max_length is not None
    found = search(ensemble, Ragged.from_lists(SOURCES), options=SearchOptions(beam=2, max_extra=3))
    assert [len(best) for best in found] == [1] * len(SOURCES)
    ready = ensemble.for_inference()
    again = search(ready, Ragged.from_lists(SOURCES), options=SearchOptions(beam=2, max_extra=3))
    assert [best[0].ids for best in again] == [best[0].ids for best in found]
    with torch.no_grad():
        batch = make_batch([[5, 6]], [[7, 8]])
        assert ensemble(batch) > 0


def test_other_models_are_refused():
    transformer = small(ALL["transformer-paper"])
    with pytest.raises(ConfigError, match="models that output one token after another"):
        Ensemble([transformer, small(ALL["ctc-paper"])])
    with pytest.raises(ConfigError, match="differ in copies"):
        Ensemble([transformer, small(ALL["transformer-copy"])])
