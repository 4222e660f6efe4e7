"""Tagging and classification: which label stands where, what is refused, and how labels are scored."""

import numpy as np
import pytest
import torch

import regard
from regard.config import EvaluateConfig
from regard.data.batch import NO_LABEL
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError
from regard.explain.trace import TraceOptions
from regard.metrics import TAGS, accuracy, exact_match, score_all, span_f1, spans
from regard.recipe_files import load_recipe
from regard.storage.folder import Folder
from regard.tasks import task_of
from regard.tasks.corpus import TextPairs
from regard.tasks.labels import LABELS_FILE, LabelPredictor
from regard.tasks.word_codec import encode_words
from regard.text.corpus import Pair
from regard.text.tokenizer import TOKENIZERS, UNK
from regard.text.tokenizer_pair import train_tokenizers

CONFIG = EvaluateConfig()


def task(recipe, *overrides):
    return task_of(load_recipe(recipe, overrides))


def codec_of(one, *pairs):
    return one.fit(TextPairs([Pair(*pair) for pair in pairs]))


def small_model(one, codec, **options):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        kind = regard.Tagger if one.name == "tagging" else regard.Classifier
        small = {"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
        return kind(**one.sizes(codec), **{**small, **options}).eval()


# Scores


def test_spans_of_bio_labels():
    assert spans(["B-A", "I-A", "O", "B-B"]) == [("A", 0, 2), ("B", 3, 4)]
    assert spans(["B-A", "B-A", "I-A"]) == [("A", 0, 1), ("A", 1, 3)]
    # As in conlleval, an I of another kind, or after O, begins a span.
    assert spans(["B-A", "I-B", "O", "I-B", "I-B"]) == [("A", 0, 1), ("B", 1, 2), ("B", 3, 5)]
    assert spans(["O", "O"]) == spans([]) == []


def test_span_f1_by_hand():
    # One span of three is found, and one of the two found is right: precision 1/2, recall 1/3, F1 2/5.
    value, _ = span_f1(["B-A I-A O O B-B O"], ["B-A I-A O B-B O B-A"], [], CONFIG)
    assert value == pytest.approx(100 * 2 / 5)
    assert span_f1(["O O"], ["O O"], [], CONFIG)[0] == 100.0
    assert span_f1(["B-A"], ["O"], [], CONFIG)[0] == 0.0


def test_span_f1_is_left_out_where_labels_are_not_those_of_spans(tmp_path):
    def names(*references, config=CONFIG):
        return [
            score.name for score in score_all(references, references, [""] * len(references), config, compares=TAGS)
        ]

    assert names("NOUN VERB", "X") == ["exact", "accuracy"]
    assert names("O O", "B-A I-A") == names("O O") == ["exact", "accuracy", "span_f1"]
    only = EvaluateConfig(metrics=("span_f1",))
    with pytest.raises(
        ConfigError, match=r"evaluate.metrics names 'span_f1', but the references have no labels of spans"
    ):
        names("NOUN VERB", config=only)
    (tmp_path / "tags.tsv").write_text("the dog\tDET NOUN\n")
    files = [f"data.{part}={{ pairs = '{tmp_path}/tags.tsv' }}" for part in ("train", "valid")]
    with pytest.raises(
        ConfigError, match=r"train.metric is 'span_f1', but in the dev set the references have no labels of spans"
    ):
        regard.train("runs", out=tmp_path / "run", overrides=[*files, "train.metric=span_f1"])
    assert not (tmp_path / "run").exists()


def test_missing_labels_count_as_wrong_and_additional_ones_do_not_count():
    assert accuracy(["a b"], ["a b b b"], [], CONFIG)[0] == 50.0
    assert accuracy(["a b a a"], ["a b"], [], CONFIG)[0] == 100.0


@pytest.mark.parametrize("recipe", ["runs", "majority"])
def test_unknown_labels_at_evaluation_count_as_wrong_and_not_in_the_loss(recipe):
    one = task(recipe)
    codec = codec_of(one, ("a", "X"), ("b", "Y"))
    columns = one.encode([Pair("a", "Z"), Pair("b", "Y")], codec)
    assert columns["labels"].values.tolist() == [NO_LABEL, 1]
    batch = one.collate(columns, np.arange(2))
    assert batch.num_tokens == 1
    model = small_model(one, codec)
    alone = model(one.collate(columns, np.array([1])))
    torch.testing.assert_close(model(batch), alone)
    outputs = one.predictor(model, codec).predict(["a"])
    assert exact_match(outputs, ["Z"], [], CONFIG)[0] == accuracy(outputs, ["Z"], [], CONFIG)[0] == 0.0


# Tagging


def test_a_line_with_more_words_than_labels_is_refused_with_its_number():
    one = task("runs")
    codec = codec_of(one, ("a b", "X Y"))
    with pytest.raises(DataError, match=r"^example 2 has 3 words but 2 labels; each word needs one label$"):
        one.encode([Pair("a b", "X Y"), Pair("a b a", "X Y")], codec)


def test_subwords_have_their_label_at_the_first_one():
    one = task("runs", "tokenizer.kind=bpe", "tokenizer.size=20")
    codec = codec_of(one, ("abab ab", "X Y"), ("ba b", "Y X"))
    ids, starts = encode_words(codec.tokenizer, ["bbaa", "ba"])
    assert ids == codec.tokenizer.encode("bbaa ba") and starts[0] == 0
    assert codec.tokenizer.decode(ids[: starts[1]]) == "bbaa"
    labels = one.encode([Pair("bbaa ba", "X Y")], codec)["labels"][0]
    assert len(labels) == len(ids) > 2
    assert [labels[start] for start in starts] == [0, 1]
    assert all(label == NO_LABEL for place, label in enumerate(labels) if place not in starts)
    assert len(one.predictor(small_model(one, codec), codec).predict(["bbaa ba"])[0].split()) == 2


@pytest.mark.parametrize("kind", ["char", "word"])
def test_words_of_a_sentence_have_one_place_each(kind):
    tokenizer = train_tokenizers([("ab c", "ab c")], kind=kind, size=50, joint=True, coverage=1.0).source
    ids, starts = encode_words(tokenizer, ["ab", "c"])
    assert ids == tokenizer.encode("ab c") and starts == ([0, 2] if kind == "char" else [0, 1])


def test_a_word_without_ids_has_a_place_for_its_label():
    class Blank:
        kind = "bytes"

        def encode(self, text):
            return [5] if text.isalpha() else []

    assert encode_words(Blank(), ["a", "-", "b"]) == ([5, UNK, 5], [0, 1, 2])


# Classification


def test_a_classifier_reads_the_same_ids_in_training_and_in_use():
    one = task("majority", "tokenizer.kind=char")
    codec = codec_of(one, ("a  b", "X"), ("b a", "Y"))
    predictor = one.predictor(small_model(one, codec), codec)
    assert predictor.encode("a  b").ids == one.encode([Pair("a  b", "X")], codec)["source"][0]


def test_a_class_of_two_words_is_refused():
    with pytest.raises(DataError, match="the label 'very good' is not one word; write it as one"):
        codec_of(task("majority"), ("a", "very good"))


# In use


@pytest.mark.parametrize("recipe", ["runs", "majority"])
def test_outputs_do_not_depend_on_the_other_texts(recipe):
    one = task(recipe)
    codec = codec_of(one, ("a b c d", "X Y X Z" if recipe == "runs" else "X"), ("b", "Y"))
    predictor = one.predictor(small_model(one, codec), codec)
    texts = ["a b c d", "", "b", "c c", "d a b"]
    predictor.options = predictor.options.replace(tokens=4)
    assert predictor.predict(texts) == [predictor.predict([text])[0] for text in texts]


@pytest.mark.parametrize("recipe", ["runs", "majority"])
def test_a_text_that_is_too_long_is_cut_with_a_warning(recipe):
    one, warnings = task(recipe, "data.max_length=3"), []
    codec = codec_of(one, ("a b c", "X Y X" if recipe == "runs" else "X"))
    model = small_model(one, codec, positions="learned", max_positions=4)
    predictor = one.predictor(model, codec, warn=warnings.append)
    assert isinstance(predictor, LabelPredictor)
    outputs = predictor.predict(["a", "a b c a b c"])
    assert [len(output.split()) for output in outputs] == ([1, 4] if recipe == "runs" else [1, 1])
    assert warnings == ["line 2 has 6 tokens; only the first 4 are used"]
    with pytest.raises(DecodeError, match="the input has 6 tokens; this model takes at most 4"):
        one.trace(predictor, "a b c a b c", TraceOptions())


@pytest.mark.parametrize("kind", TOKENIZERS.names())
@pytest.mark.parametrize("recipe", ["runs", "majority"])
def test_a_trace_shows_unknown_characters_as_they_were_written(recipe, kind):
    one = task(recipe, f"tokenizer.kind={kind}")
    codec = codec_of(one, ("a b aa", "a a a" if recipe == "runs" else "a"), ("b", "b"))
    trace = one.trace(one.predictor(small_model(one, codec), codec), "a 😀 b☃", TraceOptions())
    assert trace.source.text == "a 😀 b☃"
    assert "".join(trace.source.word_texts).replace(" ", "") == "a😀b☃"
    assert len(trace.source.tokens) == len(trace.source.ids)


def test_a_trace_has_a_label_per_word_and_the_other_labels():
    one = task("runs", "tokenizer.kind=bpe", "tokenizer.size=20")
    codec = codec_of(one, ("abab ab", "X Y"), ("ba b", "Y X"))
    predictor = one.predictor(small_model(one, codec), codec)
    trace = one.trace(predictor, "bbaa ba", TraceOptions(alternatives=1))
    assert trace.target.text == predictor.predict(["bbaa ba"])[0]
    assert len(trace.source.tokens) > len(trace.target.tokens) == 2
    for probability, (other,) in zip(trace.probabilities, trace.alternatives, strict=True):
        assert probability + other.probability == pytest.approx(1, abs=1e-5) and probability >= other.probability
    with pytest.raises(DecodeError, match="the text is empty"):
        one.trace(predictor, "  ", TraceOptions())


# Files


def test_a_codec_is_loaded_as_it_was_saved_and_damage_is_reported(tmp_path):
    one = task("runs")
    codec = codec_of(one, ("a b", "X Y"))
    codec.save(Folder(tmp_path))
    loaded = one.load_codec(Folder(tmp_path))
    assert loaded.labels == ("X", "Y") and loaded.tokenizer.encode("b a") == codec.tokenizer.encode("b a")
    (tmp_path / LABELS_FILE).write_text('{"X": 0}')
    with pytest.raises(CheckpointError, match=r"labels\.json is damaged"):
        one.load_codec(Folder(tmp_path))


@pytest.mark.parametrize("labels", [[], ["A", "A"], ["A B"], ["A\n"], [""]], ids=str)
def test_labels_that_cannot_be_those_of_a_run_are_refused(tmp_path, labels):
    one = task("runs")
    codec_of(one, ("a b", "A O")).save(Folder(tmp_path))
    Folder(tmp_path).save_json(LABELS_FILE, labels)
    with pytest.raises(CheckpointError, match=r"labels\.json is damaged: it must hold distinct labels"):
        one.load_codec(Folder(tmp_path))


def test_one_text_instead_of_a_list_is_refused():
    one = task("runs")
    codec = codec_of(one, ("a b", "A O"))
    with pytest.raises(DecodeError, match="takes a list of texts"):
        one.predictor(small_model(one, codec), codec).predict("a b")


def test_a_text_of_invisible_characters_has_a_token():
    one = task("majority", "tokenizer.kind=char")
    codec = codec_of(one, ("a b", "low"))
    (length,) = one.encode([Pair("\u200b", "low")], codec)["source"].lengths
    assert length >= 1
