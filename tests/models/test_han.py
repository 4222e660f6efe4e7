"""The hierarchical attention network: pooling by hand, neighbours at both levels, and static shapes."""

import pytest
import torch

from regard.data.batch import NO_LABEL, SENTENCES, Batch
from regard.data.ragged import Layout, Ragged, StaticLayout
from regard.models.han import Han
from regard.nn.attention_log import capture_attention
from regard.nn.pooling import AttentionPooling, softmax_within

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return Han(source_size=20, num_labels=3, width=6, hidden=8, attention=4).eval()


def scores(model, documents):
    source = Ragged.from_lists([ids for document in documents for ids in document])
    return model.scores(source, Layout([len(document) for document in documents]))


def test_softmax_within_sequences_by_hand():
    weights = softmax_within(torch.tensor([0.0, 0.0, 1000.0, 0.0, 5.0]), Layout([2, 2, 1]))
    assert weights.tolist() == [0.5, 0.5, 1.0, 0.0, 1.0]


def test_a_query_of_zeros_takes_the_mean():
    pooling = AttentionPooling(2, 3)
    with torch.no_grad():
        pooling.query.zero_()
    states = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    torch.testing.assert_close(pooling(states, Layout([2, 1])), torch.tensor([[2.0, 3.0], [5.0, 6.0]]))


def test_neither_other_documents_nor_the_sentences_of_others_change_a_score(model):
    documents = [[[5, 6, 7], [8]], [[9, 3, 4, 5, 6]], [[7], [8, 9], [5, 5, 5]]]
    together = scores(model, documents)
    for number, document in enumerate(documents):
        torch.testing.assert_close(together[number], scores(model, [document])[0], **CLOSE)


def test_words_attend_within_their_sentence_and_sentences_within_their_document(model):
    documents = [[[5, 6, 7], [8]], [[9, 3]]]
    with capture_attention() as log, torch.no_grad():
        scores(model, documents)
        alone = model.words.attention
    words, sentences = log.calls[alone][0], log.calls[model.sentences.attention][0]
    assert [one.shape[-1] for one in words] == [3, 1, 2] and [one.shape[-1] for one in sentences] == [2, 1]
    assert all(one.sum().item() == pytest.approx(1) for one in [*words, *sentences])
    with capture_attention() as log, torch.no_grad():
        scores(model, documents[:1])
    torch.testing.assert_close(log.calls[alone][0][0], words[0], **CLOSE)


def static(layout, total, sequences):
    """A layout with dummy tokens behind the real ones: a sequence of their own, at position 0; then empty sequences."""
    extra = total - layout.total
    positions = torch.cat([layout.positions, torch.zeros(extra, dtype=torch.int64)]).int()
    number = torch.cat([layout.sentences, torch.full((extra,), layout.num_sentences)]).int()
    offsets = torch.cat([layout.offsets, torch.full((sequences - layout.num_sentences,), total)]).int()
    return StaticLayout(positions, number, offsets, longest=layout.longest + 1)


@pytest.mark.parametrize(("sentences", "places"), [(6, 5), (5, 8)])
def test_static_shapes_with_dummies_have_the_same_loss_and_gradients(model, sentences, places):
    source = Ragged.from_lists([[5, 6, 7], [8], [9, 3]])
    lengths, labels = Ragged.from_lists([[3, 1], [2]]), Ragged.from_lists([[1], [2]])
    batch = Batch(source, None, labels, 2, {SENTENCES: lengths})

    def padded(one, total, sequences, dummy):
        fill = torch.full((total - one.layout.total,), dummy)
        return Ragged(torch.cat([one.values, fill]), static(one.layout, total, sequences))

    packed = Batch(
        padded(source, 9, sentences, 0),
        None,
        padded(labels, 7, 9, NO_LABEL),
        2,
        {SENTENCES: padded(lengths, places, 4, 0)},
    )
    found = []
    for one in (batch, packed):
        model.zero_grad()
        loss = model(one, smoothing=0.1)
        loss.backward()
        found.append((loss, [parameter.grad.clone() for parameter in model.parameters()]))
    torch.testing.assert_close(found[0][0], found[1][0], **CLOSE)
    for own, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(own, other, **CLOSE)
