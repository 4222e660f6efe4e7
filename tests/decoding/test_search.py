"""Beam search against brute force, models with other first and last tokens, and the parts of a step."""

import itertools
import math

import pytest
import torch

from regard import kernels
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.hypothesis import length_penalty
from regard.decoding.ranking import log_normalizer, top_k
from regard.decoding.search import search, stream_greedy
from regard.errors import DecodeError
from regard.models import build_model
from regard.models.base import Seq2Seq

SOURCE = [5, 4, 3, 2]


@pytest.fixture(params=range(4))
def tiny(request):
    """A model with six tokens whose random scores are large enough to differ between prefixes."""
    with torch.random.fork_rng():
        torch.manual_seed(request.param)
        table = {"kind": "transformer", "width": 8, "num_layers": 1, "num_heads": 2, "hidden": 16, "tie": "none"}
        model = build_model(table, source_size=6, target_size=6).eval()
    with torch.no_grad():
        model.output *= 4
    return model


def all_hypotheses(model, limit, options):
    """Every output of at most `limit` tokens with its score, best first. An output of `limit` tokens needs no EOS."""
    scored = []
    for length in range(limit + 1):
        outputs = list(itertools.product([0, 3, 4, 5], repeat=length))
        labels = torch.tensor([[*ids, 2] if length < limit else list(ids) for ids in outputs])
        with torch.no_grad():
            memory = model.encode(Ragged.from_lists([SOURCE] * len(outputs)))
            target = Ragged.from_lists([[1, *row[:-1]] for row in labels.tolist()])
            logp = model.decode(target, memory).log_softmax(-1).view(*labels.shape, -1)
        totals = logp.gather(-1, labels[..., None]).sum((1, 2)) / length_penalty(labels.size(1), options)
        scored += zip(totals.tolist(), map(list, outputs), strict=True)
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_wide_beam_finds_the_brute_force_best(tiny, alpha, kind, early):
    options = SearchOptions(
        beam=300, nbest=3, length_penalty=alpha, length_penalty_kind=kind, early_stopping=early, max_length=4
    )
    found = search(tiny, Ragged.from_lists([SOURCE]), options=options)[0]
    expected = all_hypotheses(tiny, 4, options)[:3]
    assert [one.ids for one in found] == [ids for _, ids in expected]
    assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


def test_a_wider_beam_finds_no_worse_score(tiny):
    scores = [
        search(tiny, Ragged.from_lists([SOURCE]), options=SearchOptions(beam=beam, length_penalty=0.0, max_length=4))[
            0
        ][0].score
        for beam in (1, 300)
    ]
    assert scores[0] <= scores[1] + 1e-5


def test_length_penalty_by_hand():
    assert length_penalty(1, SearchOptions(length_penalty=0.6)) == 1.0  # (5 + 1) / 6
    assert length_penalty(7, SearchOptions(length_penalty=1.0)) == 2.0
    assert length_penalty(7, SearchOptions(length_penalty=0.0)) == 1.0
    assert length_penalty(9, SearchOptions(length_penalty=0.5, length_penalty_kind="power")) == 3.0


class Coin(Seq2Seq):
    """A model that ends its output with probability 0.4 after any token, and else outputs token 1."""

    bos, eos, never = 0, 0, ()

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor([0.4, 0.6]).log())

    def encode(self, source):
        return len(source.layout.lengths)

    def start(self, memory, *, beams):
        return CoinState()

    def step(self, tokens, state):
        return self.logits.detach().expand(len(tokens), -1).clone()

    def decode(self, target, memory):
        raise NotImplementedError

    def forward(self, batch, *, smoothing=0.0):
        raise NotImplementedError


class CoinState:
    def expand_beams(self):
        pass

    def reorder(self, rows):
        pass


def test_search_stops_at_the_first_outputs_or_when_no_open_one_scores_higher():
    options = SearchOptions(beam=2, length_penalty=1.0, length_penalty_kind="power", max_length=4)
    source = Ragged.from_lists([[5, 6, 7, 2]])
    (best,) = search(Coin(), source, options=options)[0]
    # Two outputs have ended after two steps: none and one token. log(0.6 * 0.4) / 2 is more than log(0.4).
    assert best.ids == [1] and best.score == pytest.approx(math.log(0.6 * 0.4) / 2)
    (best,) = search(Coin(), source, options=options.replace(early_stopping=False))[0]
    # Open ones always have log(0.6) per token, which is more, so that search continues to the limit.
    assert best.ids == [1, 1, 1, 1] and best.score == pytest.approx(math.log(0.6))


@pytest.mark.parametrize("width", [5, 130, 1000, 8192])
@pytest.mark.parametrize("k", [1, 4])
def test_top_k_is_torchs(generator, width, k):
    scores = torch.randn(6, width, generator=generator)
    values, places = top_k(scores, k)
    expected = torch.topk(scores, k, dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("width", [5, 8192, 37001])
# Even, as trained models have it, and too large for exp.
@pytest.mark.parametrize("peak", [0.0, 18.0, 200.0])
def test_the_normalizer_is_exact_to_many_digits(generator, layout, width, peak):
    logits = torch.randn(6, width, generator=generator)
    logits[:, 3] += peak
    if layout == "columns":
        logits = logits.t().contiguous().t()
    expected = logits.double().logsumexp(dim=-1)
    torch.testing.assert_close(log_normalizer(logits).double(), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"beam": 0}, "beam is 0; it must be from 1 to 1,000"),
        ({"beam": 2, "nbest": 3}, "or for a wider beam"),
        ({"length_penalty": -1.0}, "it must be from 0 to 100"),
        ({"length_penalty_kind": "root"}, "length_penalty_kind is 'root'; it must be 'wu' or 'power'"),
        ({"early_stopping": 1}, "early_stopping is 1; it must be True or False"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong, sentence):
    with pytest.raises(DecodeError, match=sentence):
        SearchOptions(**wrong)


class FakePointer(Seq2Seq):
    """A model whose outputs are positions of the source, from 1; column 0 ends an output and starts every row.

    A score depends on the step, the last token and the next one. Positions that a sentence does not have are masked.
    """

    bos, eos, never = 0, 0, ()

    def __init__(self, longest):
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.scores = torch.nn.Parameter(2 * torch.randn(9, longest + 1, longest + 1, generator=generator))

    def encode(self, source):
        return torch.tensor(source.layout.lengths)

    def start(self, memory, *, beams):
        return FakeState(memory, beams)

    def step(self, tokens, state):
        lengths = state.lengths.repeat_interleave(len(tokens) // len(state.lengths))
        assert (tokens <= lengths).all(), "search continues with a position that the sentence does not have"
        columns = torch.arange(int(state.longest) + 1)
        logits = self.scores[state.steps][tokens][:, columns].masked_fill(columns > lengths[:, None], float("-inf"))
        state.steps += 1
        return logits

    def forward(self, batch, *, smoothing=0.0):
        logits = self.decode(batch.target, self.encode(batch.source))
        return torch.nn.functional.cross_entropy(logits, batch.labels.values, reduction="sum")

    def decode(self, target, memory):
        return torch.stack([self.scores[step][token] for row in target.as_lists() for step, token in enumerate(row)])


class FakeState:
    def __init__(self, lengths, beams):
        self.lengths, self.longest, self.beams, self.steps = lengths, lengths.max(), beams, 0

    def expand_beams(self):
        pass

    def reorder(self, rows):
        self.lengths = self.lengths[rows.view(-1, self.beams)[:, 0] // self.beams]


def all_pointer_hypotheses(model, length, limit):
    scored = []
    for count in range(limit + 1):
        for ids in itertools.product(range(1, length + 1), repeat=count):
            labels = [*ids, 0] if count < limit else list(ids)
            logp = [
                model.scores[step, last, : length + 1].log_softmax(0) for step, last in enumerate([0, *labels[:-1]])
            ]
            scored.append((sum(row[token].item() for row, token in zip(logp, labels, strict=True)), list(ids)))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("allowed", [True, False], ids=["kernels", "pytorch"])
def test_search_finds_the_brute_force_best_of_a_model_that_ends_with_column_0(allowed):
    lengths = [3, 1, 2, 3]
    model = FakePointer(3)
    source = Ragged.from_lists([[7] * length for length in lengths])
    options = SearchOptions(beam=100, nbest=4, length_penalty=0.0, max_length=3)
    with kernels.allowed(allowed):
        found = search(model, source, options=options)
    for length, best in zip(lengths, found, strict=True):
        expected = all_pointer_hypotheses(model, length, 3)[:4]
        assert [one.ids for one in best] == [ids for _, ids in expected]
        assert [one.score for one in best] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("allowed", [True, False], ids=["kernels", "pytorch"])
def test_greedy_search_and_streaming_use_the_models_own_first_token_and_end(allowed):
    model, lengths = FakePointer(5), [5, 1, 4, 2]
    options = SearchOptions(beam=1, max_length=8)
    expected = []
    for length in lengths:
        ids = [0]
        while len(ids) <= 8 and (len(ids) == 1 or ids[-1] != 0):
            ids.append(int(model.scores[len(ids) - 1, ids[-1], : length + 1].argmax()))
        expected.append([token for token in ids if token != 0])
    with kernels.allowed(allowed):
        found = search(model, Ragged.from_lists([[7] * length for length in lengths]), options=options)
        streamed = [stream_greedy(model, [7] * n, options=options, on_token=lambda ids: None) for n in lengths]
    assert [best[0].ids for best in found] == streamed == expected
    assert len({tuple(ids) for ids in expected}) > 1


def test_no_output_ends_before_its_fewest_tokens_whichever_column_ends_it():
    model, source = FakePointer(4), Ragged.from_lists([[7] * 4, [7] * 2])
    for beam in (1, 3):
        found = search(model, source, options=SearchOptions(beam=beam, min_length=3, max_length=6))
        assert all(len(best[0].ids) >= 3 and 0 not in best[0].ids for best in found)


def test_scores_that_are_not_finite_are_refused_in_one_sentence(tiny):
    with torch.no_grad():
        tiny.decoder[0].attention.project.weight.fill_(float("inf"))
    with pytest.raises(DecodeError, match=r"^the model's scores are not finite; its weights are damaged"):
        search(tiny, Ragged.from_lists([SOURCE]), options=SearchOptions(beam=4))
