"""The files of `regard look` in a real browser: the page of a translation, and of other tasks."""

from base64 import b64encode

import numpy as np
import pytest

from regard.config import SearchOptions
from regard.explain.attention import attention_rollout, mean_over_heads, merge_words
from regard.explain.report import as_page, asset, trace_as_json
from regard.explain.translation_trace import trace_translation
from tests.browser import Watched, expect, serious_findings


@pytest.mark.quick
def test_it_opens_from_disk_without_requests_or_messages_in_the_console(opened):
    watched = opened()
    assert watched.complaints == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []


def test_the_page_computes_means_rollout_and_words_as_python_does(browser, trace):
    layers = trace.layers("encoder")
    layers_packed = [one for one in trace_as_json(trace)["attentions"] if one["name"] == "encoder"]
    code = b64encode(asset("weights.js").encode()).decode()
    found = Watched(browser).page.evaluate(
        """async ([code, packed, words]) => {
            const module = await import(`data:text/javascript;base64,${code}`);
            const { unpack, meanOverHeads, attentionRollout, mergeWords } = module;
            const layers = await Promise.all(packed.map(unpack));
            const rollout = attentionRollout(layers.map((one) => meanOverHeads(one.matrices)));
            return [rollout, mergeWords(rollout, words, words)].map((one) => Array.from(one.values));
        }""",
        [code, layers_packed, trace.source.words],
    )
    rollout = attention_rollout([mean_over_heads(one.weights) for one in layers])
    words = merge_words(rollout[None], trace.source.words, trace.source.words)[0]
    # The page has weights in steps of 1/65535.
    np.testing.assert_allclose(found[0], rollout.ravel(), atol=2e-5)
    np.testing.assert_allclose(found[1], words.ravel(), atol=2e-4)


def test_the_output_is_shown_with_the_alternatives_of_each_token(opened, trace):
    page = opened().page
    assert page.locator("#output").inner_text() == trace.target.text
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
    page.get_by_role("button", name="rollout").click()
    expect(page.locator("figcaption").first).to_contain_text("Rollout")
    assert watched.complaints == []


def test_pointing_at_a_token_shows_the_weights_that_were_recorded(opened, trace):
    page = opened().page
    page.get_by_label("tokens").check()
    expect(page.locator(".lines .query .word")).to_have_count(len(trace.target.tokens))
    page.locator(".lines .query .word").nth(1).hover()
    said = page.locator(".said").inner_text()
    weights = trace.layers("encoder-decoder")[-1].weights.mean(axis=0)[1]
    best = int(weights.argmax())
    token = trace.source.tokens[best].lstrip("\u2581")
    assert f"looks at {token} {round(100 * float(weights[best]))} %" in said


def test_it_can_be_used_with_the_keyboard_alone(opened):
    page = opened().page
    page.locator(".lines .query .word").first.focus()
    page.keyboard.press("ArrowDown")
    assert "looks at" in page.locator(".aloud").inner_text()
    page.locator(".token").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#others").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_on_a_phone(opened, scheme):
    page = opened(color_scheme=scheme, viewport={"width": 390, "height": 800}).page
    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"


def test_the_dark_scheme_has_a_dark_background(opened):
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


# Other tasks


def test_the_columns_of_a_translation_are_headed_by_the_labels_of_its_axes(opened):
    page = opened().page
    headings = page.locator(".lines h3")
    expect(headings).to_have_text(["output", "source"])
    page.get_by_label("Decoder", exact=True).check()
    expect(headings).to_have_text(["output", "decoder input"])
    page.get_by_label("Encoder", exact=True).check()
    expect(headings).to_have_text(["source (from)", "source (to)"])


def test_a_tagger_is_shown_as_its_input_over_its_input(opened, tagger):
    watched = opened(tagger)
    page = watched.page
    assert page.locator("#output").inner_text() == "PER O PER PER"
    expect(page.locator(".lines h3")).to_have_text(["input (from)", "input (to)"])
    expect(page.locator(".lines .query .word")).to_have_text(["Ada", "met", "Alan", "Turing"])
    page.locator(".lines .query .word", has_text="Alan").hover()
    # The mean over an identity and a uniform head.
    expect(page.locator(".said")).to_have_text("Alan looks at Alan 63 %, Ada 13 %, met 13 %, Turing 13 %")
    page.get_by_role("button", name="rollout").click()
    expect(page.locator("figcaption")).to_have_text("Rollout up to layer 2")
    page.locator("#output .token").nth(1).click()
    expect(page.locator("#others li")).to_contain_text("LOC")
    expect(page.get_by_role("heading", name="Alignment")).to_be_hidden()
    assert watched.complaints == []


def test_a_pointer_network_is_shown_as_its_output_over_its_input(opened, pointer):
    watched = opened(pointer)
    page = watched.page
    assert page.locator("#output").inner_text() == "4 1 2"
    expect(page.locator(".lines h3")).to_have_text(["order", "points"])
    expect(page.locator(".lines .query .word")).to_have_count(3)
    expect(page.locator(".lines .key .word")).to_have_count(4)
    expect(page.get_by_role("button", name="rollout")).to_have_count(0)
    page.get_by_label("heatmap").check()
    assert "order down, points across" in page.locator("canvas").get_attribute("aria-label")
    assert watched.complaints == []
