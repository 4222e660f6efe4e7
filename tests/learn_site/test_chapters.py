"""All chapters in Chromium, on a desktop and on a phone: nothing fails, nothing comes from outside, nothing is too wide."""

import re

import pytest

from regard.learn.sources import PAGES
from tests.browser import DESKTOP, PHONE, Watched, expect, serious_findings
from tests.learn_site.conftest import assert_nothing_is_wrong

CHAPTERS = sorted(path.stem for path in (PAGES / "en").glob("*.md") if path.stem != "index")
LARGEST = 1_000_000  # bytes until a chapter is shown
LOADED = """['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))
    .map(one => [one.name, one.decodedBodySize])"""


@pytest.fixture(scope="module", params=CHAPTERS)
def chapter(request, browser, address):
    """A chapter on a desktop in the dark and on a phone, opened once for all tests."""
    made = [Watched(browser, **options) for options in ({**DESKTOP, "color_scheme": "dark"}, PHONE)]
    for watched in made:
        watched.page.goto(f"{address}/learn/{request.param}.html")
    yield made
    for watched in made:
        assert_nothing_is_wrong(watched, address)
        watched.context.close()


def too_wide(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_the_first_view_is_small_and_fits_every_window(chapter):
    for watched in chapter:
        sizes = watched.page.evaluate(LOADED)
        assert sum(size for name, size in sizes if "model-" not in name) < LARGEST
        assert sizes[0][1] > 1000
        assert too_wide(watched.page) <= 0


def test_every_figure_computes_and_keeps_nobody_out(chapter):
    for watched in chapter:
        page = watched.page
        for figure in page.locator("[data-live]:visible").all():
            figure.scroll_into_view_if_needed()
            expect(figure).to_have_attribute("data-ready", re.compile(r"\d+"))
        assert too_wide(page) <= 0
        assert serious_findings(page) == []


def test_figures_follow_language_and_colours(opened):
    page = opened("learn/5-3-schedule.html", **DESKTOP).page
    live = page.locator("[data-live=schedule]")
    expect(live).to_have_attribute("data-ready", "1")
    page.locator("#site-theme").click()
    page.get_by_role("button", name="中文").click()
    expect(live.locator("svg").first).to_be_visible()
    page.get_by_role("button", name="EN", exact=True).click()
    expect(live).to_contain_text("warm-up steps")


def test_sliders_and_words_work_with_the_keyboard(opened):
    page = opened("learn/5-3-schedule.html", **DESKTOP).page
    slider = page.get_by_role("slider", name="step", exact=True)
    before = page.locator("strong.rate").text_content()
    slider.focus()
    slider.press("ArrowRight")
    expect(page.locator("strong.rate")).not_to_have_text(before)
    expect(slider).to_be_focused()
