"""The pointer-generator: what its distribution is, and that its loss is the log of it."""

import math

import pytest
import torch

import regard
from regard.data.batch import make_batch
from regard.data.ragged import Ragged
from regard.errors import ConfigError
from regard.nn.attention_log import capture_attention
from regard.nn.copying import NEVER, mixture, mixture_loss

V = 11
SMALL = {
    "transformer": {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 24, "dropout": 0.0},
    "rnn": {"width": 16, "hidden": 24, "dropout": 0.0},
}
# V and V + 1 are words of the source that the vocabulary does not have.
SOURCES, TARGETS = [[5, V, 6, V + 1], [7, V]], [[V + 1, 4, V], [V, 7, 3]]


@pytest.fixture(params=SMALL)
def model(request):
    torch.manual_seed(1)
    build = {"transformer": regard.Transformer, "rnn": regard.Rnn}[request.param]
    return build(source_size=V, target_size=V, copy=True, **SMALL[request.param]).eval()


def test_the_mixture_of_a_hand_worked_case():
    """Gate 1/2; the vocabulary has 2 ids, 1/2 each; attention is 3/4 to id 1, and 1/4 to id 2, a word behind it."""
    log_NS = torch.tensor([[0.5, 0.25, 0.25]]).log()
    found = mixture(torch.zeros(1, 2), torch.zeros(1), log_NS, torch.tensor([[1, 1, 2]]), 4).exp()
    # Columns: half of 1/2; half of 1/2 and half of 3/4; half of 1/4; no such word.
    assert found.tolist() == [pytest.approx([0.25, 0.625, 0.125, 0.0])]


def test_the_loss_of_a_hand_worked_case():
    logits, gate = torch.zeros(3, 2), torch.zeros(3)
    copied = torch.tensor([math.log(0.75), math.log(0.25), NEVER])
    # The last label does not count.
    loss = mixture_loss(logits, gate, copied, torch.tensor([1, 2, -1]), smoothing=0.0)
    assert loss.item() == pytest.approx(-math.log(0.625) - math.log(0.125))


def test_scores_are_log_probabilities_and_the_loss_is_their_sum(model):
    batch = make_batch(SOURCES, TARGETS)
    scores = model.decode(batch.target, model.encode(batch.source))
    assert scores.shape == (8, V + 2)
    torch.testing.assert_close(scores.exp().sum(dim=-1), torch.ones(8))
    # The second source has one unknown word only.
    assert (scores[4:, V + 1] == float("-inf")).all() and (scores[:4, V:] > float("-inf")).all()
    right = scores.gather(1, batch.labels.values[:, None]).sum()
    torch.testing.assert_close(model(batch), -right)


def test_steps_with_copied_words_equal_all_at_once(model):
    batch = make_batch(SOURCES, TARGETS)
    at_once = Ragged(model.decode(batch.target, model.encode(batch.source)), batch.target.layout).split()
    state = model.start(model.encode(batch.source), beams=1)
    for place in range(4):
        tokens = torch.stack([one[place] for one in batch.target.split()])
        torch.testing.assert_close(
            model.step(tokens, state), torch.stack([one[place] for one in at_once]), rtol=1e-4, atol=1e-5
        )


def test_search_outputs_words_of_the_source_and_never_unknown_ones(model):
    found = regard.search(
        model, make_batch(SOURCES, TARGETS).source, options=regard.SearchOptions(beam=3, max_length=6)
    )
    for source, best in zip(SOURCES, found, strict=True):
        assert all(id in source or 2 < id < V for id in best[0].ids)


def test_the_attention_that_copies_is_recorded(model):
    batch = make_batch(SOURCES[:1], TARGETS[:1])
    with torch.no_grad(), capture_attention() as log:
        model.decode(batch.target, model.encode(batch.source))
    [weights] = log.calls[model.copying][0]
    assert weights.shape == (1, 4, 5)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 4))
    assert log.gates[0].min() > 0 and log.gates[0].max() < 1


def test_copying_needs_one_vocabulary():
    with pytest.raises(ConfigError, match=r"both sides need one vocabulary: set tokenizer\.joint"):
        regard.Transformer(source_size=5, target_size=6, copy=True, tie="none", **SMALL["transformer"])


@pytest.mark.parametrize("kind", [regard.Nat, regard.Cmlm, regard.Ctc])
def test_models_that_output_all_tokens_at_once_do_not_copy(kind):
    with pytest.raises(ConfigError, match=r"model\.copy is for models that output one token after another"):
        kind(source_size=5, target_size=5, copy=True, **SMALL["transformer"])
