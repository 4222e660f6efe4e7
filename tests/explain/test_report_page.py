"""The report in a real browser: labels and points that can be seen, runs next to each other, and checkpoints compared."""

from base64 import b64encode

import pytest

import regard
from regard.explain.report import as_report, asset, summarize
from regard.run.folder import RunFolder
from tests.browser import DESKTOP, PHONE, Watched, expect, serious_findings
from tests.explain.test_report import SMALL
from tests.shared import make_once

SCREENS = pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs with four validations and three, and a last one with one validation."""
    sizes = {
        "plain": ["train.steps=40"],
        "one-head": ["train.steps=30", "model.num_heads=1"],
        "short": ["train.steps=2"],
    }

    def make(folder):
        for name, own in sizes.items():
            overrides = [*SMALL, "train.warmup_steps=2", *own]
            regard.train("reverse", out=folder / name, overrides=overrides, listen=lambda event: None)

    folder = make_once(tmp_path_factory, "report-runs", make)
    return [RunFolder(folder / name) for name in sizes]


@pytest.fixture
def opened(browser, tmp_path):
    made = []

    def opener(runs, **options):
        path = tmp_path / "report.html"
        path.write_text(as_report(runs), encoding="utf-8")
        watched = Watched(browser, **options)
        made.append(watched)
        watched.page.goto(path.as_uri())
        return watched.page

    yield opener
    for watched in made:
        assert watched.complaints == []
        watched.context.close()


def chart(page, title):
    return page.locator(".chart").filter(has=page.get_by_text(title, exact=True))


def shown(number):
    """A number as the report shows it."""
    return f"{float(f'{number:.4g}'):g}"


@SCREENS
def test_no_label_of_a_chart_is_clipped(opened, runs, monkeypatch, screen):
    log = runs[0].read_log()
    for event in log:
        if event["event"] == "progress":
            event["gradient_norm"] = 0.001234 + event["step"] * 1.1e-7  # as labels, numbers with many digits
            event["tokens_per_second"] = 123456.0 * event["step"]
    monkeypatch.setattr(RunFolder, "read_log", lambda self: log)
    page = opened(runs[:1], **screen)
    clipped = page.locator(".chart svg").evaluate_all("""all => all.flatMap((svg) => {
        const outer = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text")].filter((text) => {
            const { left, right, top, bottom } = text.getBoundingClientRect();
            return left < outer.left || right > outer.right || top < outer.top || bottom > outer.bottom;
        }).map((text) => text.textContent);
    })""")
    assert clipped == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@SCREENS
def test_a_single_point_is_drawn(opened, runs, screen):
    page = opened(runs[2:], **screen)
    shapes = chart(page, "Dev BLEU").locator("circle")
    expect(shapes).to_have_count(1)
    box, outer = shapes.bounding_box(), chart(page, "Dev BLEU").locator("svg").bounding_box()
    assert outer["x"] < box["x"] and box["x"] + box["width"] < outer["x"] + outer["width"] and box["width"] > 3


def test_runs_are_next_to_each_other(opened, runs):
    page = opened(runs[:2], **DESKTOP)
    for title in ("Examples over training", "Dev sentences", "Attention over training", "Details"):
        names = page.locator("section").filter(has=page.get_by_role("heading", name=title)).locator("h3")
        left, right = (names.nth(at).bounding_box() for at in (0, 1))
        assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"], title


def test_settings_that_differ_come_first(opened, runs):
    page = opened(runs[:2], **DESKTOP)
    expect(page.locator("h2").first).to_have_text("Settings that differ")
    rows = page.locator("section").first.locator("tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [["model.num_heads", "2", "1"], ["train.steps", "40", "30"]]


def test_the_summary_says_which_weights_are_the_final_ones(opened, runs):
    page = opened(runs[:1], **DESKTOP)
    summary = page.locator("section").filter(has=page.get_by_role("heading", name="Summary")).locator("table")
    head, row = (line.split("\t") for line in summary.inner_text().splitlines())
    best = [one["step"] for one in summarize(runs[0])["validations"] if one["best"]][-1]
    assert row[head.index("best at step")] == str(best) and row[head.index("final weights")] == "of the last step"


def test_training_and_dev_loss_are_in_one_chart(opened, runs):
    page = opened(runs[:1], **DESKTOP)
    loss = chart(page, "Loss, nats per token")
    expect(loss.locator("path")).to_have_count(2)
    expect(loss.locator("circle")).to_have_count(4)  # validations
    last = summarize(runs[0])
    dev = last["validations"][-1]["scores"]["loss"]
    expect(loss.locator(".said")).to_contain_text(f"dev: {shown(dev)} at 40")


def test_the_axis_of_values_can_be_logarithmic(opened, runs, monkeypatch):
    log = runs[0].read_log()
    for event in log:
        if event["event"] == "progress":
            event["gradient_norm"] = 10.0 ** -(event["step"] / 10)  # a line, on a logarithmic axis
    monkeypatch.setattr(RunFolder, "read_log", lambda self: log)
    page = opened(runs[:1], **DESKTOP)

    def bend():
        """How far the middle of the curve is from the line between its ends, as a share of their difference in height."""
        path = chart(page, "Gradient norm").locator("path").get_attribute("d")
        heights = [float(point.split()[1]) for point in path[1:].split("L")][1:]  # steps 2, 4, ... 40
        return abs(heights[9] + heights[10] - heights[0] - heights[-1]) / abs(heights[0] - heights[-1])

    assert bend() > 0.5
    page.get_by_label("logarithmic values").check()
    assert bend() < 0.01
    labels = chart(page, "Gradient norm").locator("text").all_text_contents()
    assert {"0.001", "0.01", "0.1"} <= set(labels)


def test_smoothing_is_a_moving_average(browser):
    code = b64encode(
        asset("chart.js").replace('import { SVG, element, fill } from "./elements.js";', "").encode()
    ).decode()
    found = Watched(browser).page.evaluate(
        """async (code) => {
            const { movingAverage, roundTicks, logTicks } = await import(`data:text/javascript;base64,${code}`);
            return [movingAverage([[1, 4], [2, 8]], 0.5), roundTicks(0, 9), logTicks(0.002, 30)];
        }""",
        code,
    )
    # 0.5 * 4 / 0.5; then (0.5 * 2 + 0.5 * 8) / 0.75
    assert found[0] == [[1, 4], [2, pytest.approx(20 / 3)]]
    assert found[1] == [0, 5] and found[2] == pytest.approx([0.01, 0.1, 1, 10])


def test_smoothing_keeps_the_raw_curve_visible(opened, runs):
    page = opened(runs[:1], **DESKTOP)
    expect(page.locator("path.raw")).to_have_count(0)
    page.get_by_label("Smoothing").fill("0.9")
    expect(chart(page, "Gradient norm").locator("path.raw")).to_have_count(1)
    expect(chart(page, "Dev BLEU").locator("path.raw")).to_have_count(0)


def test_pointing_at_a_step_shows_it_in_all_charts(opened, runs):
    page = opened(runs[:1], **DESKTOP)
    svg = chart(page, "Gradient norm").locator("svg")
    box = svg.bounding_box()
    svg.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
    count = page.locator(".chart .cross").count()
    assert count >= 7
    assert page.locator(".chart .cross[visibility=visible]").count() == count
    steps = {text.rpartition(" at ")[2] for text in page.locator("[class=said]").all_inner_texts()}
    assert steps <= {"16", "18", "20", "22", "24"}  # of training, and the validation at step 20
    page.mouse.move(0, 0)
    expect(page.locator(".chart .cross[visibility=visible]")).to_have_count(0)


def test_arrow_keys_move_the_crosshair_of_all_charts(opened, runs):
    page = opened(runs[:1], **DESKTOP)
    svg = page.get_by_role("slider", name="Gradient norm over steps")
    svg.focus()
    svg.press("Home")
    visible = page.locator(".chart .cross[visibility=visible]")
    assert visible.count() == page.locator(".chart .cross").count()
    first = svg.get_attribute("aria-valuetext")
    assert first == chart(page, "Gradient norm").locator("[class=said]").inner_text()
    svg.press("ArrowRight")
    second = svg.get_attribute("aria-valuetext")
    steps = [int(text.rpartition(" at ")[2]) for text in (first, second)]
    assert 0 < steps[0] < steps[1] == int(svg.get_attribute("aria-valuenow"))
    svg.press("ArrowLeft")
    assert svg.get_attribute("aria-valuetext") == first
    svg.press("Escape")
    expect(visible).to_have_count(0)
    svg.press("End")
    svg.press("Tab")
    expect(visible).to_have_count(0)


def test_any_two_checkpoints_are_compared(opened, runs):
    page = opened(runs[:2], **DESKTOP)
    part = page.locator("#checkpoints")
    part.get_by_label("Checkpoint A").select_option("1")
    part.get_by_label("Checkpoint B").select_option("5")
    a, b = summarize(runs[0])["validations"][1], summarize(runs[1])["validations"][1]
    for one in (a, b):
        expect(part.locator("tbody tr").first).to_contain_text(shown(one["scores"]["loss"]))
    outputs = part.locator(".changed").first.locator("dd").all_inner_texts()
    assert [one.strip() for one in outputs[2:]] == [a["examples"][0]["output"], b["examples"][0]["output"]]
    expect(part.locator("canvas")).to_have_count(2)


@SCREENS
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_of_two_runs_is_accessible(opened, runs, scheme, screen):
    page = opened(runs[:2], color_scheme=scheme, **screen)
    assert serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
