"""Axes, word groups, merged weights, rollout and alignment, with numbers that can be checked by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.explain.attention import (
    Attention,
    Axis,
    attention_rollout,
    axis_labels,
    group_words,
    mean_over_heads,
    merge_words,
    normalized_entropy,
)
from regard.explain.recorded import recorded_attentions
from regard.explain.report import as_page
from regard.explain.trace import Trace, moses_pairs, soft_alignment
from regard.nn.attention_log import AttentionLog
from regard.text.tokenizer_pair import train_tokenizers

HALVES = np.array([[0.5, 0.5], [0.0, 1.0]], dtype=np.float32)


def test_the_mean_over_heads():
    heads = np.stack([HALVES, np.eye(2, dtype=np.float32)])
    np.testing.assert_allclose(mean_over_heads(heads), [[0.75, 0.25], [0.0, 1.0]])


def test_rollout_takes_half_of_each_layer_from_the_residual_connection():
    np.testing.assert_allclose(attention_rollout([HALVES]), [[0.75, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(attention_rollout([HALVES, HALVES]), [[0.5625, 0.4375], [0.0, 1.0]])


def test_weights_between_words_are_sums_over_keys_and_means_over_queries():
    weights = np.array([[[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]], dtype=np.float32)
    found = merge_words(weights, [[0, 1]], [[0, 1], [2]])
    np.testing.assert_allclose(found, [[[0.45, 0.55]]], rtol=1e-6)


# Axes


def test_axes_with_different_labels_are_headed_by_them_and_equal_labels_get_a_direction():
    source, output = Axis.from_tokens("source", ["a"]), Axis.from_tokens("output", ["b"])
    assert axis_labels(output, source) == ("output", "source")
    assert axis_labels(source, source) == ("source (from)", "source (to)")


def test_an_axis_of_plain_tokens_has_one_word_per_token_and_no_eos():
    axis = Axis.from_tokens("labels", ["B-PER", "I-PER", "O"])
    assert axis.text == "B-PER I-PER O"
    assert axis.word_texts == axis.tokens
    assert axis.words_without_eos == axis.words == [[0], [1], [2]]


def test_an_axis_of_a_tokenized_text_ends_in_eos_which_belongs_to_no_word_of_the_text():
    tokenizer = train_tokenizers([("a b", "a b")], kind="word", size=10, joint=True).source
    axis = Axis.from_ids("source", tokenizer, [*tokenizer.encode("a b"), 2])
    assert axis.word_texts == ["a", "b", "</s>"]
    assert axis.words_without_eos == [[0], [1]]


class Tagger(nn.Module):
    """An encoder without a decoder."""

    non_autoregressive = False

    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleList([nn.Identity(), nn.Identity()])
        self.other = nn.Identity()


def test_an_encoder_without_a_decoder_is_recorded_over_its_input():
    model, log = Tagger(), AttentionLog()
    for layer in model.encoder:
        log.add(layer, [torch.eye(3)[None]])
    log.add(model.other, [torch.eye(3)[None]])  # would lie between the axes "target" and "read", which a tagger lacks
    found = recorded_attentions(model, log, {"source": Axis.from_tokens("input", ["a", "b", "c"])})
    assert [(one.name, one.layer, one.queries, one.keys, one.self_attention) for one in found] == [
        ("encoder", 1, "source", "source", True),
        ("encoder", 2, "source", "source", True),
    ]


def test_weights_of_another_size_than_their_axes_are_left_out():
    model, log = Tagger(), AttentionLog()
    log.add(model.encoder[0], [torch.eye(4)[None]])
    assert recorded_attentions(model, log, {"source": Axis.from_tokens("input", ["a", "b", "c"])}) == []


# Alignment


def trace_of(weights):
    text = Axis("source", "a b", [3, 4, 2], ["a", "b", "</s>"], [[0], [1], [2]])
    attentions = [Attention("encoder-decoder", 1, "target", "source", np.array(weights, dtype=np.float32))]
    return Trace("", {"source": text, "target": text}, attentions)


def test_moses_pairs_name_the_source_word_attended_to_most():
    crossed = [[[0.1, 0.8, 0.1], [0.6, 0.1, 0.3], [0.0, 0.0, 1.0]]]
    assert moses_pairs(trace_of(crossed)) == [(0, 1), (1, 0)]
    np.testing.assert_allclose(soft_alignment(trace_of(crossed)), crossed[0])


def test_without_attention_there_is_no_alignment():
    text = Axis("source", "a", [3, 2], ["a", "</s>"], [[0], [1]])
    assert moses_pairs(Trace("", {"source": text, "target": text}, [])) == []


@pytest.mark.parametrize(
    ("row", "entropy"),
    [([0.25] * 4, 1.0), ([0, 1, 0, 0], 0.0), ([0.5, 0, 0.5, 0], 0.5)],  # ln 2 is half of ln 4
)
def test_the_entropy_of_a_head_is_relative_to_that_of_equal_weights(row, entropy):
    weights = np.array([[row, row]], dtype=np.float32)
    assert normalized_entropy(weights) == pytest.approx([entropy], abs=1e-6)


@pytest.mark.parametrize("even", [True, False])
def test_a_model_that_attends_to_all_words_evenly_aligns_none_and_the_page_says_so(even):
    weights = np.full((2, 4, 4), 0.25, dtype=np.float32)
    if not even:
        weights[1] = np.eye(4)
    axis = Axis.from_tokens("input", ["a", "b", "c", "d"])
    trace = Trace("", {"source": axis, "target": axis}, [Attention("encoder-decoder", 1, "target", "source", weights)])
    assert moses_pairs(trace) == ([] if even else [(0, 0), (1, 1), (2, 2), (3, 3)])
    assert ("nearly the same weight" in as_page(trace)) == even


def test_attention_between_two_sequences_is_shown_before_self_attention():
    axis = Axis.from_tokens("input", ["a", "b"])
    own = Attention("encoder", 1, "source", "source", HALVES[None], self_attention=True)
    pointer = Attention("pointer", 1, "target", "source", HALVES[None])
    assert Trace("", {"source": axis}, [own]).main_name == "encoder"
    assert Trace("", {"source": axis, "target": axis}, [own, pointer]).main_name == "pointer"


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("char", "le 14 mai", ["le", "14", "mai"]),
        ("char", "03/04/26", ["03", "/", "04", "/", "26"]),
        ("word", "a b", ["a", "b"]),
        ("bpe", "tiredness, tired.", ["tiredness", ",", "tired", "."]),
        ("bpe", "here (there)", ["here", "(", "there", ")"]),
        ("bpe", "they didn't 'go'", ["they", "didn't", "'", "go", "'"]),
        ("char", "didn’t dogs' x", ["didn’t", "dogs", "'", "x"]),
        ("word", "didn't go", ["didn't", "go"]),
        ("char", "我们 go。", ["我", "们", "go", "。"]),
    ],
)
def test_tokens_are_grouped_into_words_and_punctuation_marks(kind, text, words):
    size = 20 if kind == "bpe" else 100
    tokenizer = train_tokenizers([(text, text)] * 3, kind=kind, size=size, joint=True).source
    ids = [*tokenizer.encode(text), 2]
    axis = Axis.from_ids("", tokenizer, ids)
    assert axis.words == group_words(kind, ids, tokenizer.tokens(ids))
    assert axis.word_texts == [*words, "</s>"]


def test_chinese_and_japanese_characters_are_words_unless_a_token_has_several():
    tokens = ["\u2581これ", "は", "本", "\u2581it", "s", "も"]
    assert group_words("bpe", [5] * 6, tokens) == [[0], [1], [2], [3, 4], [5]]


def test_bytes_of_an_unknown_character_are_one_word():
    tokens = [
        "\u2581",
        "<0xE6>",
        "<0x88>",
        "<0x91>",
        "<0xE4>",
        "<0xBB>",
        "<0xAC>",
        "<0xC3>",
        "<0xB8>",
        "re",
        "<0xF0>",
        "<0x9F>",
    ]
    axis = Axis("", "我们øre", [5] * len(tokens), tokens, group_words("bpe", [5] * len(tokens), tokens))
    # The last two bytes spell nothing.
    assert axis.word_texts == ["我", "们", "øre", "<0xF0><0x9F>"]
