"""Reading bAbI files, and the generated stories that use their words."""

import gzip

import pytest

from regard.config import Bitext, DataConfig
from regard.errors import DataError
from regard.recipe_files import load_recipe
from regard.text.babi import find_babi
from regard.text.bitext import anchor, load_bitext, refuse_outside, without_folders
from regard.text.generators import generate
from regard.text.rooms import ROOMS, THINGS, WALK
from regard.text.segmenter import split_sentences

STORY = "1 Mary went home.\n2 John sat.\n3 Where is Mary? \thome\t1\n4 John left.\n5 Who left?\tJohn\t4\n"


@pytest.fixture
def folder(tmp_path):
    """Two tasks: ten stories to train on, and one to test on."""
    (tmp_path / "en").mkdir()
    with gzip.open(tmp_path / "en" / "qa1_one-fact_train.txt.gz", "wt") as file:
        file.write("".join(STORY.replace("home", f"home{number}") for number in range(10)))
    (tmp_path / "en" / "qa1_one-fact_test.txt").write_text(STORY)
    (tmp_path / "en" / "qa11_names_train.txt").write_text("1 Bill ran.\n2 Who ran?\tBill\t1\n")
    return tmp_path


def load(folder, babi, part):
    return load_bitext(Bitext(babi=babi, part=part), folders=[folder])


def test_a_question_has_all_sentences_before_it_and_no_other_question(folder):
    one, other = load(folder, "en/qa1", "test")
    assert one == ("Mary went home. | John sat. | Where is Mary?", "home")
    assert other == ("Mary went home. | John sat. | John left. | Who left?", "John")


def test_every_tenth_story_of_a_training_file_is_for_validation(folder):
    train, valid = load(folder, "en/qa1", "train"), load(folder, "en/qa1", "valid")
    assert [pair.target for pair in train[::2]] == [f"home{number}" for number in range(9)]
    assert [pair.target for pair in valid] == ["home9", "John"]


def test_a_folder_names_all_of_its_tasks_and_a_list_several(folder):
    everything = load(folder, "en", "train")
    assert len(everything) == 19 and everything[-1] == ("Bill ran. | Who ran?", "Bill")
    assert load(folder, ("en/qa11", "en/qa1"), "train") == [everything[-1], *everything[:-1]]
    assert [path.name for path in find_babi("qa1", "train", [folder / "en"])] == ["qa1_one-fact_train.txt.gz"]


def test_a_missing_task_is_named_with_what_to_do(folder):
    with pytest.raises(
        DataError, match=r"no bAbI files of 'en/qa3', as in .*_test.txt', in .*--data .* or REGARD_DATA"
    ):
        load(folder, "en/qa3", "test")


@pytest.mark.parametrize("text", ["Mary went home.\n", "2 Mary went home.\n", "1 Mary | John sat.\n", "1 Who?\t\t1\n"])
def test_lines_that_are_not_of_babi_are_refused_with_their_number(folder, text):
    (folder / "en" / "qa2_bad_test.txt").write_text(text)
    with pytest.raises(DataError, match="line 1 of"):
        load(folder, "en/qa2", "test")


def test_part_and_babi_belong_together():
    for wrong in ({"babi": "en/qa1"}, {"generate": "rooms/train", "part": "train"}):
        with pytest.raises(ValueError, match="bAbI files need both"):
            Bitext(**wrong)


def test_a_recipe_of_a_stranger_cannot_name_folders_outside(folder):
    with pytest.raises(DataError, match="which is outside"):
        refuse_outside(Bitext(babi=("en/qa1", "../qa2"), part="test"), [folder], recipe_of="x")


def test_names_become_absolute_unless_the_user_named_the_folder(folder):
    data = DataConfig(train=Bitext(babi="en/qa1", part="train"))
    assert anchor(data, [folder], named=folder).train.babi == "en/qa1"
    found = anchor(data, [folder], named=None)
    assert found.train.babi == str(folder / "en" / "qa1")
    assert len(load_bitext(found.train, folders=[folder])) == 18


# Generated stories


def answer(sentences, question):
    """Answer by reading the story once more: where each one was, room by room."""
    rooms, holder = {}, {}
    for sentence in sentences:
        person, rest = sentence.rstrip(".").split(" ", 1)
        rest = rest.removesuffix(" there")
        last = rest.split()[-1]
        if rest.startswith(WALK):
            moved = [person, *(thing for thing, who in holder.items() if who == person)]
        else:
            holder[last] = person if rest.startswith(("got", "grabbed", "took", "picked")) else None
            moved, last = [last], rooms.get(person, [""])[-1]
        for one in moved:
            if last and rooms.setdefault(one, [])[-1:] != [last]:
                rooms[one].append(last)
    words = question.rstrip("?").split()
    if "before" not in words:
        return rooms[words[-1]][-1]
    told = rooms[words[3]]
    return told[len(told) - 2 - told[::-1].index(words[-1])]


@pytest.mark.parametrize("facts", [1, 2, 3])
def test_the_story_tells_the_answer(facts):
    pairs = list(generate("rooms/train", {"facts": facts, "size": 100}))
    assert len(pairs) == 100 and {pair.target for pair in pairs} <= set(ROOMS)
    for pair in pairs:
        *story, question = split_sentences(pair.source)
        assert answer(story, question) == pair.target, pair
        assert (question.split()[1] == "was") == (facts == 3) and any(one in question for one in THINGS) == (facts > 1)


@pytest.mark.slow(unless=["1"])
@pytest.mark.parametrize("facts", [1, 2, 3])
def test_no_story_of_a_split_occurs_in_another(facts):
    """Stories begin with a step of two sentences, which belongs to one split."""
    begins = {}
    for split, epochs in (("train", 3), ("valid", 1), ("test", 1)):
        pairs = [pair for epoch in range(epochs) for pair in generate(f"rooms/{split}", {"facts": facts}, epoch=epoch)]
        begins[split] = {tuple(split_sentences(pair.source)[:2]) for pair in pairs}
    assert all(len(some) > 100 for some in begins.values())
    assert not begins["train"] & begins["test"] and not begins["train"] & begins["valid"]
    assert not begins["valid"] & begins["test"]


def test_epochs_of_the_training_split_differ_and_each_is_always_the_same():
    first, again, second = (list(generate("rooms/train", {"size": 20}, epoch=epoch)) for epoch in (0, 0, 1))
    assert first == again != second
    assert list(generate("rooms/test", {}, epoch=0)) == list(generate("rooms/test", {}, epoch=1))


def test_a_run_folder_holds_no_absolute_paths(folder):
    recipe = load_recipe("rooms", [f'data.train={{babi="{folder}/en/qa1", part="train"}}'])
    assert without_folders(recipe).data.train.babi == "qa1"
