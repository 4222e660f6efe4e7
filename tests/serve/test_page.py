"""The web page in a real browser."""

import re

import pytest

from tests.browser import Watched, expect, serious_findings

SENTENCE = "My sister says that she likes the dog because it is friendly."


def translated(watched, text, model="en-de"):
    page = watched.page
    page.select_option("#model", model)
    page.locator("#text").fill(text)
    expect(page.locator("#output .part").first).to_be_visible()
    return page


@pytest.mark.quick
def test_typed_text_is_translated(opened):
    page = opened().page
    page.locator("#text").press_sequentially("Wo ist der Bahnhof?")
    expect(page.locator("#output .part")).to_have_text("Where is the train station?")


def test_choosing_an_alternative_changes_the_rest_of_the_sentence(opened):
    page = translated(opened(), SENTENCE)
    before = page.locator("#output").inner_text()
    page.locator("#output .part").click()
    page.get_by_role("slider").fill("2")
    page.get_by_role("button", name="4", exact=True).click()
    page.locator(".token", has_text="den").click()
    page.locator("#others li button").first.click()
    expect(page.locator("#output")).not_to_have_text(before)
    expect(page.locator("figcaption")).to_have_text("Layer 2, head 4")  # as it was chosen before
    expect(page.locator("#output .token").first).to_be_visible()
    assert page.locator("#output").inner_text().startswith("Meine Schwester sagt, dass sie ")


def test_attention_is_shown_by_head_and_layer(opened):
    page = translated(opened(), SENTENCE)
    page.locator("#output .part").click()
    page.get_by_label("Encoder", exact=True).check()
    page.get_by_role("slider").fill("6")
    page.get_by_role("button", name="3", exact=True).click()
    expect(page.locator("figcaption")).to_have_text("Layer 6, head 3")
    page.locator(".lines .query .word", has_text=re.compile("^it$")).hover()
    expect(page.locator(".said")).to_contain_text("it looks at dog")


def test_a_file_is_translated_line_by_line(opened, tmp_path):
    path = tmp_path / "letter.txt"
    path.write_text("Guten Morgen!\n\n" + "Ja.\n" * 120, encoding="utf-8")
    page = opened().page
    page.set_input_files("#file", path)
    expect(page.locator("#download")).to_be_visible(timeout=60_000)
    with page.expect_download() as started:
        page.locator("#download").click()
    assert started.value.suggested_filename == "letter.en.txt"
    lines = started.value.path().read_text(encoding="utf-8").split("\n")
    assert lines[:2] == ["Good morning.", ""] and len(lines) == 123


def test_the_history_is_kept_in_the_browser(opened):
    watched = opened()
    page = translated(watched, "Where is the station?")
    expect(page.locator("#history li")).to_have_count(1)
    page.reload()
    page.locator("summary").click()
    page.locator("#history button").click()
    expect(page.locator("#output .part")).to_contain_text("Bahnhof")
    page.locator("#forget").click()
    expect(page.locator("#history li")).to_have_count(0)


def test_the_page_can_be_used_by_keyboard(opened):
    page = translated(opened(), "Where is the station?")
    page.locator("#text").focus()
    for _ in range(4):  # file, clear, then the translation
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "part":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".tokens .token").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#others")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#others")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_is_accessible(opened, scheme, width):
    page = translated(opened(color_scheme=scheme, viewport={"width": width, "height": 850}), SENTENCE)
    page.locator("#output .part").click()
    page.locator(".token").first.click()
    expect(page.locator(".lines")).to_be_visible()
    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_docs_page_lists_the_api(opened, server):
    page = opened().page
    page.goto(server.url + "/docs")
    expect(page.locator("dt").first).to_have_text("POST /v1/translate")


def test_the_page_asks_for_a_key_if_one_is_required(browser, locked):
    watched = Watched(browser)
    watched.page.on("dialog", lambda dialog: dialog.accept("secret"))
    watched.page.goto(locked.url + "/")
    expect(watched.page.locator("#model option")).to_have_count(1)
    watched.page.locator("#text").fill("Guten Morgen!")
    expect(watched.page.locator("#output .part")).to_have_text("Good morning.")
    watched.context.close()


def test_words_that_the_model_is_unsure_of_are_underlined_and_read_aloud(opened):
    page = translated(opened(), "The gizmo frobnicates quietly.")
    marked = page.locator("#output .unsure, #output .less-sure").first
    expect(marked).to_be_visible()
    expect(page.locator("#legend")).to_be_visible()
    assert marked.evaluate("one => getComputedStyle(one).textDecorationStyle") in ("wavy", "dotted")
    assert re.search(
        rf"Less sure of: .*{re.escape(marked.inner_text())} \(\d+",
        page.locator("#output .part").get_attribute("aria-label"),
    )
    # The text is the same with and without marks.
    assert page.locator("#output .part").inner_text() == page.evaluate(
        "document.querySelector('#output .part').textContent"
    )
