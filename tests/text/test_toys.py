"""The toy tasks: correct answers, distinct splits, and even lengths."""

from collections import Counter

import pytest

from regard.errors import DataError
from regard.text.toys import MAX_LENGTH, SIZES, SYMBOLS, TASKS, generate


@pytest.mark.parametrize(("task", "answer"), [("copy", "b f a c a"), ("reverse", "a c a f b"), ("sort", "a a b c f")])
def test_each_task_gives_the_answer_that_its_name_says(task: str, answer: str) -> None:
    assert " ".join(TASKS[task](list("bfaca"))) == answer
    assert all(target.split() == TASKS[task](source.split()) for source, target in generate(task, "valid"))


@pytest.mark.parametrize("split", SIZES)
def test_two_calls_give_the_same_pairs(split: str) -> None:
    pairs = generate("sort", split)
    assert pairs == generate("sort", split)
    assert len(pairs) == SIZES[split]


def test_the_tasks_share_their_sources() -> None:
    copied, reversed_, sorted_ = (
        [source for source, _ in generate(task, "test")] for task in ("copy", "reverse", "sort")
    )
    assert copied == reversed_ == sorted_


def test_held_out_sources_are_distinct_and_not_in_training() -> None:
    train, valid, test = ([source for source, _ in generate("copy", split)] for split in ("train", "valid", "test"))
    assert len(set(valid + test)) == len(valid) + len(test)
    assert not set(train) & set(valid + test)


def test_training_sequences_have_all_lengths_equally_often() -> None:
    counts = Counter(len(source.split()) for source, _ in generate("copy", "train"))
    assert sorted(counts) == list(range(1, MAX_LENGTH + 1))
    assert min(counts.values()) >= 0.9 * SIZES["train"] / MAX_LENGTH


@pytest.mark.parametrize("split", ["valid", "test"])
def test_held_out_sequences_have_at_least_four_symbols(split: str) -> None:
    assert {len(source.split()) for source, _ in generate("copy", split)} == set(range(4, MAX_LENGTH + 1))


@pytest.mark.parametrize("split", SIZES)
def test_all_sixteen_symbols_occur(split: str) -> None:
    assert {symbol for source, _ in generate("copy", split) for symbol in source.split()} == set(SYMBOLS)
    assert len(SYMBOLS) == 16


def test_unknown_names_answer_with_the_nearest_known_one() -> None:
    with pytest.raises(DataError, match="did you mean 'reverse'"):
        generate("revers", "train")
    with pytest.raises(DataError, match="did you mean 'valid'"):
        generate("sort", "validation")
