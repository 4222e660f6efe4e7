"""Batches of any task are packed: what they consist of is found by collating examples, and rows hold what batches hold."""

from itertools import islice

import numpy as np
import pytest
import torch

from regard.data.batch import NO_LABEL, Batch, gather_rows, num_labels, shift_right
from regard.data.batch_sampler import Position
from regard.data.batch_structure import ONE, Count, UnknownSize, check_structure, fields_of, structure_of
from regard.data.columns import Column, Columns
from regard.data.packing import PackedLoader
from regard.data.ragged import Layout, Ragged
from regard.errors import DataError


def ints(lengths, random, low=0, high=9):
    return Column.from_arrays([random.integers(low, high, one).astype(np.int32) for one in lengths])


def tags(random, count=300):
    source = ints(random.integers(1, 30, count), random)
    return Columns({"source": source, "labels": Column(source.values // 2, source.offsets)}, ("source",))


def collate_tags(columns, rows):
    source = gather_rows(columns["source"], rows)
    labels = Ragged(gather_rows(columns["labels"], rows).values, source.layout)
    return Batch(source, None, labels, num_labels(labels))


def classes(random, count=300):
    columns = {"source": ints(random.integers(1, 30, count), random), "labels": ints([1] * count, random)}
    return Columns(columns, ("source",))


def collate_classes(columns, rows):
    source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows)
    return Batch(source, None, labels, num_labels(labels))


def points(random, count=300):
    lengths = random.integers(3, 20, count)
    vectors = Column.from_arrays([random.random((one, 2), dtype=np.float32) for one in lengths])
    labels = Column.from_arrays([random.integers(1, one + 1, one // 2).astype(np.int32) for one in lengths])
    return Columns({"source": vectors, "labels": labels}, ("source", "labels"))


def collate_points(columns, rows):
    source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows, end=0)
    return Batch(source, shift_right(labels, 0), labels, labels.layout.total)


def documents(random, count=300):
    """A document is several sentences, and has one label; `sentences` holds their lengths."""
    lengths = [random.integers(1, 9, random.integers(1, 6)) for _ in range(count)]
    source = ints([one.sum() for one in lengths], random)
    sentences = Column.from_arrays([one.astype(np.int32) for one in lengths])
    return Columns({"source": source, "sentences": sentences, "labels": ints([1] * count, random)}, ("source",))


def collate_documents(columns, rows):
    tokens, sentences = columns["source"].gather(rows), gather_rows(columns["sentences"], rows)
    source = Ragged(torch.from_numpy(tokens.astype(np.int64)), Layout(sentences.values.tolist()))
    labels = gather_rows(columns["labels"], rows)
    return Batch(source, None, labels, num_labels(labels), {"sentences": sentences})


def tapes(random, count=300):
    """Bit vectors in and out. The labels are floats, so each has a weight, and a third of the steps does not count."""
    lengths = random.integers(2, 12, count)
    source, labels = ([random.integers(0, 2, (one, 3)).astype(np.float32) for one in lengths] for _ in range(2))
    weights = [(random.random(one) > 0.3).astype(np.float32) for one in lengths]
    columns = {"source": source, "labels": labels, "weights": weights}
    return Columns({name: Column.from_arrays(one) for name, one in columns.items()}, ("source",))


def collate_tapes(columns, rows):
    source = gather_rows(columns["source"], rows)
    labels, weights = (Ragged(gather_rows(columns[name], rows).values, source.layout) for name in ("labels", "weights"))
    return Batch(source, None, labels, int(weights.values.sum()), {"weights": weights})


TASKS = {
    "tags": (tags, collate_tags, (0,)),
    "classes": (classes, collate_classes, (0,)),
    "points": (points, collate_points, (0, 1)),
    "documents": (documents, collate_documents, (0,)),
    "tapes": (tapes, collate_tapes, (0,)),
}


def loader_for(name, *, budget=256, count=300, similar_lengths=False):
    make, collate, added = TASKS[name]
    columns = make(np.random.default_rng(0), count)
    return columns, PackedLoader(
        lambda epoch: columns,
        collate,
        added=added,
        budget=budget,
        max_length=60,
        seed=1,
        similar_lengths=similar_lengths,
    )


@pytest.mark.parametrize("similar_lengths", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_a_row_holds_every_field_of_its_batch_and_dummies_behind_it(name, similar_lengths):
    columns, loader = loader_for(name, similar_lengths=similar_lengths)
    plan = loader.plan(0)[1]
    for (packed, _), chosen in zip(islice(loader.batches(Position()), 5), plan, strict=False):
        ours, theirs = packed.unpack(), TASKS[name][1](columns, chosen)
        assert packed.num_tokens == theirs.num_tokens
        assert [one for one, _, _ in fields_of(ours)] == [one for one, _, _ in fields_of(theirs)]
        for (field, mine, extra), (_, other, _) in zip(fields_of(ours), fields_of(theirs), strict=True):
            tokens, sequences = other.layout.total, other.layout.num_sentences
            assert torch.equal(mine.values[:tokens].to(other.values.dtype), other.values)
            dummy = 0 if other.values.is_floating_point() or field in ("source", "target") else NO_LABEL
            assert (mine.values[tokens:] == dummy).all() and extra == (field in theirs.extras)
            assert torch.equal(mine.layout.positions[:tokens].long(), other.layout.positions)
            assert torch.equal(mine.layout.sentences[:tokens].long(), other.layout.sentences)
            assert torch.equal(mine.layout.offsets[: sequences + 1], other.layout.offsets)
            assert sequences < mine.layout.num_sentences and other.layout.longest <= mine.layout.longest


@pytest.mark.parametrize("name", TASKS)
def test_batches_are_nearly_full_and_hold_each_example_once(name):
    columns, loader = loader_for(name, budget=1024, count=3000)
    plan = loader.plan(0)[1]
    everyone = np.concatenate(plan)
    assert len(everyone) == len(set(everyone.tolist())) > 0.9 * len(columns)
    tokens = np.mean([columns["source"].lengths[chosen].sum() for chosen in plan])
    assert tokens > 0.95 * loader.shapes[0].tokens("source")


def test_a_classifier_has_one_label_for_each_sequence_of_a_packed_batch():
    batch = next(loader_for("classes")[1].batches(Position()))[0].unpack()
    assert batch.labels.layout.total == batch.source.layout.num_sentences


def test_documents_have_one_token_for_each_sentence_of_a_packed_batch():
    _, loader = loader_for("documents")
    sentences = Count(("sentences",), 0)
    assert [layout[:2] for layout in loader.structure.layouts] == [
        (Count(("source",), 0), sentences),
        (ONE, ONE),
        (sentences, ONE),
    ]
    batch = next(loader.batches(Position()))[0].unpack()
    assert batch.extras["sentences"].layout.total == batch.source.layout.num_sentences
    assert batch.source.layout.longest == 8 and batch.extras["sentences"].layout.longest == 5
    # As in a batch that is not packed, a document's first value belongs to its first sentence.
    real = batch.extras["sentences"].values.ge(0)
    assert torch.equal(batch.source.layout.offsets.diff()[real], batch.extras["sentences"].values[real])


def test_a_layout_may_join_two_columns():
    random = np.random.default_rng(0)
    one, two = random.integers(1, 9, 50), random.integers(1, 9, 50)
    columns = Columns(
        {"story": ints(one, random), "question": ints(two, random), "labels": ints([1] * 50, random)},
        ("story", "question"),
    )

    def collate(columns, rows):
        parts = zip(*(gather_rows(columns[name], rows).split() for name in ("story", "question")), strict=True)
        source = Ragged.from_lists([[*story.tolist(), *question.tolist(), 77] for story, question in parts])
        labels = gather_rows(columns["labels"], rows)
        return Batch(source, None, labels, num_labels(labels))

    structure = structure_of(columns, collate, added=(0, 0), max_length=20)
    assert structure.layouts[0].tokens == Count(("story", "question"), 1)
    loader = PackedLoader(lambda epoch: columns, collate, added=(0, 0), budget=64, max_length=20, seed=1)
    batch = next(loader.batches(Position()))[0].unpack()
    assert batch.source.values.eq(77).sum() == batch.labels.values.ne(NO_LABEL).sum()


def test_a_batch_whose_size_follows_from_no_column_is_refused():
    columns = tags(np.random.default_rng(0))

    def collate(columns, rows):
        values = gather_rows(columns["source"], rows)
        long = Ragged.from_lists([[id for id in ids.tolist() if id > 4] for ids in values.split()])
        return Batch(values, None, long, long.layout.total)

    with pytest.raises(UnknownSize, match="the tokens of labels of an example are not as many as the values"):
        structure_of(columns, collate, added=(0,), max_length=60)


@pytest.mark.parametrize("name", TASKS)
def test_all_examples_of_a_task_have_the_structure_of_the_sample(name, monkeypatch):
    make, collate, added = TASKS[name]
    columns = make(np.random.default_rng(0), 300)
    monkeypatch.setattr("regard.data.batch_structure.CHECKED", 500)
    structure = structure_of(columns, collate, added=added, max_length=60)
    check_structure(structure, columns, collate, max_length=60)


def test_an_example_with_another_structure_than_the_sample_is_found():
    """The sample has four labels per example. Example 102 has three, and is not in it."""
    random = np.random.default_rng(0)
    source = ints([4] * 300, random)
    fewer = [4] * 101 + [3] + [4] * 198
    columns = Columns({"source": source, "labels": ints(fewer, random)}, ("source",))

    def collate(columns, rows):
        source, labels = gather_rows(columns["source"], rows), gather_rows(columns["labels"], rows)
        return Batch(source, None, labels, num_labels(labels))

    structure = structure_of(columns, collate, added=(0,), max_length=60)
    assert structure.layouts[1].tokens == Count(("labels",), 0)
    check_structure(structure, columns, collate, max_length=60)

    def collate_otherwise(columns, rows):
        labels = [[1] * 4 for _ in rows]
        return Batch(gather_rows(columns["source"], rows), None, Ragged.from_lists(labels), 4 * len(rows))

    structure = structure_of(columns, collate_otherwise, added=(0,), max_length=60)
    with pytest.raises(UnknownSize, match="labels of example 102 have another number of tokens than the values of its"):
        check_structure(structure, columns, collate_otherwise, max_length=60)

    def collate_shared(columns, rows):
        """Labels have the layout of the source, except in a batch with example 102."""
        source = gather_rows(columns["source"], rows)
        layout = Layout(source.layout.lengths) if 101 in rows else source.layout
        return Batch(source, None, Ragged(source.values, layout), layout.total)

    structure = structure_of(columns, collate_shared, added=(0,), max_length=60)
    with pytest.raises(UnknownSize, match="different fields"):
        check_structure(structure, columns, collate_shared, max_length=60)


def test_a_batch_of_a_later_epoch_that_is_made_otherwise_is_refused_in_one_sentence():
    _, loader = loader_for("tags")
    loader.collate = collate_classes  # labels with a layout of their own
    with pytest.raises(DataError, match="not made like those of the first epoch: labels has a layout of its own"):
        next(loader.batches(Position()))


@pytest.mark.parametrize("similar_lengths", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_new_examples_in_every_epoch_fit_the_shapes_of_the_first(name, similar_lengths):
    make, collate, added = TASKS[name]
    loader = PackedLoader(
        lambda epoch: make(np.random.default_rng(epoch), 40),  # so few that the longest differ
        collate,
        added=added,
        budget=128,
        max_length=60,
        seed=1,
        similar_lengths=similar_lengths,
    )
    last = Position()
    for batch, position in islice(loader.batches(Position()), 60):
        assert batch.num_tokens > 0 and batch.shape in loader.shapes
        last = position
    assert last.epoch > 2
