"""Non-autoregressive models, checked by hand."""

import numpy as np
import pytest
import torch

from regard.data.batch import FERTILITIES, Batch, make_batch
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models import build_model
from regard.models.base import WriteOptions
from regard.models.cmlm import lowest
from regard.models.nat import within

SMALL = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 24, "dropout": 0.0}


def small(kind, **keys):
    torch.manual_seed(3)
    return build_model({"kind": kind, **SMALL, **keys}, source_size=11, target_size=11)


def test_lowest_marks_the_lowest_values_of_each_sentence():
    layout = Layout([3, 2, 1])
    values = torch.tensor([0.5, 0.1, 0.3, 0.9, 0.2, 0.4])
    found = lowest(values, torch.tensor([2, 1, 0]), layout)
    assert found.tolist() == [False, True, True, False, True, False]


def test_masks_in_training_are_random_but_the_same_for_the_same_step():
    model = small("cmlm").train()
    layout = Layout([5, 1, 9])
    model.noise.seed(1, 4)
    first = model._draw_masks(layout)
    model.noise.seed(1, 4)
    assert torch.equal(first, model._draw_masks(layout))
    for part in first.split([5, 1, 9]):
        assert part.any()
    drawn = torch.stack([model._draw_masks(layout) for _ in range(200)]).float().mean(dim=0)
    # Each token is masked about half of the time, and one per sentence always.
    assert drawn[1:5].std() < 0.15 and 0.4 < drawn.mean() < 0.8


def test_in_training_the_decoder_reads_unmasked_tokens_unchanged_also_unknown_ones():
    model, seen = small("cmlm").train(), []
    plain = model._fill_in
    model._fill_in = lambda visible, memory: seen.append(visible.values.tolist()) or plain(visible, memory)
    model._draw_masks = lambda layout: torch.tensor([False, True, False, False])
    model(make_batch([[5, 6]], [[0, 7, 8]]), smoothing=0.0)
    assert seen == [[0, 1, 8, 2]]


def test_each_pass_predicts_fewer_tokens_again():
    model = small("cmlm").eval()
    memory = model.encode(Ragged.from_lists([[5, 6, 7, 2]]))
    seen = []
    plain = model._fill_in
    model._fill_in = lambda visible, memory: seen.append(visible.values.tolist()) or plain(visible, memory)
    with torch.inference_mode():
        model.write(memory, WriteOptions(limits=[20], iterations=4))
    length = len(seen[0])
    # All are masked at first.
    assert seen[0] == [1] * length
    assert [ids.count(1) for ids in seen[1:]] == [length * left // 4 for left in (3, 2, 1) if length * left // 4]


def test_the_ctc_loss_sums_over_all_alignments():
    model = small("ctc", places=2).eval()
    # One source token and EOS: four positions.
    batch = make_batch([[5]], [[4]])
    with torch.no_grad():
        p = model.project(model._fill_places(model.encode(batch.source)).values).softmax(-1)
    total = 0.0
    for first in range(4):
        for last in range(first, 4):
            # The token at the positions from first to last, and blanks (BOS) around it.
            total += torch.stack([p[at, 4 if first <= at <= last else 1] for at in range(4)]).prod().item()
    assert model(batch, smoothing=0.0).item() == pytest.approx(-torch.tensor(total).log().item(), rel=1e-4)


def test_ctc_drops_repeats_and_blanks():
    model = small("ctc", places=4).eval()
    predicted = torch.tensor([1, 4, 4, 1, 4, 5, 5, 1])
    model.likeliest = lambda hidden, without: (predicted, torch.zeros(8))
    [[output]] = model.write(model.encode(Ragged.from_lists([[5, 2]])), WriteOptions(limits=[20]))
    assert output.ids == [4, 4, 5]


def test_ctc_reports_targets_that_have_too_few_positions():
    model = small("ctc", places=2)
    # One source token and EOS: four positions.
    assert model.cannot_write(np.array([1, 1]), np.array([4, 5])).tolist() == [False, True]


def test_the_likeliest_token_is_never_the_excluded_one(monkeypatch):
    monkeypatch.setattr("regard.models.tied_embeddings.CHUNK", 3)
    model = small("cmlm").eval()
    hidden = torch.randn(8, 16)
    tokens, logp = model.likeliest(hidden, without=4)
    logits = model.project(hidden)
    logits[:, 4] = float("-inf")
    expected = logits.log_softmax(-1).max(-1)
    assert torch.equal(tokens, expected.indices) and torch.allclose(logp, expected.values)


@pytest.mark.parametrize("kind", ["nat", "cmlm", "ctc"])
def test_causal_convolutions_are_refused(kind):
    with pytest.raises(ConfigError, match="looks back only"):
        small(kind, feed_forward="conv")


def test_the_source_is_copied_as_often_as_its_fertilities_say():
    model = small("nat").eval()
    plain = make_batch([[5, 6, 7]], [[4, 8, 9, 10]])
    extras = {FERTILITIES: Ragged(torch.tensor([3, 0, 1, 1]), plain.source.layout)}
    batch = Batch(plain.source, plain.target, plain.labels, plain.num_tokens, extras)
    seen = []
    rewrite = model._rewrite
    model._rewrite = lambda copies, layout, memory: seen.append(copies.tolist()) or rewrite(copies, layout, memory)
    model(batch, smoothing=0.0)
    assert seen == [[5, 5, 5, 7, 2]]


def test_every_sentence_has_at_least_one_copy_and_no_more_than_fit():
    fertilities = Ragged(torch.tensor([0, 0, 0, 3, 4, 2]), Layout([3, 3]))
    assert within(fertilities, torch.tensor([9, 5])).tolist() == [0, 0, 1, 3, 2, 0]


@pytest.mark.parametrize("kind", ["nat", "ctc"])
def test_an_embedding_that_the_model_would_never_read_is_refused(kind):
    with pytest.raises(ConfigError, match="reads no target words"):
        small(kind, tie="none")
