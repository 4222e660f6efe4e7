"""Means, what flows through layers, alignments: numbers to redo by hand."""

import numpy as np
import pytest

from regard.explain.flow import mean_of_heads, moses_pairs, rollout, soft_alignment
from regard.explain.trace_types import Attention, Text, Trace
from regard.explain.words import between_words, group, shown
from regard.text.tokenizer import train_tokenizers

HALVES = np.array([[0.5, 0.5], [0.0, 1.0]], dtype=np.float32)


def test_a_mean_of_heads():
    heads = np.stack([HALVES, np.eye(2, dtype=np.float32)])
    np.testing.assert_allclose(mean_of_heads(heads), [[0.75, 0.25], [0.0, 1.0]])


def test_half_of_each_layer_comes_by_the_residual_connection():
    np.testing.assert_allclose(rollout([HALVES]), [[0.75, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(rollout([HALVES, HALVES]), [[0.5625, 0.4375], [0.0, 1.0]])


def test_weights_between_words_are_sums_over_keys_and_means_over_queries():
    weights = np.array([[[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]], dtype=np.float32)
    found = between_words(weights, [[0, 1]], [[0, 1], [2]])
    np.testing.assert_allclose(found, [[[0.45, 0.55]]], rtol=1e-6)


def sight_of(across):
    words = [[0], [1], [2]]
    text = Text("a b", [3, 4, 2], ["a", "b", "</s>"], words)
    attentions = [Attention("encoder-decoder", 1, "target", "source", np.array(across, dtype=np.float32))]
    return Trace("", text, text, attentions, [], [])


def test_moses_pairs_name_the_source_word_drawn_on_most():
    crossed = [[[0.1, 0.8, 0.1], [0.6, 0.1, 0.3], [0.0, 0.0, 1.0]]]
    assert moses_pairs(sight_of(crossed)) == [(0, 1), (1, 0)]
    np.testing.assert_allclose(soft_alignment(sight_of(crossed)), crossed[0])


def test_without_attention_there_is_no_alignment():
    text = Text("a", [3, 2], ["a", "</s>"], [[0], [1]])
    assert moses_pairs(Trace("", text, text, [], [], [])) == []


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("char", "le 14 mai", ["le", "14", "mai"]),
        ("char", "03/04/26", ["03", "/", "04", "/", "26"]),
        ("word", "a b", ["a", "b"]),
        ("bpe", "tiredness, tired.", ["tiredness", ",", "tired", "."]),
        ("bpe", "here (there)", ["here", "(", "there", ")"]),
    ],
)
def test_words_as_a_person_would_count_them(kind, text, words):
    size = 20 if kind == "bpe" else 100
    tokenizer = train_tokenizers([(text, text)] * 3, kind=kind, size=size, joint=True).source
    ids = [*tokenizer.encode(text), 2]
    pieces = tokenizer.tokens(ids)
    found = [shown("".join(pieces[index] for index in word)) for word in group(tokenizer, ids)]
    assert found == [*words, "</s>"]
