"""Text on the web page in a real browser: long texts, slow typing, other languages, and words that are clicked."""

import pytest

from tests.browser import DESKTOP, PHONE, expect, serious_findings

SCREENS = pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])


def test_a_text_of_more_than_five_thousand_characters_is_translated(opened):
    page = opened("en-de").page
    lines = [f"The house number {number} is red. Where is the station?" for number in range(150)]
    text = "\n".join(lines)
    assert 5_000 < len(text) < 10_000
    page.locator("#text").fill(text)
    expect(page.locator("#output .part")).to_have_count(300, timeout=60_000)
    expect(page.locator("#state")).to_have_text("")
    # The parts in which it was sent are joined without a trace.
    assert page.evaluate("document.querySelector('#output').textContent").count("\n") == 149
    expect(page.locator("#output .part").nth(149)).to_have_text("Wo ist der Bahnhof?")


def test_a_text_that_is_too_long_is_refused_in_words_that_help(opened):
    page = opened("en-de").page
    page.locator("#text").fill("No. " * 25_001)
    expect(page.locator("#state")).to_contain_text(
        "The text has 100,004 characters; the page translates up to 100,000."
    )
    expect(page.locator("#state")).to_contain_text("Translate a file")


@SCREENS
def test_one_click_on_a_word_shows_its_alternatives(opened, screen):
    page = opened("en-de", **screen).page
    page.locator("#text").fill("Where is the station?")
    expect(page.locator("#output .part")).to_have_text("Wo ist der Bahnhof?")
    word = page.get_by_text("Bahnhof", exact=True)
    word.tap() if screen is PHONE else word.click()
    expect(page.locator("#others")).to_contain_text("Instead of “Bahnhof”")
    expect(page.locator(".token", has_text="Bahnhof")).to_be_focused()
    expect(page.locator(".lines")).to_be_visible()


def test_the_old_translation_stays_until_the_new_one_is_as_long(opened):
    page = opened("en-de").page
    page.locator("#text").fill("My sister says that she likes the dog")
    expect(page.locator("#output .part")).to_be_visible()
    old = page.locator("#output").inner_text()
    page.evaluate("""() => {
        window.seen = [];
        const output = document.querySelector("#output");
        new MutationObserver(() => window.seen.push([output.textContent, output.classList.contains("old")]))
            .observe(output, { childList: true, subtree: true, characterData: true, attributes: true });
    }""")
    page.locator("#text").press_sequentially(" because it is friendly.")
    expect(page.locator("#output .part")).to_contain_text("freundlich")
    seen = page.evaluate("window.seen")
    assert [text for text, dimmed in seen if dimmed and text != old] == []
    assert [text for text, dimmed in seen if not dimmed and len(text) < len(old)] == []
    assert [old, True] in seen and seen[-1][1] is False


def test_a_text_of_the_other_language_is_noticed_and_the_models_can_be_swapped(opened):
    page = opened("en-de").page
    page.locator("#text").fill("Ich mag den Hund, weil er freundlich ist.")
    expect(page.locator("#advice")).to_contain_text("This looks like German, but the model translates from English.")
    assert serious_findings(page) == []
    page.get_by_role("button", name="Translate from German").click()
    expect(page.locator("#model")).to_have_value("de-en")
    expect(page.locator("#output .part")).to_have_text("I like the dog because he's kind.")
    expect(page.locator("#advice")).to_be_empty()


def test_a_chinese_text_is_offered_to_the_model_that_reads_it(opened):
    page = opened("en-de").page
    page.locator("#text").fill("我喜欢这本书。")
    page.get_by_role("button", name="Translate from Chinese").click()
    expect(page.locator("#model")).to_have_value("zh-en")
    expect(page.locator("#output .part")).to_contain_text("I like")


def test_a_text_of_the_right_language_gets_no_advice(opened):
    page = opened("en-de").page
    with page.expect_response("**/detect"):
        page.locator("#text").fill("My sister says that she likes the dog.")
    expect(page.locator("#output .part")).to_be_visible()
    expect(page.locator("#advice")).to_be_empty()


def test_characters_that_the_model_does_not_know_are_mentioned(opened):
    page = opened("en-de").page
    page.locator("#text").fill("우리책은어디에있습니까")
    expect(page.locator("#advice")).to_contain_text("The model does not know 100 % of these characters")


def test_the_share_of_unknown_characters_is_given_if_it_is_asked_for(server):
    asked = {"text": "Yes. 我们", "model": "en-de"}
    first, second = server.post("/v1/translate", json={**asked, "unknown": True}).json()["translations"][0]["sentences"]
    assert (first["unknown"], second["unknown"]) == (0.0, 1.0)
    assert server.post("/v1/translate", json=asked).json()["translations"][0]["sentences"][0]["unknown"] is None


@pytest.mark.parametrize(
    ("text", "language", "sure"),
    [
        ("Ich mag den Hund, weil er freundlich ist.", "de", True),
        ("My sister says that she likes the dog.", "en", True),
        ("我们的书在哪里？", "zh", True),
        ("우리책은어디에있습니까", None, False),
        ("Mi hermana dice que le gusta el perro.", None, False),
    ],
)
def test_languages_are_detected_with_little_confidence_where_no_model_knows_them(server, text, language, sure):
    best = server.post("/detect", json={"q": text}).json()[0]
    assert (best["confidence"] > 70) is sure
    assert language in (None, best["language"])
