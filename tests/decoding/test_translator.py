"""Translating texts."""

import warnings

import pytest
import torch

from regard.config import SearchOptions
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.messages import RegardWarning
from regard.models import build_model
from regard.text.tokenizer_pair import train_tokenizers


@pytest.fixture
def make_translator():
    tokenizers = train_tokenizers([("abcdefgh", "abcdefgh")], kind="char", size=100, joint=True)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        table = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
        model = build_model(table, source_size=tokenizers.source.size, target_size=tokenizers.target.size).eval()
        # Larger scores, so that outputs differ.
        model.target_embedding.data *= 3
    return lambda warn=print, **keys: Translator(model, tokenizers, SearchOptions(max_extra=5, **keys), warn=warn)


TEXTS = ["abc", "", "hgfedcba", "a", "   "[:0], "bbbb", "ab"]


def test_outputs_are_in_the_order_of_the_inputs_whatever_the_batches(make_translator):
    one_batch = make_translator(tokens=10_000).translate(TEXTS)
    many_batches = make_translator(tokens=4).translate(TEXTS)
    alone = [make_translator().translate([text])[0] for text in TEXTS]
    assert one_batch == many_batches == alone
    assert len(set(one_batch)) > 2


def test_an_empty_line_has_an_empty_translation(make_translator):
    outputs = make_translator().translate(TEXTS)
    assert [output == "" for output in outputs if output == ""] == [True] * outputs.count("")
    assert outputs[1] == outputs[4] == ""


def test_streaming_reads_only_a_few_lines_ahead(monkeypatch, make_translator):
    monkeypatch.setattr("regard.decoding.translator.READ_AHEAD", 2)
    read = []

    def lines():
        for text in TEXTS:
            read.append(text)
            yield text

    stream = make_translator().stream(lines())
    next(stream)
    assert len(read) == 2
    assert [found[0].text for found in stream] == make_translator().translate(TEXTS)[1:]


def test_a_source_that_is_too_long_is_cut_with_a_warning_that_names_its_line(make_translator):
    warnings = []
    translator = make_translator(warn=warnings.append, max_source=4)
    assert translator.translate(["ab", "abcdefgh"])[1] == translator.translate(["abcd"])[0]
    assert warnings == ["line 2 has 8 tokens; only the first 4 are translated"]


def test_the_n_best_translations_come_best_first(make_translator):
    [found] = make_translator().stream(["abc"], options=SearchOptions(beam=4, nbest=3))
    assert len(found) == 3
    assert found[0].score >= found[1].score >= found[2].score


def test_options_that_a_call_does_not_give_are_those_of_the_translator(make_translator):
    # Outputs are as long as the options allow: the source and `max_extra` more.
    longest, translator = SearchOptions(beam=1, min_length=99), make_translator()
    assert translator.options.max_extra == 5
    for options, length in [(longest, 3 + 5), (longest.replace(max_extra=2), 3 + 2)]:
        assert len(translator.translate(["abc"], options=options)[0]) == length
        assert len(translator.predict(["abc"], options=options)[0]) == length
        ((found,),) = translator.stream(["abc"], options=options)
        assert len(found.text) == length


def test_a_model_with_learned_positions_cuts_longer_sources():
    tokenizers = train_tokenizers([("ab", "ab")], kind="char", size=10, joint=True)
    table = {
        "kind": "transformer",
        "width": 8,
        "num_layers": 1,
        "num_heads": 1,
        "positions": "learned",
        "max_positions": 6,
    }
    model = build_model(table, source_size=tokenizers.source.size, target_size=tokenizers.target.size).eval()
    warnings = []
    outputs = Translator(model, tokenizers, SearchOptions(), warn=warnings.append).translate(["ab", "ab" * 10])
    assert len(outputs) == 2 and all(len(output) <= 6 for output in outputs)
    assert warnings == ["line 2 has 20 tokens; only the first 5 are translated"]


def test_a_single_string_is_refused(make_translator):
    with pytest.raises(DecodeError, match="takes a list"):
        make_translator().translate("abc")


def test_a_line_of_spaces_is_an_empty_line(make_translator):
    assert make_translator().translate(["   "]) == [""]


# Warnings


def test_without_a_function_for_warnings_each_text_that_is_cut_is_a_python_warning(make_translator):
    model, tokenizers = make_translator().model, make_translator().tokenizers
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Translator(model, tokenizers, SearchOptions(max_source=4)).translate(["ab", "abcdefgh", "ababab"])
    assert [str(one.message) for one in caught] == [
        "line 2 has 8 tokens; only the first 4 are translated",
        "line 3 has 6 tokens; only the first 4 are translated",
    ]
    assert {one.category for one in caught} == {RegardWarning}
    assert {one.filename for one in caught} == {__file__}, "a warning names the caller's line, not one of ours"


def test_a_function_for_warnings_replaces_python_warnings(make_translator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_translator(warn=lambda text: None, max_source=4).translate(["abcdefgh"])


# Texts that are none


@pytest.mark.parametrize(("wrong", "kind"), [(None, "NoneType"), (7, "int"), (b"ab", "bytes"), (["ab"], "list")])
def test_an_element_that_is_not_a_string_is_refused_with_its_number_and_type(make_translator, wrong, kind):
    translator = make_translator()
    for call in (translator.translate, translator.predict, lambda texts: list(translator.stream(texts))):
        with pytest.raises(DecodeError) as caught:
            call(["ab", wrong])
        assert str(caught.value) == f"text 2 is of type {kind}, not str; convert it to str, or leave it out"


def test_the_numbers_of_a_stream_go_on_from_chunk_to_chunk(monkeypatch, make_translator):
    monkeypatch.setattr("regard.decoding.translator.READ_AHEAD", 2)
    stream = make_translator().stream(iter(["ab", "ab", "ab", None]))
    next(stream)
    next(stream)
    with pytest.raises(DecodeError, match="text 4 is of type NoneType"):
        next(stream)


@pytest.mark.parametrize("wrong", ["abc", b"abc", None, 7])
def test_anything_but_a_list_is_refused(make_translator, wrong):
    translator = make_translator()
    for call in (translator.translate, translator.predict, lambda texts: list(translator.stream(texts))):
        with pytest.raises(DecodeError, match=r"takes a list of texts"):
            call(wrong)


def test_options_are_combined_once_per_call_and_not_once_per_text(monkeypatch, make_translator):
    translator, made = make_translator(tokens=10_000), []
    check = SearchOptions.check
    monkeypatch.setattr(SearchOptions, "check", lambda self: (made.append(1), check(self))[1])
    counts = []
    for texts in (["abc"], ["abc"] * 20):
        made.clear()
        translator.translate(texts)
        counts.append(len(made))
    assert counts[0] == counts[1] > 0
