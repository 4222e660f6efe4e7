"""The chapter of ablations: its numbers are committed, each lesson is true for every seed, and the reader bets first."""

import json
import re

import msgspec
import pytest

from regard.learn.ablation_runs import AblationResult
from regard.learn.ablations import ABLATIONS, make_sides
from regard.learn.sources import PAGES, read
from tests.browser import DESKTOP, PHONE, expect, serious_findings

CHAPTER = "learn/take-it-away.html"
RESULTS = msgspec.convert(json.loads(read("benchmarks/results/ablations.json"))["ablations"], dict[str, AblationResult])
TEXT = (PAGES / "en" / "take-it-away.md").read_text(encoding="utf-8")
NAMED = re.findall(r"#ablations\.(\w+)", TEXT)  # in the order of the page
LEARNED, USELESS = 50.0, 5.0  # per cent of the dev rows


def test_all_have_three_seeds():
    assert set(RESULTS) <= set(ABLATIONS)
    assert all([one.seed for one in result.seeds] == [1, 2, 3] for result in RESULTS.values())


@pytest.mark.parametrize("what", RESULTS)
def test_the_numbers_are_those_of_the_command(what):
    """A task that is changed needs new numbers."""
    result, ablation = RESULTS[what], ABLATIONS[what]
    assert (result.recipe, result.settings, result.off) == (ablation.recipe, ablation.settings, ablation.off)
    assert result.steps == make_sides(what).with_it.train.steps
    for one in result.seeds:
        assert one.with_it.losses[-1][0] == one.with_it.dev[-1][0] == result.steps


@pytest.mark.parametrize("what", [name for name in RESULTS if name not in ("scale", "smoothing")])
def test_the_model_is_useless_without_it_for_every_seed(what):
    for one in RESULTS[what].seeds:
        with_it, without_it = one.with_it.scores, one.without_it.scores
        assert with_it["exact"] > LEARNED and without_it["exact"] < USELESS
        # Without the mask the loss is as low as with it.
        assert (without_it["loss"] < 0.1) if what == "mask" else without_it["loss"] > 2 * with_it["loss"]


def test_without_the_scale_every_seed_is_worse_and_most_learn_nothing():
    pairs = [(one.with_it.scores, one.without_it.scores) for one in RESULTS["scale"].seeds]
    assert all(usual["exact"] > 90 and without["exact"] < LEARNED for usual, without in pairs)
    assert all(without["loss"] > 2 * usual["loss"] for usual, without in pairs)
    assert sum(without["exact"] < USELESS for _, without in pairs) >= 2


def test_the_page_has_every_ablation_its_bet_and_its_command():
    assert re.findall(r"Command: `regard ablate (\w+)`", TEXT) == NAMED and set(NAMED) == set(RESULTS)


def bet(page, what):
    """The figure of an ablation, in English."""
    return page.locator(".en [data-live=bet]").nth(NAMED.index(what))


@pytest.mark.quick
def test_the_result_is_shown_after_the_bet(opened):
    watched = opened(CHAPTER, **DESKTOP)
    live = bet(watched.page, "mask")
    expect(live.locator("button")).to_have_count(3)
    expect(live.locator("svg, table, dl")).to_have_count(0)
    live.get_by_role("button", name="higher loss, and useless").click()
    expect(live.locator(".verdict")).to_have_text(
        "You said: higher loss, and useless. It was: as low a loss, and useless."
    )
    expect(live.locator(".verdict")).to_be_focused()
    expect(live.locator("svg")).to_have_count(2)
    expect(live.locator("tbody tr")).to_have_count(3)
    first = RESULTS["mask"].seeds[0]
    shown = live.locator("tbody tr").first.locator("td").all_text_contents()
    wanted = [side.scores[name] for name in ("loss", "exact") for side in (first.with_it, first.without_it)]
    assert [float(text) for text in shown] == pytest.approx(wanted, rel=1e-3)
    expect(live.locator("dd").nth(2)).to_have_text(first.with_it.examples[0].output or "(empty)")


def test_a_right_bet_is_called_right(opened):
    watched = opened(CHAPTER, **DESKTOP)
    live = bet(watched.page, "heads")
    live.get_by_role("button", name="one head gets hardly any row right").click()
    expect(live.locator(".verdict")).to_have_text("You were right: one head gets hardly any row right.")


@pytest.mark.parametrize("device", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_fits_the_screen_and_has_no_serious_findings(opened, device):
    watched = opened(CHAPTER, **device)
    for live in watched.page.locator(".en [data-live=bet]").all():
        live.get_by_role("button").first.click()
    assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_findings(watched.page) == []


def test_the_bet_and_its_result_are_in_chinese(opened):
    watched = opened(f"{CHAPTER}?lang=zh", **DESKTOP)
    live = watched.page.locator(".zh [data-live=bet]").nth(NAMED.index("mask"))
    live.get_by_role("button", name="损失一样低，却毫无用处").click()
    expect(live.locator(".verdict")).to_have_text("你押对了：损失一样低，却毫无用处。")
    expect(live.locator("thead")).to_contain_text("开发集损失：有因果掩码")
    last = RESULTS["mask"].steps
    expect(live.locator(".chart [class=said]").first).to_contain_text(f"（第 {last} 步）")
    chart = live.get_by_role("slider", name="训练损失（纳特/词元），按步数")
    chart.press("Home")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"有因果掩码: [\d.]+（第 1 步）"))
    assert chart.locator(".cross").evaluate("one => getComputedStyle(one).stroke") != "none"


def test_the_translation_has_the_same_answers():
    translation = (PAGES / "zh" / "take-it-away.md").read_text(encoding="utf-8")
    for pattern in (r"^answer = \d+$", r'^json = ".*"$'):
        assert re.findall(pattern, TEXT, flags=re.M) == re.findall(pattern, translation, flags=re.M)


def test_with_label_smoothing_every_seed_has_more_rows_right():
    assert all(one.with_it.scores["exact"] > one.without_it.scores["exact"] for one in RESULTS["smoothing"].seeds)
