"""The files of `regard look` in a real browser."""

from base64 import b64encode

import numpy as np
import pytest

from regard.decoding.hypotheses import SearchOptions
from regard.explain.flow import mean_of_heads, rollout
from regard.explain.page import as_page, asset, packed
from regard.explain.trace import trace_translation
from regard.explain.words import between_words
from tests.browser import Watched, chromium, expect, serious_findings


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser, trace, tmp_path):
    path = tmp_path / "look.html"
    path.write_text(as_page(trace), encoding="utf-8")

    def opener(**options):
        watched = Watched(browser, **options)
        watched.page.goto(path.as_uri())
        watched.page.wait_for_selector(".lines path", state="attached")
        return watched

    return opener


def test_it_opens_from_disk_asks_for_nothing_and_complains_of_nothing(opened):
    watched = opened()
    assert watched.complaints == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []


def test_the_page_computes_means_rollout_and_words_as_we_do(browser, trace):
    """The page has them in JavaScript: the same weights through both."""
    layers = trace.of("encoder")
    layers_packed = [one for one in packed(trace)["attentions"] if one["name"] == "encoder"]
    code = b64encode(asset("attention.js").encode()).decode()
    found = Watched(browser).page.evaluate(
        """async ([code, packed, words]) => {
            const { unpack, meanOf, rollout, betweenWords } = await import(`data:text/javascript;base64,${code}`);
            const layers = await Promise.all(packed.map(unpack));
            const rolled = rollout(layers.map((one) => meanOf(one.matrices)));
            return [rolled, betweenWords(rolled, words, words)].map((one) => Array.from(one.values));
        }""",
        [code, layers_packed, trace.source.words],
    )
    rolled = rollout([mean_of_heads(one.weights) for one in layers])
    words = between_words(rolled[None], trace.source.words, trace.source.words)[0]
    np.testing.assert_allclose(found[0], rolled.ravel(), atol=2e-5)  # weights travel in steps of 1/65535
    np.testing.assert_allclose(found[1], words.ravel(), atol=2e-4)


def test_the_translation_is_there_with_what_else_could_have_been(opened, trace):
    page = opened().page
    assert page.locator("#translation").inner_text() == trace.target.text
    place = 8
    page.locator(".token").nth(place).click()
    other = trace.alternatives[place][0]
    shown = page.locator("#others li").first.inner_text()
    assert other.text in shown
    page.locator("#others button").first.click()
    assert page.locator("#instead").inner_text() == other.text
    page.keyboard.press("Escape")
    assert page.locator("#others").is_hidden()


def test_layers_heads_and_views_can_be_chosen(opened, trace):
    watched = opened()
    page = watched.page
    page.get_by_label("Encoder", exact=True).check()
    page.get_by_role("slider").fill("2")
    page.get_by_role("button", name="1", exact=True).click()
    page.get_by_role("button", name="3", exact=True).click()
    expect(page.locator("figcaption").first).to_contain_text("Layer 2, head 1 · Layer 2, head 3")
    page.get_by_label("side by side").check()
    expect(page.locator(".lines")).to_have_count(2)
    page.get_by_label("heatmap").check()
    expect(page.locator("canvas")).to_have_count(2)
    page.get_by_role("button", name="rolled out").click()
    expect(page.locator("figcaption").first).to_contain_text("Rolled out")
    assert watched.complaints == []


def test_pointing_at_a_word_says_what_it_looks_at_with_the_numbers_seen(opened, trace):
    page = opened().page
    page.get_by_label("pieces").check()
    expect(page.locator(".lines .query .word")).to_have_count(len(trace.target.tokens))
    page.locator(".lines .query .word").nth(1).hover()
    said = page.locator(".said").inner_text()
    weights = trace.of("encoder-decoder")[-1].weights.mean(axis=0)[1]
    best = int(weights.argmax())
    piece = trace.source.tokens[best].lstrip("\u2581")
    assert f"looks at {piece} {round(100 * float(weights[best]))} %" in said


def test_it_can_be_used_by_keyboard_alone(opened):
    page = opened().page
    page.locator(".lines .query .word").first.focus()
    page.keyboard.press("ArrowDown")
    assert "looks at" in page.locator(".aloud").inner_text()
    page.locator(".token").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#others").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_keeps_nobody_out(opened, scheme):
    page = opened(color_scheme=scheme, viewport={"width": 390, "height": 800}).page
    assert serious_findings(page) == []
    assert page.evaluate(
        "document.documentElement.scrollWidth <= window.innerWidth"
    )  # a phone need not scroll sideways


def test_dark_is_dark(opened):
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = (opened(color_scheme=scheme).page.evaluate(paper) for scheme in ("light", "dark"))
    assert light == "rgb(251, 250, 247)" and dark == "rgb(21, 22, 26)"


def test_five_hundred_tokens_are_drawn(browser, translator, tmp_path):
    path = tmp_path / "long.html"
    text = " ".join(f"The house number {number} is red." for number in range(60))
    options = SearchOptions(beam=1, max_length=500)
    path.write_text(as_page(trace_translation(translator, text, options=options, alternatives=0)), encoding="utf-8")
    watched = Watched(browser)
    watched.page.goto(path.as_uri())
    watched.page.wait_for_selector(".lines path", state="attached")
    watched.page.get_by_label("Encoder", exact=True).check()
    watched.page.get_by_label("heatmap").check()
    watched.page.wait_for_selector("canvas")
    assert watched.complaints == []
