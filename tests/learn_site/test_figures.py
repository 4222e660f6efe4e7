"""The figures of heads, positions, the learning rate and label smoothing in Chromium: their numbers are those of regard."""

import json
import math
import re

import numpy as np
import pytest
import torch

import regard
from regard.nn.cross_entropy import cross_entropy
from regard.nn.positions import sinusoids
from regard.training.schedules import noam
from tests.browser import DESKTOP, PHONE, expect


@pytest.fixture
def figure(opened):
    """A figure of a chapter, computed."""

    def opener(chapter, name, **options):
        live = opened(f"learn/{chapter}.html", **(options or DESKTOP)).page.locator(f"[data-live={name}]")
        live.scroll_into_view_if_needed()
        expect(live).to_have_attribute("data-ready", re.compile(r"\d+"))
        return live

    return opener


def slide(live, name, value):
    """Move a slider to a value: its place in the list of values, where it has a list."""
    live.get_by_role("slider", name=name, exact=True).evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", str(value)
    )


def number(text):
    return float(text.replace("\u2212", "-").replace(",", ""))


def bold(live, kind):
    return number(live.locator(f"strong.{kind}").text_content())


def test_the_learning_rate_is_that_of_the_trainer(figure):
    live = figure("5-3-schedule", "schedule")
    assert bold(live, "rate") == pytest.approx(noam(4000, width=512, warmup=4000), rel=1e-3)
    widths = [64, 128, 256, 512, 1024, 2048]
    for width, warmup, step in ((256, 1000, 500), (1024, 8000, 20_000), (64, 16_000, 100)):
        slide(live, "width d_model", widths.index(width))
        slide(live, "warm-up steps", warmup)
        slide(live, "step", step)
        assert bold(live, "rate") == pytest.approx(noam(step, width=width, warmup=warmup), rel=1e-3)
        expect(live).to_contain_text("rising" if step < warmup else "falling")


def test_the_smoothed_loss_is_that_of_the_trainer(figure):
    live = figure("5-4-regularization", "smoothing")
    sizes = [2, 4, 8, 100, 8000, 37_000]
    for epsilon, size, p in ((0.1, 8, 0.7), (0.0, 4, 0.25), (0.3, 37_000, 0.9)):
        slide(live, "smoothing ε", epsilon)
        slide(live, "vocabulary V", sizes.index(size))
        slide(live, "model: p of the right token", p)
        logits = torch.full((1, size), (1 - p) / (size - 1), dtype=torch.float64).log()
        logits[0, 1] = math.log(p)
        logits.requires_grad_()
        loss = cross_entropy(logits, torch.tensor([1]), smoothing=epsilon)
        loss.backward()
        assert bold(live, "loss") == pytest.approx(loss.item(), abs=1e-4)
        assert bold(live, "gradient") == pytest.approx(logits.grad[0, 1].item(), abs=1e-4)
        assert number(live.locator(".target").first.text_content()) == pytest.approx(
            1 - epsilon + epsilon / size, abs=1e-4
        )


def test_an_entry_of_the_sinusoids_is_that_of_the_model(figure):
    live = figure("3-5-positions", "sinusoids")
    for place, width, pos, at in ((0, 32, 5, 31), (2, 128, 63, 20), (3, 256, 10, 1)):
        slide(live, "width d_model", place)
        slide(live, "position", pos)
        slide(live, "entry", at)
        assert bold(live, "entry") == pytest.approx(sinusoids(64, width)[pos, at].item(), abs=1e-4)


def test_a_click_in_the_picture_chooses_the_entry(figure):
    for options in (DESKTOP, PHONE):
        live = figure("3-5-positions", "sinusoids", **options)
        canvas = live.locator("canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        canvas.click(position={"x": box["width"] * 40.5 / 128, "y": box["height"] * 20.5 / 64})
        expect(live).to_contain_text("PE(20, 40)")


def test_a_rotation_gives_the_encoding_of_the_next_position(figure):
    live = figure("3-5-positions", "rotation")
    for pos, k, pair in ((3, 2, 8), (60, -10, 0), (17, 5, 100)):
        slide(live, "position", pos)
        slide(live, "distance k", k)
        slide(live, "pair i", pair)
        expected = sinusoids(80, 256)[pos + k, 2 * pair : 2 * pair + 2].tolist()
        assert json.loads(live.get_attribute("data-values")) == pytest.approx(expected, abs=1e-5)


def test_dot_products_depend_on_the_distance_alone(figure):
    live = figure("3-5-positions", "distances")
    slide(live, "distance k", 7)
    table = sinusoids(600, 256).double()
    for pos in (60, 444):
        slide(live, "position", pos)
        assert bold(live, "product") == pytest.approx((table[pos] @ table[pos + 7]).item(), abs=2e-3)
        assert bold(live, "product") == pytest.approx((table[0] @ table[7]).item(), abs=2e-3)


def test_the_scores_of_positions_are_those_of_the_matrices_of_the_model(figure):
    live = figure("3-5-positions", "offsets")
    shown = np.array(json.loads(live.get_attribute("data-values")))
    weight = regard.load("en-de", engine="torch", device="cpu").model.encoder[0].attention.project.weight.detach()
    q, k, _ = (sinusoids(29, 256) @ weight.T).chunk(3, dim=-1)
    for head in range(4):
        scores = q[:, 64 * head : 64 * head + 64] @ k[:, 64 * head : 64 * head + 64].T / 8
        means = np.array([np.mean([scores[pos, pos + d] for pos in range(8, 21)]) for d in range(-8, 9)])
        assert shown[head] == pytest.approx(means - means.mean(), abs=1e-3)


def test_the_heads_show_the_weights_of_regard_look(figure):
    live = figure("3-2-2-heads", "heads")
    text = "The animal didn't cross the street because it was too tired."
    expect(live.locator(".heatmap")).to_have_count(4)
    [found] = [one for one in regard.look("en-de", text).attentions if (one.name, one.layer) == ("encoder", 2)]
    best = found.weights[:, 7].argmax(axis=-1)
    tokens = live.locator(".words button").all_text_contents()
    lists = live.locator(".best").all()
    for head, at in enumerate(best):
        weight = round(100 * float(found.weights[head, 7, at]))
        assert lists[head].locator("li").first.text_content() == f"{tokens[at]} {weight} %"


def test_the_decoder_sees_nothing_after_itself(figure):
    live = figure("3-2-3-masks", "heads")
    live.locator(".words button").first.click()
    for shown in live.locator(".best").all():
        assert shown.locator("li").first.text_content() == "<s> 100 %"
    live.get_by_label("Layer").select_option("3")
    expect(live.locator(".heatmap")).to_have_count(4)
    expect(live.get_by_role("img", name="Head 1: output down, decoder input across")).to_be_visible()
    live.page.get_by_role("button", name="中文", exact=True).click()
    expect(live.get_by_role("img", name="第 1 个头：自上而下是输出，从左到右是解码器的输入")).to_be_visible()


def test_a_tap_on_a_heatmap_chooses_the_word(figure):
    live = figure("3-2-2-heads", "heads", **PHONE)
    live.get_by_label("Attention of the").select_option("decoder, to the encoder")
    words = live.locator(".words button")
    expect(words.first).to_have_attribute("aria-pressed", "true")
    canvas = live.locator(".heatmap canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    canvas.tap(position={"x": box["width"] - 20, "y": box["height"] - 6})
    expect(words.last).to_have_attribute("aria-pressed", "true")
