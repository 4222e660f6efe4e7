"""Protected spans come back from a model with placeholders, whatever it has learned, and are reported by any other."""

import pytest
import torch

from regard.config import SearchOptions, TokenizerConfig
from regard.decoding.search import stream_greedy
from regard.decoding.translator import Translator
from regard.explain.translation_trace import trace_translation
from regard.models import build_model
from regard.text.protected_spans import PLACEHOLDERS
from regard.text.tokenizer import EOS
from regard.text.tokenizer_pair import fit_tokenizers

TEXTS = [
    "Open <b>{file}</b> at https://example.org/a?b=1, please 😊!",
    "no spans here",
    "It costs 5 or 7 or 5, says a@b.org",
    "<i>one</i> <u>two</u>",
    "",
    "%s",
]
SPANS = [
    ["<b>", "{file}", "</b>", "https://example.org/a?b=1", "😊"],
    [],
    ["5", "7", "5", "a@b.org"],
    ["<i>", "</i>", "<u>", "</u>"],
    [],
    ["%s"],
]


def translator_of(symbols, **options):
    pairs = [(text, text[::-1]) for text in TEXTS if text]
    tokenizers = fit_tokenizers(pairs, TokenizerConfig(kind="bpe", size=90), symbols=symbols)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        table = {"kind": "transformer", "width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16}
        model = build_model(table, source_size=tokenizers.source.size, target_size=tokenizers.target.size).eval()
        model.target_embedding.data *= 3
    return Translator(model, tokenizers, SearchOptions(max_extra=6, **options))


@pytest.mark.parametrize("beam", [1, 3])
def test_every_span_comes_back_as_often_as_it_was_there_and_tags_in_order(beam):
    translator = translator_of(PLACEHOLDERS, beam=beam)
    found = [best[0] for best in translator.stream(TEXTS)]
    for one, spans in zip(found, SPANS, strict=True):
        assert one.lost == ()
        assert all(one.text.count(span) >= spans.count(span) for span in spans)
        assert not any(symbol in one.text for symbol in PLACEHOLDERS)
        tags = [span for span in spans if span.startswith("<")]
        assert sorted(tags, key=one.text.index) == tags
    assert [one.text for one in found] == [translator.translate([text])[0] for text in TEXTS]


def test_without_protection_the_model_sees_the_text_itself():
    translator = translator_of(PLACEHOLDERS)
    plain = translator.translate(TEXTS, options=SearchOptions(protect=False))
    assert plain[1] == translator.translate(TEXTS)[1]
    assert "https://example.org/a?b=1" not in plain[0]
    [[one]] = translator.stream(TEXTS[:1], options=SearchOptions(protect=False))
    assert one.lost == ()


def test_a_model_without_placeholders_reports_what_is_lost_when_asked():
    translator = translator_of(())
    [[silent]], [[one]] = (
        translator.stream(TEXTS[5:]),
        translator.stream(TEXTS[5:], options=SearchOptions(protect=True)),
    )
    assert (silent.text, silent.lost) == (one.text, ())
    assert one.lost == ("%s",)


def test_spans_that_are_cut_off_with_the_end_of_a_source_are_reported():
    translator = translator_of(PLACEHOLDERS, max_source=4)
    translator.warn = lambda text: None
    [[one]] = translator.stream(["no spans here but a@b.org"])
    assert one.lost == ("a@b.org",)


def test_a_stream_and_a_look_give_what_greedy_search_gives():
    translator = translator_of(PLACEHOLDERS, beam=1)
    for text in TEXTS[:4]:
        [expected] = translator.translate([text])
        ids, vocabulary = translator.encode(text)
        partial, demands = [], translator.demands([([*ids, EOS], vocabulary)])
        output = stream_greedy(
            translator.model,
            [*ids, EOS],
            options=translator.options,
            on_token=lambda so_far: partial.append(list(so_far)),  # noqa: B023
            demands=demands,
        )
        assert vocabulary.decode(output) == expected and partial[-1] == output
        trace = trace_translation(translator, text, alternatives=0)
        assert trace.target.text == expected and trace.source.text == text
