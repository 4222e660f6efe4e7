"""Pages in Chinese, and in both languages, in a browser: on a phone, in dark colours, and for a screen reader."""

import pytest

from tests.browser import DESKTOP, PHONE, expect, serious_findings

PAGES = ["index.html", "learn/family.html", "learn/glossary.html", "learn/training-well.html", "README.html"]
VISIBLE = "all => all.filter(one => one.offsetParent !== null).length"


def test_one_click_shows_chinese_alone_and_another_both(opened):
    page = opened("learn/glossary.html", **DESKTOP).page
    assert page.locator("main .zh").evaluate_all(VISIBLE) == 0
    page.get_by_role("button", name="中文", exact=True).click()
    assert page.locator("main .en").evaluate_all(VISIBLE) == 0
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert page.title() == "术语表 · regard"
    assert page.locator("#site-search").get_attribute("placeholder") == "搜索"
    page.get_by_role("button", name="EN+中").click()
    english, chinese = page.locator("main .pair").first.locator("> div").all()
    assert english.bounding_box()["y"] == chinese.bounding_box()["y"]  # side by side


def test_the_choice_is_kept_on_the_next_page(opened):
    page = opened("learn/glossary.html", **DESKTOP).page
    page.get_by_role("button", name="中文", exact=True).click()
    page.locator("nav.around a[rel=prev]").click()
    assert page.locator("html").get_attribute("data-lang") == "zh"


@pytest.mark.parametrize("url", PAGES)
def test_chinese_fits_a_phone_and_keeps_nobody_out(opened, url):
    page = opened(f"{url}?lang=zh", **PHONE, color_scheme="dark").page
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]
    assert serious_findings(page) == []


def test_a_search_in_chinese_finds_the_term(opened):
    page = opened("index.html?lang=zh", **DESKTOP).page
    page.locator("#site-search").fill("束搜索")
    assert "束搜索" in page.locator("#site-found a").first.inner_text()


def test_drawings_have_colours_in_the_dark(opened):
    """An arrow of a drawing differs from the paper behind it."""
    page = opened("learn/family.html", **DESKTOP, color_scheme="dark").page
    colours = page.evaluate(
        "[getComputedStyle(document.querySelector('.d-edge')).stroke, getComputedStyle(document.body).backgroundColor]"
    )
    light, dark = (sum(int(part) for part in colour[4:-1].split(",")) for colour in colours)
    assert light - dark > 300


def test_a_live_figure_speaks_the_language_that_is_chosen(opened):
    page = opened("learn/5-3-schedule.html?lang=zh", **DESKTOP).page
    figure = page.locator("[data-live=schedule]")
    expect(figure).to_contain_text("预热步数")
    page.get_by_role("button", name="EN", exact=True).click()
    expect(figure).to_contain_text("warm-up steps")
    expect(figure).not_to_contain_text("预热步数")
