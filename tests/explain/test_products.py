"""Queries and keys of a trace: their scaled products give the weights, and the page shows one product number by number."""

import numpy as np
import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.explain.report import as_page
from regard.explain.trace_json import trace_as_json
from regard.explain.translation_trace import trace_translation
from tests.browser import DESKTOP, PHONE, Watched, expect, serious_findings

SCREENS = pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])


@pytest.fixture(scope="module")
def recorded():
    translator = regard.load("en-de", device="cpu", engine="torch")
    return trace_translation(translator, "Where is the station?", alternatives=0, name="en-de")


def test_scaled_products_of_queries_and_keys_give_the_weights(recorded):
    assert len(recorded.attentions) > 6
    for one in recorded.attentions:
        q, k = one.vectors
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        if one.name == "decoder":
            scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        np.testing.assert_allclose(weights / weights.sum(axis=-1, keepdims=True), one.weights, atol=1e-5)


def test_a_trace_has_no_vectors_unless_they_are_asked_for(recorded):
    assert all("vectors" not in one for one in trace_as_json(recorded)["attentions"])
    assert all("vectors" in one for one in trace_as_json(recorded, products=True)["attentions"])


@SCREENS
def test_the_product_of_a_cell_is_shown_number_by_number(browser, recorded, tmp_path, screen):
    path = tmp_path / "look.html"
    path.write_text(as_page(recorded, products=True), encoding="utf-8")
    watched = Watched(browser, **screen)
    page = watched.page
    page.goto(path.as_uri())
    page.get_by_label("heatmap").check()
    expect(page.locator(".note", has_text="number by number")).to_be_visible()
    page.get_by_label("tokens").check()
    page.get_by_role("button", name="2", exact=True).click()
    expect(page.locator("figcaption")).to_have_text("Layer 3, head 2")
    canvas = page.locator("canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 60, "y": box["height"] - 40})
    attention = recorded.layers("encoder-decoder")[-1]
    said = page.locator(".said").inner_text()
    # Rows are counted from the bottom, where the margin is 2 pixels.
    row = page.evaluate("""() => {
        const [cell, top] = ["width", "top"].map((name) => parseFloat(document.querySelector(".frame").style[name]));
        return Math.round((document.querySelector("canvas").clientHeight - 2 - top) / cell);
    }""")
    q = attention.vectors[0][1][-row]
    numbers = page.locator(".product tbody tr").first.locator("td").all_inner_texts()
    assert [float(one.replace("\u2212", "-")) for one in numbers] == pytest.approx(q.tolist(), abs=0.006)
    shown = page.locator(".product p").inner_text()
    assert shown.endswith(f"{said.rpartition(': ')[2]}."), (shown, said)
    assert watched.complaints == [] and serious_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_cell_stays_pinned_when_the_window_or_the_head_changes(browser, recorded, tmp_path):
    path = tmp_path / "look.html"
    path.write_text(as_page(recorded, products=True), encoding="utf-8")
    page = Watched(browser, **DESKTOP).page
    page.goto(path.as_uri())
    for name in ("heatmap", "tokens"):
        page.get_by_label(name, exact=True).check()
    page.get_by_role("button", name="2", exact=True).click()
    expect(page.locator("figcaption")).to_have_text("Layer 3, head 2")
    canvas = page.locator("canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 60, "y": box["height"] - 40})
    page.mouse.move(0, 0)
    expect(page.locator(".product")).to_be_visible()
    said, numbers = page.locator(".said").inner_text(), page.locator(".product").inner_text()
    page.evaluate("document.querySelector('canvas').dataset.old = 1")
    page.set_viewport_size({"width": 700, "height": 900})
    expect(page.locator("canvas[data-old]")).to_have_count(0)  # drawn again
    expect(page.locator(".product")).to_have_text(page.locator(".product").text_content())
    assert (page.locator(".said").inner_text(), page.locator(".product").inner_text()) == (said, numbers)
    page.get_by_role("button", name="3", exact=True).click()
    page.get_by_role("button", name="2", exact=True).click()
    expect(page.locator("figcaption")).to_have_text("Layer 3, head 3")
    words = said.rpartition(": ")[0]
    expect(page.locator(".said")).to_contain_text(words)
    expect(page.locator(".product")).to_be_visible()
    assert page.locator(".product").inner_text() != numbers


def test_a_key_that_the_mask_hides_has_no_weight(browser, recorded, tmp_path):
    path = tmp_path / "look.html"
    path.write_text(as_page(recorded, products=True), encoding="utf-8")
    page = Watched(browser, **DESKTOP).page
    page.goto(path.as_uri())
    for name in ("Decoder", "heatmap", "tokens"):
        page.get_by_label(name, exact=True).check()
    page.get_by_role("button", name="2", exact=True).click()
    expect(page.locator("figcaption")).to_have_text("Layer 3, head 2")
    canvas, rows = page.locator("canvas"), len(recorded.axes["read"].tokens)
    # The last column, from the last row, which sees all tokens, to the first, which sees one.
    for row, words in ((rows, "Softmax"), (1, "The weight is 0: the mask hides this key")):
        place = page.evaluate(
            """([row, rows]) => {
            const canvas = document.querySelector("canvas"), cell = 26;
            return { x: canvas.clientWidth - 60, y: canvas.clientHeight - 2 - (rows - row + 0.5) * cell };
        }""",
            [row, rows],
        )
        canvas.click(position=place)
        expect(page.locator(".product p")).to_contain_text(words)


def test_pictures_and_the_engine_have_no_products(tmp_path):
    out = str(tmp_path / "look.png")
    found = CliRunner().invoke(app, ["look", "en-de", "Yes.", "--png", "--products", "--out", out])
    assert found.exit_code == 2 and "--products is for the HTML page" in found.stderr
