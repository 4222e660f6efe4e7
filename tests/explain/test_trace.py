"""A trace is what the model did."""

import copy

import numpy as np
import pytest

import regard
from regard.config import SearchOptions
from regard.errors import Cancelled, DecodeError
from regard.explain.recorded import attention_between
from regard.explain.report import as_page
from regard.explain.translation_trace import trace_translation
from regard.text.tokenizer import TOKENIZERS
from regard.text.tokenizer_pair import train_tokenizers
from tests.explain.conftest import SENTENCE


def test_the_translation_is_that_of_translate(translator, trace):
    assert trace.target.text == translator.translate([SENTENCE])[0]
    assert trace.source.text == SENTENCE


def test_a_trace_has_all_layers_and_heads_of_all_three_kinds(translator, trace):
    config = translator.model.config
    assert trace.names == ["encoder", "decoder", "encoder-decoder"]
    source, target = len(trace.source.tokens), len(trace.target.tokens)
    for name, shape in (
        ("encoder", (source, source)),
        ("decoder", (target, target)),
        ("encoder-decoder", (target, source)),
    ):
        layers = trace.layers(name)
        depth = config.num_layers if name == "encoder" else config.decoder_layers
        assert [one.layer for one in layers] == list(range(1, depth + 1))
        for one in layers:
            assert one.weights.shape == (config.num_heads, *shape)
            np.testing.assert_allclose(one.weights.sum(axis=-1), 1.0, atol=1e-5)
    assert not np.triu(trace.layers("decoder")[0].weights, k=1).any(), "the decoder attends to later tokens"


def test_probabilities_are_those_of_the_search(translator, trace):
    best = translator.stream([SENTENCE], options=SearchOptions(beam=4, length_penalty=0.0))
    (found,) = best
    again = trace_translation(translator, SENTENCE, options=SearchOptions(beam=4, length_penalty=0.0), alternatives=0)
    assert again.target.text == found[0].text
    assert np.log(again.probabilities).sum() == pytest.approx(found[0].score, abs=1e-3)
    assert again.alternatives == [[] for _ in again.target.tokens]


def test_options_that_are_not_given_are_those_of_the_translator(translator):
    short = copy.copy(translator)
    short.options = translator.options.replace(max_extra=3)
    found = trace_translation(short, "Yes.", options=SearchOptions(beam=1, min_length=99), alternatives=0)
    assert len(found.target.tokens) == len(found.source.tokens) + 3


def test_alternatives_are_sorted_by_probability_and_lead_to_other_translations(translator, trace):
    assert len(trace.alternatives) == len(trace.target.tokens) == len(trace.probabilities)
    decode = translator.tokenizers.target.decode
    for at, (own, p, found) in enumerate(
        zip(trace.target.tokens, trace.probabilities, trace.alternatives, strict=True)
    ):
        assert len(found) == 3
        assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)
        assert p + sum(one.probability for one in found) <= 1 + 1e-5
        assert all(one.token != own for one in found)
        # The same text is possible only by another split of a word: "er" and "te" instead of "erte".
        same = [one for one in found if one.text == trace.target.text]
        assert all(trace.target.text.startswith(decode([*trace.target.ids[:at], one.id])) for one in same)
        assert len(same) <= 1


def test_an_alternative_can_be_forced(translator, trace):
    tokenizer = translator.tokenizers.target
    ids = tokenizer.encode("Die")
    forced = trace_translation(translator, SENTENCE, prefix=ids, alternatives=0)
    assert forced.target.text.startswith("Die ")


def test_every_token_belongs_to_one_word(trace):
    for text in (trace.source, trace.target):
        assert [index for word in text.words for index in word] == list(range(len(text.tokens)))
        assert text.words[-1] == [len(text.tokens) - 1]  # EOS alone


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_sentence_is_refused(translator, text):
    with pytest.raises(DecodeError, match="the sentence is empty"):
        trace_translation(translator, text)


@pytest.mark.slow
def test_a_sentence_of_five_hundred_tokens_can_be_traced(translator):
    long = trace_translation(
        translator, " ".join(["house"] * 505), options=SearchOptions(beam=1, max_length=505), alternatives=3
    )
    assert len(long.source.tokens) >= 500
    assert long.layers("encoder")[0].weights.shape[1] == len(long.source.tokens)


def test_alternatives_do_not_depend_on_the_batches_they_are_continued_in(translator, trace, monkeypatch):
    monkeypatch.setattr("regard.explain.translation_trace.BATCH_TOKENS", 300)
    assert trace_translation(translator, SENTENCE).alternatives == trace.alternatives


def test_alternatives_come_without_translations_where_there_are_too_many_tokens(translator, trace):
    far = trace_translation(translator, SENTENCE, options=SearchOptions(max_extra=1000))
    assert [[one.id for one in found] for found in far.alternatives] == [
        [one.id for one in found] for found in trace.alternatives
    ]
    assert not any(one.text for found in far.alternatives for one in found)


def test_a_trace_can_be_cancelled(translator):
    calls = iter(range(10))

    def check():
        if next(calls, None) is None:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        trace_translation(translator, SENTENCE, check=check)


def test_a_protected_span_is_shown_as_the_text_that_it_stands_for():
    trace = trace_translation(regard.load("de-en"), "Hallo 😀, ich habe 25 Hunde.")
    for axis in (trace.source, trace.target, trace.axes["read"]):
        assert {"😀", "25"} <= set(axis.tokens) and {"😀", "25"} <= set(axis.word_texts)
    assert all(len(others) == 3 for others in trace.alternatives)
    pieces = [one.token for others in trace.alternatives for one in others]
    assert not any("⟦" in text for text in (*trace.source.tokens, *trace.target.tokens, *pieces))


@pytest.mark.parametrize("kind", TOKENIZERS.names())
def test_an_unknown_character_is_shown_as_it_was_written(kind):
    tokenizers = train_tokenizers([("a dog sees a cat", "ein hund sieht")] * 3, kind=kind, size=60, joint=True)
    size = tokenizers.source.size
    model = regard.Transformer(source_size=size, target_size=size, width=8, num_layers=1, num_heads=1, hidden=8).eval()
    translator = regard.Translator(model, tokenizers, SearchOptions(beam=1, max_length=3))
    text = "a dog 😀 sees ☃ a cat"
    trace = trace_translation(translator, text, alternatives=0)
    assert trace.source.text == text
    assert [word.strip() for word in trace.source.word_texts if word != "␣"] == [*text.split(), "</s>"]
    assert "😀" in as_page(trace) and "⁇" not in "".join(trace.source.tokens)
    assert "😀" in "".join(attention_between(model, tokenizers, text, "ein hund")["source"])
