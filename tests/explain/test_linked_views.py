"""All heads at once, hidden words, words linked across texts and pictures, outputs of alternatives; in a real browser."""

import pytest

from regard.explain.report import as_page
from regard.explain.trace_json import trace_as_json
from regard.explain.translation_trace import trace_translation
from tests.browser import DESKTOP, PHONE, Watched, expect, serious_findings
from tests.explain.conftest import SENTENCE

WORDS = ["The", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired"]
SCREENS = pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])


@pytest.fixture(scope="module")
def redrawn(translator):
    """A trace whose alternatives have traces too."""
    return trace_translation(translator, SENTENCE, alternatives=2, redraw=True, name="en-de")


@SCREENS
def test_all_heads_of_all_layers_are_shown_and_one_can_be_chosen(opened, trace, screen):
    page = opened(**screen).page
    page.get_by_label("all heads").check()
    layers = trace.layers("encoder-decoder")
    assert page.locator(".overview .small").count() == len(layers) * layers[0].weights.shape[0]
    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
    page.get_by_role("button", name="Layer 2, head 3").click()
    expect(page.locator("figcaption")).to_have_text("Layer 2, head 3")
    expect(page.locator(".chip[aria-pressed=true]")).to_have_text("3")


def test_a_small_picture_has_the_weights_of_its_head(opened, tagger):
    page = opened(tagger).page
    page.get_by_label("all heads").check()
    # The first head of a layer is an identity, the second gives a quarter to every word.
    shades = page.locator(".small canvas").evaluate_all("""all => all.map((one) => {
        const { data } = one.getContext("2d").getImageData(0, 0, 4, 4);
        return Array.from(data).filter((_, at) => at % 4 == 3);
    })""")
    identity = [255 if row == column else 0 for row in range(4) for column in range(4)]
    assert shades[0] == identity and shades[1] == pytest.approx([64] * 16, abs=1)


@SCREENS
def test_the_end_of_the_sentence_and_punctuation_can_be_hidden(opened, screen):
    page = opened(**screen).page
    words = page.locator(".lines .key .word")
    expect(words).to_have_text([*WORDS, ".", "</s>"])
    page.get_by_label("</s>").check()
    expect(words).to_have_text([*WORDS, "."])
    page.get_by_label("punctuation").check()
    expect(words).to_have_text(WORDS)
    expect(page.locator(".lines .query .word").last).to_have_text("war")
    page.get_by_label("</s>").uncheck()
    expect(words.last).to_have_text("</s>")


def test_a_word_is_marked_in_the_texts_and_in_the_picture(opened):
    page = opened(**DESKTOP).page
    word = page.locator("#output .token", has_text="müde")
    word.hover()
    expect(page.locator(".lines .query .word.pointed")).to_have_text("müde")
    tired = page.locator("#source .plain", has_text="tired")
    assert float(tired.evaluate("one => one.style.getPropertyValue('--link')")) > 0.2
    tired.hover()
    expect(page.locator(".lines .key .word.pointed")).to_have_text("tired")
    page.locator(".lines .query .word", has_text="Straße").hover()
    expect(page.locator("#output .pointed").first).to_have_text("Straße")


def test_a_word_of_the_text_that_is_clicked_stays_highlighted_in_other_layers(opened):
    page = opened(**DESKTOP).page
    page.locator("#source .plain", has_text="street").click()
    page.mouse.move(0, 0)
    expect(page.locator(".lines .key .word[aria-pressed=true]")).to_have_text("street")
    page.get_by_label("Encoder", exact=True).check()
    expect(page.locator(".lines h3").first).to_have_text("source (from)")
    expect(page.locator(".lines .query .word[aria-pressed=true]")).to_have_text("street")


def test_a_source_with_unknown_characters_is_shown_as_it_was_written(opened, translator):
    text = "I didn't see 我们的  book ☃."
    page = opened(trace_translation(translator, text, alternatives=0), **DESKTOP).page
    assert page.locator("#source").evaluate("one => one.textContent") == text


def test_choosing_an_alternative_draws_its_attention(browser, redrawn, tmp_path):
    path = tmp_path / "look.html"
    path.write_text(as_page(redrawn), encoding="utf-8")
    watched = Watched(browser, **DESKTOP)
    page = watched.page
    page.goto(path.as_uri())
    page.locator(".chip", has_text="2").click()
    place = 3
    other = redrawn.alternatives[place][0]
    page.locator("#output .token").nth(place).click()
    page.locator("#others li button").first.click()
    expect(page.locator("#instead")).to_contain_text(other.text)
    page.get_by_label("tokens").check()
    tokens = [token.lstrip("\u2581") or "\u2423" for token in other.trace.target.tokens]
    expect(page.locator(".lines .query .word")).to_have_text(tokens)
    expect(page.locator("figcaption")).to_have_text("Layer 3, head 2")
    page.locator(".lines .query .word").nth(1).hover()
    weights = other.trace.layers("encoder-decoder")[-1].weights[1][1]
    best = redrawn.source.tokens[int(weights.argmax())].lstrip("\u2581")
    expect(page.locator(".said")).to_contain_text(f"looks at {best} {round(100 * float(weights.max()))} %")
    page.get_by_role("button", name="Back to the output").click()
    expect(page.locator(".lines .query .word")).to_have_count(len(redrawn.target.tokens))
    expect(page.locator("#instead")).to_be_hidden()
    assert watched.complaints == []


def test_alternatives_repeat_nothing_of_the_source(redrawn):
    for found in trace_as_json(redrawn)["alternatives"]:
        for one in found:
            assert "source" not in one["trace"]
            assert {packed["name"] for packed in one["trace"]["attentions"]} == {"decoder", "encoder-decoder"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_token_that_the_model_is_unsure_of_can_be_told_in_both_schemes(opened, scheme):
    page = opened(color_scheme=scheme).page
    mark, paper = page.evaluate("""() => {
        const token = document.querySelector(".token");
        token.style.setProperty("--sure", 0);
        const mark = getComputedStyle(token).boxShadow.match(/rgba?\\([^)]*\\)/)?.[0] ?? "rgb(0, 0, 0, 0)";
        return [mark, getComputedStyle(document.body).backgroundColor];
    }""")
    assert contrast(mark, paper) >= 3, "WCAG 2.2, 1.4.11"


def contrast(*colours):
    """The contrast of two opaque colours."""

    def luminance(colour):
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")]
        assert len(parts) == 3, colour
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted(map(luminance, colours))
    return (lighter + 0.05) / (darker + 0.05)
