"""Stories and questions as columns and batches, and a predictor that cuts what is too long."""

import numpy as np
import pytest

from regard.errors import DecodeError
from regard.explain.trace import TraceOptions
from regard.recipe_files import load_recipe
from regard.tasks import task_of
from regard.tasks.corpus import TextPairs
from regard.tasks.setup import fresh_model
from regard.text.corpus import Pair

PAIRS = [
    Pair("Mary went home. | John sat. | Where is Mary?", "home"),
    Pair("John sat. | Mary took the milk and the apple. | What has mary?", "milk,apple"),
]


@pytest.fixture
def task():
    return task_of(load_recipe("rooms", ["model.max_sentences=2", "decode.max_source=12"]))


@pytest.fixture
def codec(task):
    return task.fit(TextPairs(PAIRS))


def test_words_are_counted_by_sentence_and_capitals_and_marks_make_no_difference(task, codec):
    batch = task.collate(task.encode(PAIRS, codec), np.arange(2))
    words = [codec.tokenizer.tokens(ids) for ids in batch.source.as_lists()]
    assert words[0] == ["mary", "went", "home", "john", "sat", "where", "is", "mary"]
    assert batch.extras["sentence"].as_lists()[0] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert batch.extras["place"].as_lists()[0] == [0, 1, 2, 0, 1, 0, 1, 2]
    assert batch.extras["sentences"].as_lists() == [[3, 2, 3], [2, 7, 3]]
    assert [codec.labels[number] for number in batch.labels.values.tolist()] == ["home", "milk,apple"]
    assert batch.extras["sentence"].layout is batch.source.layout


def test_only_the_last_sentences_of_a_long_story_are_read(task, codec):
    columns = task.encode([Pair("a | b | c | John sat | Mary?", "home")], codec)
    assert columns["sentences"][0] == [1, 2, 1]


def test_a_question_without_a_story_is_its_own_story(task, codec):
    assert task.encode([Pair("Where is Mary?", "home")], codec)["sentences"][0] == [3, 3]


def test_the_probe_has_as_many_sentences_as_a_story_can_have(task, codec):
    assert task.probe(codec, 7, 2).extras["sentences"].as_lists() == [[3, 2, 2]] * 2
    assert task.probe(codec, 1, 1).extras["sentences"].as_lists() == [[1]]


def test_batches_are_cut_between_stories(task, codec, monkeypatch):
    monkeypatch.setattr("regard.data.batch.WORTH_HALVING", 2)
    batch = task.collate(task.encode(PAIRS, codec), np.arange(2))
    first, second = batch.halves()
    assert first.extras["sentences"].as_lists() == [[3, 2, 3]]
    assert second.extras["place"].as_lists() == batch.extras["place"].as_lists()[1:]


def test_long_inputs_are_cut_from_the_front_and_long_questions_at_their_end(task, codec):
    said = []
    predictor = task.predictor(fresh_model(task.recipe, task.sizes(codec), added=0).eval(), codec, warn=said.append)
    long = "a " * 8
    assert all(predictor.predict([f"{long}| {long}| Where is Mary?", long * 2, "Where is Mary?"]))
    assert said == [
        "line 1 has 19 tokens; only the last 1 of its 2 sentences are used",
        "line 2 has 32 tokens; only the first 12 of its question are used",
    ]
    with pytest.raises(DecodeError, match="the input has 32 tokens; this model takes at most 12"):
        task.trace(predictor, long * 2, TraceOptions())


@pytest.mark.parametrize("kind", ["entnet", "reader"])
def test_a_trace_shows_gates_and_the_slots_or_words_that_the_answer_reads(kind):
    options = ["model.kind=reader", "model.width=16", "model.num_layers=2"] if kind == "reader" else ["model.slots=3"]
    task = task_of(load_recipe("rooms", options, warn=lambda text: None))
    codec = task.fit(TextPairs(PAIRS))
    predictor = task.predictor(fresh_model(task.recipe, task.sizes(codec), added=0).eval(), codec)
    trace = task.trace(predictor, PAIRS[0].source, TraceOptions(alternatives=1))
    assert trace.target.text == predictor.predict([PAIRS[0].source])[0]
    assert len(trace.alternatives[0]) == 1 and 0 < trace.probabilities[0] < 1
    shapes = {one.name: one.weights.shape for one in trace.attentions}
    expected = {"gates": (1, 2, 3), "answer": (1, 1, 3)} if kind == "entnet" else {"encoder": (8, 8, 8)}
    assert shapes == expected and [one.name for one in trace.pictures] == ["slots" if kind == "entnet" else "words"]
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close(trace.pictures[0].draw(plt))
