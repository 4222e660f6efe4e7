"""Generated sequences of binary vectors."""

import pytest

from regard.errors import ConfigError
from regard.text.generators import generate


def test_a_copy_is_the_data_behind_the_control_channel():
    pairs = list(generate("ntm-copy/train", {"count": 50, "max_length": 4, "width": 3}))
    assert {len(pair.target.split()) for pair in pairs} == {1, 2, 3, 4}
    for source, target in pairs:
        vectors = target.split()
        assert source.split() == [*(f"0{one}" for one in vectors), "1000", *["."] * len(vectors)]


def test_a_repeat_has_the_sequence_as_often_as_the_number_says_and_an_end():
    options = {"count": 50, "max_length": 3, "min_repeats": 10, "max_repeats": 12, "width": 2}
    seen = set()
    for source, target in generate("ntm-repeat/valid", options):
        tokens = source.split()
        place = next(index for index, one in enumerate(tokens) if ":" in one)
        data, (bits, times) = tokens[:place], tokens[place].split(":")
        assert bits == "100" and target.split() == [*data * int(times), "100"]
        assert tokens[place + 1 :] == ["."] * len(target.split())
        seen.add(times)
    assert seen == {"10", "11", "12"}


def test_recall_asks_for_the_item_after_another():
    for source, target in generate("ntm-recall/test", {"count": 50, "max_items": 4, "vectors": 2, "width": 9}):
        tokens = source.split()
        first = tokens.index("01" + "0" * 9)
        items = " ".join(tokens[:first]).split("10" + "0" * 9)[1:]
        query, answer = " ".join(tokens[first + 1 : first + 3]), " ".join(f"00{one}" for one in target.split())
        assert items[[item.strip() for item in items].index(query) + 1].strip() == answer
        assert tokens[first + 3 :] == ["01" + "0" * 9, ".", "."]


def test_training_examples_follow_from_the_epoch_and_others_are_always_the_same():
    def first(split, epoch):
        return next(iter(generate(f"ntm-copy/{split}", {"count": 5, "min_length": 9}, epoch=epoch)))

    assert first("train", 0) == first("train", 0) != first("train", 1)
    assert first("test", 0) == first("test", 1) != first("valid", 0)


def test_options_that_would_fill_the_memory_are_refused():
    with pytest.raises(ConfigError, match="too much text for such sequences"):
        generate("ntm-repeat/train", {"count": 1_000_000, "max_length": 10_000, "max_repeats": 9999})
    with pytest.raises(ConfigError, match="min_items is 5, above max_items"):
        generate("ntm-recall/train", {"min_items": 5, "max_items": 4})
