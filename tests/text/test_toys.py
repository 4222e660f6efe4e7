"""The toy tasks: correct answers, distinct splits, and even lengths."""

from collections import Counter
from collections.abc import Callable

import pytest

from regard.text.toys import (
    MAX_LENGTH,
    ROW,
    ROW_LETTERS,
    SIZES,
    SYMBOLS,
    TASKS,
    generate,
    generate_counting,
    generate_joined,
    generate_mistakes,
    generate_names,
    generate_repeats,
    generate_table,
)


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


def test_no_name_of_a_split_occurs_in_another() -> None:
    names = [
        {word for source, _ in generate_names(split) for word in source.split() if word[0].isupper() or word.isdigit()}
        for split in ("train", "valid", "test")
    ]
    assert all(names) and not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]


def test_every_counting_text_occurs_equally_often_in_another_order_in_each_split() -> None:
    train, test = ([text for text, _ in generate_counting(split)] for split in ("train", "test"))
    assert Counter(Counter(train).values()) == {50: 60} and Counter(Counter(test).values()) == {20: 60}
    assert train[:10] != test[:10] != sorted(test)[:10]


def test_repeats_have_two_or_three_letters_in_turn() -> None:
    lengths = set()
    for row, again in generate_repeats("valid"):
        letters = row.split()
        assert row == again and (letters[2:] == letters[:-2] or letters[3:] == letters[:-3])
        lengths.add(len(letters))
    assert lengths == set(range(8, 15))


def test_joined_rows_have_the_letters_at_equal_places() -> None:
    for source, target in generate_joined("valid")[:50]:
        letters = source.split()
        assert target.split() == [one + other for one, other in zip(letters[:ROW], letters[ROW:], strict=True)]


def test_the_table_is_the_same_in_all_splits_and_has_no_rule() -> None:
    entries: dict[str, set[str]] = {}
    for split in SIZES:
        for source, target in generate_table(split)[:500]:
            letters = source.split()
            for one, other, answer in zip(letters[:ROW], letters[ROW:], target.split(), strict=True):
                entries.setdefault(one + other, set()).add(answer)
    assert len(entries) == len(ROW_LETTERS) ** 2 and all(len(answers) == 1 for answers in entries.values())
    by_first = [{min(entries[one + other]) for other in ROW_LETTERS} for one in ROW_LETTERS]
    assert min(map(len, by_first)) > 2  # one letter alone does not say the answer


@pytest.mark.parametrize("make", [generate_joined, generate_table])
def test_held_out_rows_are_not_in_the_training_split(make: Callable[[str], list[tuple[str, str]]]) -> None:
    rows = {split: {source for source, _ in make(split)} for split in SIZES}
    assert not rows["train"] & (rows["valid"] | rows["test"]) and len(rows["valid"]) == SIZES["valid"]


def test_a_sixth_of_the_letters_to_copy_are_wrong_in_the_training_split_alone() -> None:
    """A fifth are drawn again, and one in eight of these is the right letter by chance: 0.2 · 7 / 8 = 0.175."""
    letters = [pair for row in generate_mistakes("train") for pair in zip(*(side.split() for side in row), strict=True)]
    assert sum(one != other for one, other in letters) / len(letters) == pytest.approx(0.175, abs=0.03)
    assert all(source == target for split in ("valid", "test") for source, target in generate_mistakes(split))
