"""Pages in Chinese, and in both languages, in a browser: on a phone, in dark colours, and for a screen reader."""

import pytest

from tests.browser import DESKTOP, PHONE, Watched, expect, serious_findings

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
    # A click does not wait for the next page, whose attribute says "en" until its script has run.
    page.wait_for_url(lambda url: not url.endswith("/glossary.html"))
    assert page.locator("html").get_attribute("data-lang") == "zh"
    assert page.locator("main .en").evaluate_all(VISIBLE) == 0


@pytest.mark.parametrize("url", PAGES)
def test_chinese_fits_a_phone_and_keeps_nobody_out(opened, url):
    page = opened(f"{url}?lang=zh", **PHONE, color_scheme="dark").page
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["viewport"]["width"]
    assert serious_findings(page) == []


def test_what_a_screen_reader_says_of_a_chinese_page_is_chinese(opened):
    page = opened("learn/6-results.html?lang=zh", **DESKTOP).page
    names = page.locator("[aria-label]").evaluate_all(
        "all => all.filter(one => one.offsetParent !== null).map(one => one.getAttribute('aria-label'))"
    )
    assert {"语言", "浅色或深色", "页面", "本节的链接", "表格", "上一页和下一页"} == set(names)
    expect(page.get_by_role("searchbox", name="搜索")).to_be_visible()
    page.get_by_role("button", name="EN", exact=True).click()
    expect(page.get_by_role("group", name="Language")).to_be_visible()
    expect(page.get_by_role("searchbox", name="Search")).to_be_visible()


def test_a_figure_says_in_chinese_that_it_needs_javascript(browser, address):
    watched = Watched(browser, **DESKTOP, java_script_enabled=False)
    watched.page.goto(f"{address}/learn/5-3-schedule.html")
    found = watched.page.locator("figure.live noscript").first
    assert found.locator(".en").inner_text() == "This figure needs JavaScript."
    assert found.locator(".zh").inner_text() == "这幅图需要 JavaScript。"
    watched.context.close()


def test_tables_of_results_have_chinese_cells(opened):
    page = opened("learn/6-results.html?lang=zh", **DESKTOP).page
    shown = page.locator(".zh figure.results").all_inner_texts()
    rivals, parallel, french, table3, modern = shown
    assert "循环神经网络，加性注意力" in rivals and "attention" not in rivals
    assert "繁衍率" in parallel and "worse" not in parallel
    assert "系统\tBLEU" in french
    assert "没有发现差别" in table3 and "d_model 的两倍" in table3 and "no difference" not in table3
    assert "旋转位置编码" in modern and "no difference" not in modern


def test_a_search_in_chinese_finds_the_term(opened):
    page = opened("index.html?lang=zh", **DESKTOP).page
    page.locator("#site-search").fill("束搜索")
    assert "束搜索" in page.locator("#site-found a").first.inner_text()


def test_an_index_that_could_not_be_loaded_is_loaded_with_the_next_key(browser, address):
    page = Watched(browser, **DESKTOP).page
    page.route("**/search.js", lambda route: route.abort())
    page.goto(f"{address}/index.html?lang=zh")
    page.locator("#site-search").fill("束搜")
    expect(page.locator("#site-found")).to_have_text("搜索索引无法载入；继续输入会重试。")
    page.unroute("**/search.js")
    page.locator("#site-search").fill("束搜索")
    expect(page.locator("#site-found a").first).to_contain_text("束搜索")
    page.context.close()


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
