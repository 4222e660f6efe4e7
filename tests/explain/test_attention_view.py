"""The view of attention in a real browser, on a phone and on a desktop: what is pointed at, and what can be seen."""

import pytest

from regard.explain.translation_trace import trace_translation
from tests.browser import DESKTOP, PHONE, expect

SCREENS = pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])


def test_a_tap_on_a_phone_chooses_the_word_under_the_finger_and_moves_nothing(opened):
    page = opened(**PHONE).page
    page.locator(".lines").scroll_into_view_if_needed()
    for side, says in (("query", "looks at"), ("key", "is seen by")):
        for word in page.locator(f".lines .{side} .word").all():
            word.scroll_into_view_if_needed()
            before = word.bounding_box()
            word.tap()
            assert page.locator(".said").inner_text().startswith(f"{word.inner_text()} {says} ")
            assert word.bounding_box() == before


def test_a_word_that_is_clicked_stays_highlighted_until_it_is_clicked_again(opened):
    page = opened(**DESKTOP).page
    first, second = page.locator(".lines .query .word").nth(0), page.locator(".lines .query .word").nth(1)
    first.click()
    second.hover()
    expect(page.locator(".said")).to_contain_text(f"{second.inner_text()} looks at")
    page.mouse.move(0, 0)
    expect(page.locator(".said")).to_contain_text(f"{first.inner_text()} looks at")
    page.get_by_role("slider").fill("1")
    expect(page.locator("figcaption")).to_contain_text("Layer 1")
    expect(page.locator(".lines .word[aria-pressed=true]")).to_have_text(first.inner_text())
    first.click()
    page.mouse.move(0, 0)
    expect(page.locator(".lines .word[aria-pressed=true]")).to_have_count(0)


@SCREENS
def test_heatmaps_of_several_heads_are_shown_completely(opened, screen):
    page = opened(**screen).page
    page.get_by_label("heatmap").check()
    for head in "123":
        page.get_by_role("button", name=head, exact=True).click()
    expect(page.locator("canvas")).to_have_count(3)
    for canvas in page.locator("canvas").all():
        box = canvas.bounding_box()
        visible = canvas.evaluate("""one => {
            let [left, right] = [0, document.documentElement.clientWidth];
            for (let box = one.parentElement; box; box = box.parentElement) {
                const { left: a, right: b } = box.getBoundingClientRect();
                [left, right] = [Math.max(left, a), Math.min(right, b)];
            }
            return [left, right];
        }""")
        assert visible[0] <= box["x"] and box["x"] + box["width"] <= visible[1] + 1
        assert canvas.evaluate("one => one.parentElement.scrollHeight <= one.parentElement.clientHeight")


def test_a_heatmap_that_cannot_be_shown_completely_says_so(opened, long_tagger):
    page = opened(long_tagger, **PHONE).page
    page.get_by_label("heatmap").check()
    expect(page.locator("figcaption")).to_contain_text("scroll sideways")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page scrolls sideways"


@SCREENS
def test_pointing_at_a_cell_of_a_heatmap_gives_its_weight(opened, tagger, screen):
    page = opened(tagger, **screen).page
    page.get_by_label("heatmap").check()
    page.get_by_role("button", name="2", exact=True).click()
    canvas = page.locator("canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 30, "y": box["height"] - 10})
    expect(page.locator(".said")).to_have_text("Turing looks at Turing: 25 %")


@SCREENS
def test_arrow_keys_move_through_radio_buttons(opened, screen):
    page = opened(**screen).page
    page.get_by_label("lines").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("heatmap")).to_be_focused()
    expect(page.locator("canvas")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("side by side")).to_be_focused()
    page.get_by_label("Encoder", exact=True).focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("Decoder", exact=True)).to_be_focused()
    expect(page.locator(".lines h3")).to_have_text(["output", "decoder input"])


def test_a_head_is_pressed_whatever_was_chosen_before(opened):
    page = opened(**DESKTOP).page
    page.get_by_label("Encoder", exact=True).check()
    page.get_by_role("button", name="rollout").click()
    expect(page.locator("figcaption")).to_contain_text("Rollout")
    page.get_by_label("Encoder-decoder", exact=True).check()
    expect(page.locator("figcaption")).to_contain_text("mean over heads")
    expect(page.locator(".chip[aria-pressed=true]")).to_have_text("mean")


def test_heads_that_another_attention_lacks_are_not_chosen_there(opened, uneven):
    page = opened(uneven, **DESKTOP).page
    page.get_by_label("Wide", exact=True).check()
    page.get_by_role("button", name="3", exact=True).click()
    page.get_by_label("Narrow", exact=True).check()
    expect(page.locator(".chip[aria-pressed=true]")).to_have_text("mean")


@SCREENS
def test_words_are_those_of_a_reader(opened, translator, screen):
    shown = trace_translation(translator, "I didn't see 我们的 book.", alternatives=0)
    page = opened(shown, **screen).page
    expect(page.locator(".lines .key .word")).to_have_text(
        ["I", "didn't", "see", "我", "们", "的", "book", ".", "</s>"]
    )
