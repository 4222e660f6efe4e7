"""Documents: how they are split and encoded, what a trace shows, and the plain program that we are compared with."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.data.batch import SENTENCES
from regard.errors import DecodeError
from regard.explain.trace import TraceOptions
from regard.recipe_files import load_recipe
from regard.tasks import task_of
from regard.tasks.corpus import TextPairs
from regard.tasks.documents import Document, encode_document
from regard.text.corpus import Pair
from regard.text.segmenter import sentences_of
from regard.text.tokenizer import UNK

PAIRS = [Pair("a b c | d", "good"), Pair("aa. b b! c", "bad"), Pair("d d", "good")]


@pytest.fixture
def task():
    return task_of(load_recipe("documents", []))


@pytest.fixture
def codec(task):
    return task.fit(TextPairs(PAIRS))


@pytest.fixture
def predictor(task, codec):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return task.predictor(regard.Han(**task.sizes(codec), width=8, hidden=6, attention=4).eval(), codec)


def test_sentences_end_at_separators_or_at_punctuation():
    assert sentences_of("one. two | three") == ["one. two", "three"]
    assert sentences_of("One. Two! Three") == ["One.", "Two!", "Three"]
    assert sentences_of(" ") == sentences_of(" |  | ") == []


def test_a_batch_has_a_sequence_per_sentence_and_the_sentences_of_each_document(task, codec):
    batch = task.collate(task.encode(PAIRS, codec), np.array([1, 0]))
    assert batch.source.layout.lengths == (1, 2, 1, 3, 1)
    assert batch.extras[SENTENCES].as_lists() == [[1, 2, 1], [3, 1]] and batch.num_tokens == 2
    assert "|" not in codec.tokenizer.tokens(range(codec.tokenizer.size))


def test_a_document_without_ids_has_one_unknown_word(task, codec):
    columns = task.encode([Pair("|  |", "good"), Pair("", "bad")], codec)
    assert columns["source"].values.tolist()[-1] == UNK and columns[SENTENCES][1] == [1]


def test_other_classifiers_read_a_document_as_one_sequence():
    task = task_of(load_recipe("majority", []))
    codec = task.fit(TextPairs(PAIRS))
    columns = task.encode(PAIRS, codec)
    assert SENTENCES not in columns and columns["source"].lengths.tolist() == [5, 4, 2]


def test_a_long_document_is_cut_within_a_sentence(predictor):
    document = Document(["a b", "c d"], [[1, 2], [3, 4]])
    assert document.cut(3).ids == [[1, 2], [3]] and document.cut(2) == Document(["a b"], [[1, 2]])
    warnings = []
    predictor.limit, predictor.warn = 3, warnings.append
    assert predictor.predict(["a b | c d"]) == predictor.predict(["a b | c"])
    assert warnings == ["line 1 has 4 tokens; only the first 3 are used"]
    with pytest.raises(DecodeError, match="has 4 tokens; this model takes at most 3"):
        task_of(load_recipe("documents", [])).trace(predictor, "a b | c d", TraceOptions())


def test_outputs_and_attention_do_not_depend_on_the_other_documents(predictor):
    texts = ["a b c | d", "", "b", "c c | a | d d d"]
    predictor.options = predictor.options.replace(tokens=4)
    assert predictor.predict(texts) == [predictor.predict([text])[0] for text in texts]
    together = predictor.attention(texts)
    assert together[1] is None
    for one, text in zip(together, texts, strict=True):
        if one is not None:
            alone = predictor.attention([text])[0]
            assert one.sentences == pytest.approx(alone.sentences, abs=1e-5)
            assert sum(one.sentences) == pytest.approx(1) and all(sum(row) == pytest.approx(1) for row in one.words)


def test_a_trace_has_both_attentions_with_labelled_axes_and_a_picture(task, predictor):
    trace = task.trace(predictor, "a b | zebra d d", TraceOptions(alternatives=1))
    words, sentences = trace.attentions
    assert trace.axes_of(words)[0].tokens == ["a b", "zebra d d"] and trace.source.tokens == [
        "a",
        "b",
        "zebra",
        "d",
        "d",
    ]
    assert words.weights.shape == (1, 2, 5) and not words.weights[0, 0, 2:].any() and not words.weights[0, 1, :2].any()
    assert words.weights.sum(axis=2).tolist() == [[pytest.approx(1), pytest.approx(1)]]
    assert sentences.weights.shape == (1, 1, 2) and trace.axes_of(sentences)[0].label == "label"
    assert trace.target.text == predictor.predict(["a b | zebra d d"])[0]
    assert trace.probabilities[0] + trace.alternatives[0][0].probability == pytest.approx(1, abs=1e-5)
    assert [picture.name for picture in trace.pictures] == ["document"]
    with pytest.raises(DecodeError, match="the text is empty"):
        task.trace(predictor, " | ", TraceOptions())


def test_encoding_keeps_the_sentences_that_have_ids(codec):
    assert encode_document(codec.tokenizer, "a b |  | c").sentences == ["a b", "c"]


def test_the_plain_program_computes_the_same_loss(task, codec, predictor):
    path = Path(__file__).parents[2] / "benchmarks/tasks/han.py"
    spec = importlib.util.spec_from_file_location("plain_han", path)
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    recipe = load_recipe("documents", ["model.width=8", "model.hidden=6", "model.attention=4", "model.dropout=0"])
    ours, theirs = predictor.model, plain.plain_model(recipe, task.sizes(codec)).eval()
    weights = ours.state_dict()
    renamed = {"output.weight": "output.weight", "output.bias": "output.bias", "embedding.weight": "embedding"}
    for level in ("words", "sentences"):
        renamed |= {f"{level}.compare.{part}": f"{level}.attention.compare.{part}" for part in ("weight", "bias")}
        gru = [name for name in theirs.state_dict() if name.startswith(f"{level}.gru.")]
        renamed |= {name: name.replace(".gru.", ".gru.layers.0.") for name in gru}
        weights[f"{level}.query.weight"] = weights[f"{level}.attention.query"][None]
        renamed[f"{level}.query.weight"] = f"{level}.query.weight"
    theirs.load_state_dict({own: weights[name] for own, name in renamed.items()})
    batch = task.collate(task.encode(PAIRS, codec), np.arange(3))
    torch.testing.assert_close(theirs(*plain.padded(batch)), ours(batch))
