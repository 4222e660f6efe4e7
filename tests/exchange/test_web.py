"""The page of `regard export --to web` in real browsers, opened from disk: its outputs are those of the engine."""

import gzip
import importlib.util
import io
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

import regard
from regard.config import SearchOptions
from regard.engine.bindings import library
from regard.errors import ConfigError
from regard.exchange.to_web import _tokenizer, export_page, load_page_model, page_source
from regard.explain.attention import group_words
from regard.explain.page_assets import asset, join_modules
from regard.text.listed_subwords import ListedSubwords, train_listed_subwords
from regard.text.protected_spans import mask
from regard.text.segmenter import SplitText, segment
from regard.text.subwords import SubwordTokenizer, train_subwords
from regard.text.symbols import train_symbols
from regard.text.tokenizer_pair import TaggedTokenizer
from tests import commands
from tests.browser import Watched, expect, serious_findings
from tests.exchange.marian_folders import WOERTER, WORDS, sentences
from tests.exchange.tiny_runs import make_run
from tests.firefox import firefox
from tests.shared import make_once

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "src/regard/shipped/de-en"
WASM = ROOT / "src/regard/engine/regard.wasm"
OWN = (ROOT / "src/regard/exchange/held_out_de_en.tsv").read_text(encoding="utf-8").splitlines()
GERMAN = [line.split("\t")[0] for line in OWN]
WITH_SPANS = [
    "Ich habe 3 Hunde und 12 Katzen.",
    "Schreib an tom@example.org oder öffne https://example.org/a?b=1.",
    "Klicke auf <b>Weiter</b>, um {name} zu speichern.",
    "Es ist 12:30 Uhr 😀.",
    "5 % von 1.000 € sind 50 €.",
]
ODD = [
    "",
    "   ",
    "\t",
    " Guten\tTag  ",
    "😀👨\u200d👩\u200d👧 Hallo 🇩🇪",
    "Cafe\u0301 ﬁ … ½ Ａｂｃ１２３",
    "日本語のテキスト。次の文。",
    "\u2581 unter\u2581strich",
    "<s> </s> <unk> <0x41> ⟦1⟧ ⟦99⟧",
    "a\u0300\u0301\u0302\u0303" * 20,
    "\ufeffBOM\u200b\u00a0und\u2003Leerzeichen",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "Wort " * 400,
    "x" * 3000,
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return make_once(tmp_path_factory, "web", lambda folder: export_page("de-en", folder / "de-en.html")) / "de-en.html"


@pytest.fixture(scope="module")
def window(page_file, tmp_path_factory):
    """The page in Firefox, which takes seconds to start."""
    with firefox(tmp_path_factory.mktemp("profile")) as found:
        found.open(page_file.as_uri())
        yield found


@pytest.fixture(scope="module")
def loaded(browser, page_file):
    """The page in Chromium, for tests that only call its functions."""
    watched = Watched(browser)
    watched.page.goto(page_file.as_uri())
    expect(watched.page.locator("#loading")).to_be_hidden()
    yield watched.page
    assert_nothing_was_asked_for(watched)
    watched.context.close()


@pytest.fixture
def opened(browser):
    made = []

    def opener(path):
        watched = Watched(browser)
        made.append(watched)
        watched.page.goto(path.as_uri())
        expect(watched.page.locator("#loading")).to_be_hidden()
        return watched

    yield opener
    for watched in made:
        assert_nothing_was_asked_for(watched)
        watched.context.close()


@pytest.fixture(scope="module")
def scripts(browser):
    """A page with the functions of a page for text, and nothing else."""
    context = browser.new_context()
    page = context.new_page()
    page.add_script_tag(content=join_modules(page_source("tokenizer.js"), page_source("text.js")))
    yield page
    context.close()


def assert_nothing_was_asked_for(watched):
    """No message in the console, and no request except for the page and the worker that it makes of its own text."""
    assert watched.complaints == []
    assert [url for url in watched.requests if not url.startswith(("file:", "blob:", "data:"))] == []


def engine_of(run):
    """A run whose weights are int8, in the engine."""
    if library() is None:
        pytest.skip("the engine has not been compiled: make engine")
    return regard.load(run, int8=True, engine="engine", threads=1)


def translated(translator, texts, **options):
    """Texts and scores of the best outputs, as a page gives them."""
    found = translator.stream(texts, options=SearchOptions(**options))
    return [[(one.text, one.score) for one in best] for best in found]


def outputs(answer):
    return [[(one["text"], one["score"]) for one in best] for best in answer]


# Outputs


def test_outputs_of_the_page_are_those_of_the_engine(loaded):
    translator = engine_of("de-en")
    assert outputs(loaded.evaluate("texts => regard.translate(texts)", GERMAN)) == translated(translator, GERMAN)
    # Placeholders are found by steps whose scores are summed in another order.
    ours, theirs = loaded.evaluate("texts => regard.translate(texts)", WITH_SPANS), translated(translator, WITH_SPANS)
    for source, own, other in zip(WITH_SPANS, outputs(ours), theirs, strict=True):
        assert [text for text, _ in own] == [text for text, _ in other], source
        assert own[0][1] == pytest.approx(other[0][1], abs=1e-4)
        assert all(own[0][0].count(span.text) == source.count(span.text) for span in mask(source).spans)


@pytest.mark.parametrize(("run", "where"), [("de-en", "Chromium"), ("en-de", "Chromium"), ("de-en", "Firefox")])
def test_500_sentences_of_a_test_set_are_those_of_the_engine(opened, tmp_path, data_folder, run, where):
    with gzip.open(data_folder / f"tatoeba_en_de/test.{run[:2]}.gz", "rt", encoding="utf-8") as file:
        texts = [line.rstrip("\n") for line in file][:500]
    file = export_page(run, tmp_path / "page.html")
    if where == "Chromium":
        ours = outputs(opened(file).page.evaluate("texts => regard.translate(texts)", texts))
    else:
        with firefox(tmp_path) as window:
            window.open(file.as_uri())
            window.evaluate("regard.ready")
            ours = outputs(window.evaluate("regard.translate(a)", texts))
    theirs = translated(engine_of(run), texts)
    for source, own, other in zip(texts, ours, theirs, strict=True):
        assert own[0][0] == other[0][0], source
        assert own == other or mask(source).spans, source


def test_odd_text_is_translated_as_by_the_engine(loaded):
    translator = engine_of("de-en")
    texts = [text[:40] for text in ODD]
    ours = [best[0][0] for best in outputs(loaded.evaluate("texts => regard.translate(texts)", texts))]
    assert ours == [best[0][0] for best in translated(translator, texts)]


@pytest.mark.slow
def test_firefox_gives_the_same_outputs_without_a_request(window):
    some = GERMAN[::3]  # Chromium translates all of them
    window.evaluate("regard.ready")
    found = outputs(window.evaluate("regard.translate(a)", [*some, *WITH_SPANS]))
    assert window.evaluate("performance.getEntriesByType('resource').map((one) => one.name)") == []
    translator = engine_of("de-en")
    assert found[: len(some)] == translated(translator, some)
    assert [best[0][0] for best in found[len(some) :]] == translator.translate(WITH_SPANS)


@pytest.mark.slow
def test_the_first_translation_comes_soon_in_firefox(window, page_file):
    typed = (
        "new Promise((done) => { const text = document.getElementById('text'), output = document.getElementById('output');"
        "  new MutationObserver(() => regard.timings.first && done(output.textContent))"
        "    .observe(document.body, { attributes: true });"
        "  text.value = 'Wo ist der Bahnhof?'; text.dispatchEvent(new Event('input')); })"
    )
    window.open(page_file.as_uri())
    assert window.evaluate(typed) == "Where is the train station?"
    print("Firefox, milliseconds since the page was opened:", window.evaluate("regard.timings"))


@pytest.mark.parametrize(
    "options",
    [
        {"norm_order": "pre", "positions": "rotary", "feed_forward": "swiglu", "norm": "rms", "qk_norm": True},
        {"positions": "learned", "max_positions": 64, "tie": "none", "feed_forward": "gelu", "attention_bias": True},
        {"feed_forward": "conv", "positions": "sinusoid-log", "window": 2, "source_eos": False, "output_bias": True},
        {"tokenizer": "bpe", "byte_fallback": True, "key_width": 6, "value_width": 10, "scale_embeddings": False},
        *({"tokenizer": kind} for kind in ("sentencepiece", "char", "word")),
    ],
    ids=["rotary", "learned", "convolutions", "bytes", "sentencepiece", "char", "word"],
)
def test_models_with_other_options_are_those_of_the_engine(opened, tmp_path, options):
    run = make_run(tmp_path / "run", joint=options.get("tie") != "none", **options)
    page = opened(export_page(run, tmp_path / "page.html")).page
    texts = [*sentences(WORDS, 12, seed=5), "unbekannt 😀 ½", ""]
    found = outputs(page.evaluate("texts => regard.translate(texts, { nbest: 3 })", texts))
    small = regard.export(run, tmp_path / "small", weights="int8")
    assert found == translated(engine_of(small.path), texts, nbest=3)
    sums = page.evaluate(
        "text => regard.look(text).then(({ trace }) => trace.attentions.flatMap((one) => one.matrices.map("
        "  (matrix) => matrix.values.reduce((sum, weight) => sum + weight, 0) / matrix.rows)))",
        texts[0],
    )
    # Each position attends to others by 1 in all; there are two layers of the encoder, and one of the decoder.
    assert sums == pytest.approx([1.0] * 4 * (2 + 1 + 1), abs=1e-5)


def test_a_language_is_chosen_on_the_page(opened, tmp_path):
    run = make_run(tmp_path / "run", targets=("de", "fr"))
    page = opened(export_page(run, tmp_path / "page.html")).page
    small = regard.export(run, tmp_path / "small", weights="int8")
    text, translator = sentences(WORDS, 1, seed=5)[0], engine_of(small.path)
    page.locator("#text").fill(text)
    for language, name in (("de", "to German"), ("fr", "to French")):
        page.get_by_label("Translate into").select_option(name)
        expect(page.locator("#output")).to_have_text(translator.into(language).translate([text])[0])
        assert page.locator("#output").get_attribute("lang") == language


def test_a_page_equals_the_run_with_int8_weights(tmp_path):
    run = make_run(tmp_path / "run")
    small = regard.export(run, tmp_path / "small", weights="int8")
    ours, theirs = load_page_model(run).weights, load_page_model(small.path).weights
    assert ours.keys() == theirs.keys()
    for name, (data, scales) in ours.items():
        assert (data == theirs[name].data).all(), name
        assert scales is None or (scales == theirs[name].scales).all(), name


# The page


@pytest.mark.quick
def test_typed_text_is_translated_and_alternatives_and_attention_are_shown(opened, page_file):
    watched = opened(page_file)
    page = watched.page
    page.locator("#text").press_sequentially("Wo ist der Bahnhof? Danke!")
    expect(page.locator("#output .part")).to_have_text(["Where is the train station?", "Thanks."])
    page.locator("#output .part").first.click()
    expect(page.locator(".token")).to_have_count(6)
    expect(page.locator("#nbest li")).to_have_count(4)
    expect(page.locator(".lines")).to_be_visible()
    page.locator(".token", has_text="train").click()
    expect(page.locator("#others li").first).to_contain_text("Where is the")
    assert serious_findings(page) == []
    page.locator("#others li button").first.click()
    expect(page.locator("#output .part")).to_have_text("Thanks.")
    expect(page.locator("#output")).not_to_contain_text("Where is the train")


def test_one_click_on_a_word_shows_its_alternatives(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill("Wo ist der Bahnhof?")
    page.get_by_text("train", exact=True).click()
    expect(page.locator("#others")).to_contain_text("Instead of \u201ctrain\u201d")
    expect(page.locator(".token", has_text="train")).to_be_focused()


def test_the_first_translation_comes_soon(browser, page_file):
    watched = Watched(browser)
    watched.page.goto(page_file.as_uri(), wait_until="commit")
    watched.page.locator("#text").fill("Wo ist der Bahnhof?")
    expect(watched.page.locator("#output .part")).to_have_text("Where is the train station?")
    print("Chromium, milliseconds since the page was opened:", watched.page.evaluate("regard.timings"))
    watched.context.close()


def test_a_silenced_layer_changes_the_translation_until_it_is_used_again(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill("Wo ist der Bahnhof?")
    expect(page.locator("#output")).to_have_text("Where is the train station?")
    page.locator("#parts summary").click()
    page.get_by_label("Silence all of layer 3, Decoder", exact=True).check()
    expect(page.locator("#output")).not_to_have_text("Where is the train station?")
    expect(page.locator("#unchanged")).to_have_text("All parts together: Where is the train station?")
    translator = engine_of("de-en")
    translator.backend.engine_model.silence(1, 2)
    expect(page.locator("#output")).to_have_text(translator.translate(["Wo ist der Bahnhof?"])[0])
    # What is looked at stays in view.
    page.locator("#output .part").click()
    expect(page.locator(".lines")).to_be_visible()
    page.get_by_label("Silence head 2 of layer 1, Encoder", exact=True).check()
    expect(page.locator(".lines")).to_be_visible()
    page.locator("#restore").click()
    expect(page.locator(".lines")).to_be_visible()
    expect(page.locator("#output")).to_have_text("Where is the train station?")
    expect(page.locator("#unchanged")).to_be_hidden()
    expect(page.locator(".token")).to_have_count(6)


def test_a_head_is_silenced_from_its_picture(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill("Wo ist der Bahnhof?")
    page.locator("#output .part").click()
    expect(page.locator(".silence")).to_have_count(0)  # not of the mean over heads
    page.get_by_label("Encoder", exact=True).check()
    page.get_by_role("button", name="2", exact=True).click()
    page.get_by_role("button", name="Silence head 2 of layer 6").click()
    expect(page.get_by_role("button", name="Use head 2 of layer 6")).to_be_visible()
    expect(page.locator("figcaption")).to_have_text("Layer 6, head 2")
    page.get_by_text("Silence a part of the model").click()
    expect(page.get_by_label("Silence head 2 of layer 6, Encoder", exact=True)).to_be_checked()
    page.get_by_role("button", name="Use head 2 of layer 6").click()
    expect(page.get_by_label("Silence head 2 of layer 6, Encoder", exact=True)).not_to_be_checked()
    expect(page.get_by_role("button", name="Silence head 2 of layer 6")).to_be_visible()


def test_attention_and_probabilities_are_those_of_the_engine(loaded):
    found = loaded.evaluate(
        "regard.look('Der Hund schläft.').then(({ trace }) => ({ source: trace.source, target: trace.target,"
        "  weights: trace.attentions.flatMap((one) => one.matrices.flatMap((matrix) => [...matrix.values])),"
        "  probabilities: trace.probabilities, likeliest: trace.alternatives.map((some) => some[0].id) }))"
    )
    forced = engine_of("de-en").backend.engine_model.force(
        found["source"]["ids"], found["target"]["ids"][:-1], best=8, attention=True
    )
    assert found["weights"] == np.concatenate([one.reshape(-1) for one in forced.attention]).tolist()
    assert found["probabilities"] == pytest.approx(np.exp(forced.logp).tolist())
    for own, ids, likeliest in zip(found["target"]["ids"], forced.columns.tolist(), found["likeliest"], strict=True):
        assert likeliest == next(id for id in ids if id not in (own, 1))
    trace = regard.look("de-en", "Der Hund schläft.")
    for name in ("source", "target"):
        axis = getattr(trace, name)
        assert (found[name]["tokens"], found[name]["words"]) == (axis.tokens, axis.words)


def test_protected_spans_are_shown_as_the_text_that_they_stand_for(loaded):
    text = "Hallo 😀, ich habe 25 Hunde."
    axes = loaded.evaluate(
        "text => regard.look(text).then(({ trace }) => [trace.source, trace.target, trace.read])", text
    )
    trace = regard.look("de-en", text)
    own = [trace.source, trace.target, trace.axes["read"]]
    assert [(one["tokens"], one["words"]) for one in axes] == [(one.tokens, one.words) for one in own]
    assert all("😀" in one["tokens"] for one in axes)


def test_attention_is_shown_by_head_and_layer(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill("Der Hund schläft.")
    page.locator("#output .part").click()
    page.get_by_label("Encoder", exact=True).check()
    page.get_by_role("slider").fill("6")
    page.get_by_role("button", name="3", exact=True).click()
    expect(page.locator("figcaption")).to_have_text("Layer 6, head 3")


def test_new_typing_cancels_what_is_being_translated(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill(" ".join(GERMAN * 5))
    page.wait_for_timeout(300)
    page.locator("#text").fill("Danke!")
    expect(page.locator("#output .part")).to_have_text(["Thanks."])


def test_typing_on_keeps_the_old_translation_dimmed(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill("Wo ist der Bahnhof?")
    expect(page.locator("#output")).to_have_text("Where is the train station?")
    page.evaluate("""() => {
        const output = document.querySelector("#output");
        globalThis.seen = [];
        new MutationObserver(() => seen.push([output.textContent, output.classList.contains("old")]))
            .observe(output, { childList: true, subtree: true, characterData: true, attributes: true });
    }""")
    page.locator("#text").fill("Wo ist der Bahnhof? Danke!")
    expect(page.locator("#output")).to_have_text("Where is the train station? Thanks.")
    page.locator("#text").fill("Wo ist der alte Bahnhof?")
    expect(page.locator("#output")).to_have_text("Where is the old station?")
    seen = page.evaluate("seen")
    # The first sentence is known already, so it and the place of the second are shown at once.
    assert seen[0] == ["Where is the train station? …", False]
    assert ["Where is the train station? Thanks.", True] in seen
    assert all(len(text) > len("Where is the") for text, _ in seen)
    assert seen[-1] == ["Where is the old station?", False]


def test_the_page_can_be_used_by_keyboard(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill("Wo ist der Bahnhof?")
    expect(page.locator("#output .part")).to_be_visible()
    page.locator("#text").focus()
    for _ in range(2):  # clear, then the translation
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".tokens .token").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#others")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#others")).to_be_hidden()


def test_the_page_is_accessible(opened, page_file):
    page = opened(page_file).page
    page.locator("#text").fill("Der Hund schläft.")
    page.locator("#output .part").click()
    page.locator(".token").first.click()
    expect(page.locator("#others li .text").first).not_to_have_text("…")
    page.locator("#parts summary").click()
    page.get_by_label("Silence all of layer 1, Decoder", exact=True).check()
    expect(page.locator("#unchanged")).to_be_visible()
    for width in (390, 1200):
        page.set_viewport_size({"width": width, "height": 850})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        # Dark colours change contrasts and nothing else.
        for scheme, only in (("light", None), ("dark", ["color-contrast"])):
            page.emulate_media(color_scheme=scheme)
            assert serious_findings(page, only) == [], (width, scheme)


def test_the_policy_of_the_page_refuses_requests(browser, page_file):
    watched = Watched(browser)
    watched.page.goto(page_file.as_uri())
    ask = "fetch('https://example.org/').then(() => 'sent', () => 'refused')"
    assert watched.page.evaluate(ask) == "refused"
    assert all("Content Security Policy" in text for text in watched.complaints) and watched.complaints
    watched.context.close()


def test_the_file_is_small_and_names_the_model_its_languages_and_its_license(page_file):
    weights = SHIPPED / "final/weights.safetensors"
    ratio = page_file.stat().st_size / weights.stat().st_size
    print(f"size: {ratio:.2f} of the weights")
    assert ratio < 1.4
    text = page_file.read_text(encoding="utf-8")
    for words in ("de-en: German to English", "tatoeba.org", "License: CC BY 2.0", "default-src 'none'"):
        assert words in text
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text


# Tokenizers


def run_tokenizer(page, data, call):
    """What JavaScript's `call` returns, given the data of a tokenizer."""
    return page.evaluate(f"data => {{ const tokenizer = makeTokenizer(data); return {call}; }}", data)


def odd_texts():
    draw = random.Random(1)
    ranges = [(32, 127), (160, 0x250), (0x2000, 0x2100), (0x3040, 0x30FF), (0x1F300, 0x1F6FF), (0xFF00, 0xFF60)]
    letters = [" ", "\u2581", "⟦1⟧", "\u0301"]
    return [
        "".join(
            draw.choice([chr(draw.randrange(*draw.choice(ranges))), *letters]) for _ in range(draw.randrange(1, 30))
        )
        for _ in range(150)
    ]


def make_tokenizer(kind):
    texts = [*sentences(WORDS, 300), *sentences(WOERTER, 300), *GERMAN]
    if kind in ("char", "word"):
        return train_symbols(texts, kind=kind, size=200, coverage=0.999)
    if kind == "listed":
        return train_listed_subwords(texts, kind="sentencepiece", size=120, coverage=1.0)
    if kind == "tagged":
        return TaggedTokenizer(train_symbols(texts, kind="word", size=90, coverage=1.0), ["<2de>", "<2fr>"])
    if kind == "shipped":
        return SubwordTokenizer("bpe", (SHIPPED / "tokenizer/joint.model").read_bytes())
    subwords, _, rest = kind.partition(" ")
    if rest.startswith("nmt"):
        return SubwordTokenizer(subwords, _trained(texts, subwords, rest))
    symbols = ["⟦1⟧", "⟦2⟧"] if rest == "symbols" else []
    fallback = rest == "bytes"
    size = 500 if fallback else 150
    return train_subwords(texts, kind=subwords, size=size, coverage=0.99, byte_fallback=fallback, symbols=symbols)


def _trained(texts, kind, rule):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(texts), model_writer=model, model_type=kind, vocab_size=150, hard_vocab_limit=False,
        normalization_rule_name=rule, unk_id=0, bos_id=1, eos_id=2, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


KINDS = [
    *("shipped", "bpe", "unigram", "bpe bytes", "unigram bytes", "bpe symbols", "unigram symbols"),
    *("bpe nmt_nfkc", "unigram nmt_nfkc_cf", "listed", "char", "word", "tagged"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_in_javascript_gives_the_same_ids_tokens_and_texts(scripts, kind):
    texts = [*ODD, *odd_texts(), *GERMAN, ">>fra<< Hallo", *sentences(WORDS, 20, seed=9)]
    draw, tokenizer = random.Random(2), make_tokenizer(kind)
    ids = [tokenizer.encode(text) for text in texts]
    given = [*ids, *([draw.randrange(tokenizer.size) for _ in range(9)] for _ in range(100))]
    call = (
        "({ ids: data.texts.map((text) => tokenizer.encode(text)),"
        "   tokens: data.texts.map((text) => tokenizer.tokenize(text)),"
        "   texts: data.given.map((ids) => tokenizer.decode(ids)),"
        "   names: data.given.map((ids) => tokenizer.tokens(ids)) })"
    )
    found = run_tokenizer(scripts, {**_tokenizer(tokenizer, "source"), "texts": texts, "given": given}, call)
    for text, own, other in zip(texts, found["ids"], ids, strict=True):
        assert own == other, text
    assert found["tokens"] == [tokenizer.tokenize(text) for text in texts]
    assert found["names"] == [tokenizer.tokens(one) for one in given]
    assert found["texts"] == [tokenizer.decode(one) for one in given]


def test_spans_and_sentences_in_javascript_are_those_of_python(scripts):
    draw = random.Random(3)
    letters = [
        *"abXYZ 019.,:;/-+%$€{}<>()`@&#'\"!?\n\t_⟦⟧→☀😀👍🏽éß½٣　。好」”）",
        "http://",
        "www.",
        "<b>",
        "&amp;",
        "%s",
        "${",
        "Dr. ",
    ]
    texts = [*WITH_SPANS, *ODD, "Dr. Smith kam. Am 3. Mai z.B. auch. „Ja.“ Gut!\n\nNeu."]
    texts += ["".join(draw.choice(letters) for _ in range(draw.randrange(1, 40))) for _ in range(1000)]
    call = (
        "data.texts.map((text) => {"
        "  const { text: masked, spans } = mask(text), split = segment(text, (one) => [...one].length < 30);"
        "  const named = spans.map((one) => [one.kind, one.text]), restored = restore('⟦1⟧ a ⟦2⟧b⟦30⟧', spans);"
        "  return [masked, named, restored, split.sentences, split.spaces]; })"
    )
    found = run_tokenizer(scripts, {"kind": "char", "symbols": ["a"], "texts": texts}, call)
    for text, own in zip(texts, found, strict=True):
        masked, split = mask(text), segment(text, fits=lambda one: len(one) < 30)
        spans = [[span.kind, span.text] for span in masked.spans]
        assert own == [masked.text, spans, masked.restore("⟦1⟧ a ⟦2⟧b⟦30⟧"), split.sentences, split.spaces], text


def test_translations_in_javascript_are_separated_as_in_python(browser):
    draw = random.Random(5)
    ends = ["a.", "好。", "好。”", "ab", "”", "ア」", "x）", "", "。”””””"]
    begins = ["a", "他", "“A", "「", ""]
    cases = [(draw.choice(["。", "好。”", "a", "b.", "！』"]), draw.choice(["", " ", "\n"])) for _ in range(200)]
    cases = [(original, space, draw.choice(ends), draw.choice(begins)) for original, space in cases]
    context = browser.new_context()
    page = context.new_page()
    page.add_script_tag(content=join_modules(asset("elements.js")))
    found = page.evaluate("cases => cases.map(one => one[2] + spaceBetween(...one) + one[3])", cases)
    context.close()
    expected = [SplitText([original, "x"], ["", space, ""]).join([a, b]) for original, space, a, b in cases]
    assert found == expected and any(" " in one for one in found)


def test_words_in_javascript_are_those_of_python(scripts):
    draw = random.Random(4)
    spelled = [f"<0x{byte:02X}>" for byte in "我😀é\n".encode()]
    subwords = [
        "\u2581",
        "\u2581a",
        "b",
        "\u2581don",
        "'",
        "’",
        "t",
        "s",
        ".",
        "我",
        "の本",
        "a我",
        "\u2581'",
        "x-",
        *spelled,
    ]
    symbols = [" ", "a", "ß", "'", "’", "1", ".", "我", "の", "\n", "😀"]
    cases = [
        [kind, [draw.choice([*known, "</s>"]) for _ in range(draw.randrange(1, 12))]]
        for kind, known in (("bpe", subwords), ("unigram", subwords), ("char", symbols), ("word", symbols))
        for _ in range(300)
    ]
    given = [[kind, [2 if token == "</s>" else 5 for token in tokens], tokens] for kind, tokens in cases]
    call = "data.given.map(([kind, ids, tokens]) => groupWords(kind, ids, tokens))"
    found = run_tokenizer(scripts, {"kind": "char", "symbols": ["a"], "given": given}, call)
    for own, (kind, ids, tokens) in zip(found, given, strict=True):
        assert own == group_words(kind, ids, tokens), (kind, tokens)


def test_imported_subwords_are_numbered_by_their_list():
    tokenizer = make_tokenizer("listed")
    assert isinstance(tokenizer, ListedSubwords)
    assert _tokenizer(tokenizer, "source")["symbols"] == tokenizer.symbols


# What is refused


def test_what_cannot_become_a_page_is_refused_by_name(tmp_path):
    copying = make_run(tmp_path / "copying", tokenizer="word", copy=True)
    with pytest.raises(ConfigError, match=r"does not copy words of the source \(model\.copy\)"):
        export_page(copying, tmp_path / "page.html")
    recurrent = make_run(tmp_path / "recurrent", model={"kind": "rnn", "width": 16, "num_layers": 1})
    with pytest.raises(ConfigError, match=r"Transformers alone, and model\.kind is 'rnn'"):
        export_page(recurrent, tmp_path / "page.html")
    with pytest.raises(ConfigError, match=r"ends in \.html"):
        export_page("de-en", tmp_path / "folder")
    (tmp_path / "there.html").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="is there already"):
        export_page("de-en", tmp_path / "there.html")
    assert not (tmp_path / "page.html").exists()


def test_the_command_writes_a_page_and_says_what_it_leaves_out(tmp_path):
    run = make_run(tmp_path / "run", decode=SearchOptions(beam=2, no_repeat_ngram=3, max_source=40))
    done = commands.regard("export", str(run), "--to", "web", "--out", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and "page.html: 0." in done.stderr and "open it in a browser" in done.stderr
    assert "it leaves out decode.no_repeat_ngram of the recipe" in done.stderr
    assert "<!doctype html>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    again = commands.regard("export", str(run), "--to", "web", "--out", "page.html", cwd=tmp_path)
    assert again.returncode != 0 and "is there already" in again.stderr


@pytest.mark.slow
def test_a_page_is_made_without_torch(tmp_path):
    code = "import sys; sys.modules['torch'] = None; import regard; print(regard.export_page('de-en', sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "page.html")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "page.html")


# The compiled engine


def test_the_compiled_engine_imports_nothing():
    content = WASM.read_bytes()
    assert content[:8] == b"\0asm\1\0\0\0"
    at, kinds = 8, []
    while at < len(content):
        kinds.append(content[at])
        size = shift = 0
        at += 1
        while True:
            size, shift, at = size | (content[at] & 127) << shift, shift + 7, at + 1
            if content[at - 1] < 128:
                break
        at += size
    assert 2 not in kinds, "it has a section of imports"
    assert 0 not in kinds, "it has names or notes of the compiler"


@pytest.mark.slow
def test_the_compiled_engine_is_that_of_the_sources(tmp_path):
    spec = importlib.util.spec_from_file_location("web", ROOT / "scripts/web.py")
    web = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(web)
    try:
        web.find_compiler()
    except web.BuildError as error:
        pytest.skip(str(error))
    made = web.build(tmp_path / "regard.wasm").read_bytes()
    assert made == WASM.read_bytes(), "compile it again: make web"
