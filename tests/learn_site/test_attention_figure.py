"""The figure of section 3.2 in Chromium: its numbers are those of the PyTorch model, and each says how it was computed."""

import math
import re

import pytest
import torch

import regard
from regard.nn.attention_log import capture_attention
from tests.browser import DESKTOP, PHONE, Watched, expect, serious_findings

CHAPTER = "learn/3-2-attention.html"
TEXT = "The dog is sleeping because it was tired."
TOKENS = ("The", "dog", "is", "sleeping", "because", "it", "was", "tired", ".", "</s>")


class Recorded:
    """What the layers of the PyTorch model read and compute for a sentence."""

    def __init__(self, text):
        translator = regard.load("en-de", engine="torch", device="cpu")
        self.heads, self.x, self.projected, self.z = 4, [], [], []
        hooks = []

        def keep(_, given, made):
            self.x.append(given[0])
            self.projected.append(made)

        for layer in translator.model.encoder:
            hooks.append(layer.attention.project.register_forward_hook(keep))
            hooks.append(
                layer.attention.output.register_forward_pre_hook(lambda _, given: self.z.append(given[0]) or None)
            )
        with torch.no_grad(), capture_attention() as log:
            translator.translate([text])
        for hook in hooks:
            hook.remove()
        self.weights = [log.calls[layer.attention][0][0] for layer in translator.model.encoder]

    def part(self, name, layer, head):
        """q, k or v of a head: [tokens, width]."""
        whole = self.projected[layer].chunk(3, dim=-1)["qkv".index(name)]
        return whole.chunk(self.heads, dim=-1)[head]


@pytest.fixture(scope="module")
def recorded():
    return Recorded(TEXT)


def number(text):
    return float(text.replace("\u2212", "-"))


def ready(page):
    """The figure, when it is computed."""
    live = page.locator("[data-live=attention]")
    live.scroll_into_view_if_needed()
    expect(live).to_have_attribute("data-ready", re.compile(r"\d+"))
    return live


@pytest.fixture(scope="module")
def watched(browser, address):
    """One page for all tests, because the model takes seconds to load."""
    made = Watched(browser, **DESKTOP)
    made.page.goto(f"{address}/{CHAPTER}")
    yield made
    assert made.complaints == []
    made.context.close()


@pytest.fixture
def live(watched):
    found = ready(watched.page)
    found.locator("input").fill(TEXT)
    found.get_by_role("button", name="Compute").click()
    expect(found.locator(".words button")).to_have_text([*TOKENS])
    expect(found.locator(".state")).to_contain_text("The model translates: Der Hund")
    return found


def column(live, at):
    return [number(text) for text in live.locator(f".scores tbody tr td:nth-child({at}) button").all_text_contents()]


def entries(live, label):
    """The numbers of a vector, read as somebody does who uses the keyboard."""
    strip = live.get_by_role("slider", name=label, exact=True).first
    texts = strip.evaluate(
        """strip => {
          const press = (key) => {
            strip.dispatchEvent(new KeyboardEvent("keydown", { key }));
            return strip.getAttribute("aria-valuetext");
          };
          const length = Number(strip.getAttribute("aria-valuemax"));
          return Array.from({ length }, (_, at) => press(at ? "ArrowRight" : "Home"));
        }"""
    )
    return [number(text.split(": ")[1]) for text in texts]


@pytest.mark.parametrize(("layer", "head", "word"), [(0, 0, 1), (5, 2, 4)])
def test_its_numbers_are_those_of_the_pytorch_model(live, recorded, layer, head, word):
    live.get_by_label("Layer").select_option(str(layer + 1))
    live.get_by_label("Head").select_option(str(head + 1))
    live.locator(".words button").nth(word).click()
    q, k, v = (recorded.part(name, layer, head) for name in "qkv")
    dots = k @ q[word]
    assert column(live, 3) == pytest.approx(dots.tolist(), abs=2e-3)
    assert column(live, 4) == pytest.approx((dots / math.sqrt(64)).tolist(), abs=1e-3)
    assert column(live, 5) == pytest.approx(recorded.weights[layer][head][word].tolist(), abs=1e-3)
    assert sum(column(live, 5)) == pytest.approx(1, abs=5e-3)
    name = TOKENS[word]
    assert entries(live, f"q of “{name}”") == pytest.approx(q[word].tolist(), abs=1e-3)
    assert entries(live, f"v of “{name}”") == pytest.approx(v[word].tolist(), abs=1e-3)
    assert entries(live, f"z of “{name}”") == pytest.approx(
        recorded.z[layer].chunk(4, dim=-1)[head][word].tolist(), abs=1e-3
    )


def test_x_is_what_the_layer_reads(live, recorded):
    live.get_by_label("Layer").select_option("4")
    live.locator(".words button").nth(2).click()
    assert entries(live, "x of “is”") == pytest.approx(recorded.x[3][2].tolist(), abs=1e-3)


def test_a_number_says_how_it_was_computed(live):
    panel = live.locator(".panel")
    live.get_by_role("button", name=re.compile("^weight of “dog”")).click()
    height = live.bounding_box()["height"]
    alpha = number(panel.locator(".title strong").text_content())
    values = [number(text) for text in panel.locator(".value").all_text_contents()]
    assert alpha == pytest.approx(values[0] / values[-1], abs=1e-3)
    assert sum(values[1:-1]) == pytest.approx(values[-1], abs=0.01)
    # From a weight to its score, to the dot product, to an entry of the query, to an entry of x: all the way back.
    for title in ("score of “dog”", "k of “dog”", "q", "x"):
        panel.locator("tr").first.get_by_role("button").first.click()
        expect(panel.locator(".title")).to_contain_text(title)
    assert live.bounding_box()["height"] == height  # nothing has moved


@pytest.mark.parametrize("device", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_panel_is_low_until_a_number_is_chosen_and_then_hides_no_choice(opened, device):
    live = ready(opened(CHAPTER, **device).page)
    panel = live.locator(".panel")
    assert panel.bounding_box()["height"] < 80
    weight = live.get_by_role("button", name=re.compile("^weight of “animal”"))
    weight.evaluate("one => one.scrollIntoView({ block: 'end' })")
    weight.evaluate("one => scrollBy(0, 60)")
    weight.click()
    expect(panel.locator(".title")).to_contain_text("α of “animal”")
    box = weight.bounding_box()
    assert panel.bounding_box()["height"] > 200
    assert box["y"] + box["height"] <= panel.bounding_box()["y"] + 1
    live.get_by_label("Head").select_option("2")
    assert panel.bounding_box()["height"] > 200  # it does not jump between two choices


def test_words_of_the_reader_are_no_formulas(live):
    live.locator("input").fill("snake_case is x^2.")
    live.get_by_role("button", name="Compute").click()
    expect(live.locator(".words")).to_contain_text("_")
    marks = [text for text in live.locator(".words button").all_text_contents() if "_" in text or "^" in text]
    for word in marks:
        live.get_by_role("button", name=re.compile(f"^weight of “{re.escape(word)}”")).click()
        title = live.locator(".panel .title")
        expect(title).to_contain_text(f"α of “{word}”")
        expect(title.locator("sub, sup")).to_have_count(0)


def test_a_model_that_could_not_be_loaded_is_loaded_again(browser, address):
    watched = Watched(browser, **DESKTOP)
    watched.page.route("**/model-*.js", lambda route: route.abort())
    watched.page.goto(f"{address}/{CHAPTER}")
    live = watched.page.locator("[data-live=attention]")
    live.scroll_into_view_if_needed()
    expect(live.locator(".state")).to_have_text("The figure cannot be computed: assets/model-en-de.js cannot be loaded")
    watched.page.unroute("**/model-*.js")
    live.get_by_role("button", name="Compute").click()
    ready(watched.page)
    watched.context.close()


def test_terms_of_a_sum_add_up(live):
    live.get_by_role("button", name=re.compile("^dot product of “tired”")).click()
    panel = live.locator(".panel")
    result = number(panel.locator(".title strong").text_content())
    assert sum(number(text) for text in panel.locator(".value").all_text_contents()) == pytest.approx(result, abs=2e-3)
    assert number(column_text(live, "dot product of “tired”")) == pytest.approx(result, abs=1e-3)


def column_text(live, name):
    return live.get_by_role("button", name=re.compile(f"^{name}")).text_content()


def test_the_first_layer_goes_back_to_embedding_and_position(live):
    live.get_by_label("Layer").select_option("1")
    live.locator(".words button").nth(4).click()
    live.get_by_role("slider", name="x of “because”").press("Home")
    panel = live.locator(".panel")
    values = [number(text) for text in panel.locator(".value").all_text_contents()]
    assert values[1] == pytest.approx(math.sin(4), abs=1e-4)
    assert sum(values) == pytest.approx(number(panel.locator(".title strong").text_content()), abs=2e-4)


def test_the_engine_computes_the_same_weights(live):
    found = re.search(r"difference to those here is ([\d.e+-]+)", live.inner_text())
    assert float(found[1].rstrip(".")) < 1e-4


def test_what_the_chapter_says_of_its_example_is_true(watched):
    live = ready(watched.page)
    for word, animal, street in (("tired", 0.74, 0.21), ("wide", 0.77, 0.19)):
        live.locator("input").fill(f"The animal didn't cross the street because it was too {word}.")
        live.get_by_role("button", name="Compute").click()
        expect(live.locator(".words")).to_contain_text(word)
        live.get_by_label("Layer").select_option("6")
        live.get_by_label("Head").select_option("3")
        live.locator(".words").get_by_text("it", exact=True).click()
        assert number(column_text(live, "weight of “animal”")) == pytest.approx(animal, abs=6e-3)
        assert number(column_text(live, "weight of “street”")) == pytest.approx(street, abs=6e-3)
        expect(live.locator(".state")).to_contain_text("weil es zu")


def test_the_last_of_several_sentences_is_answered(live):
    for text in ("I see a cat.", "We are here.", "They sleep."):
        live.locator("input").fill(text)
        live.locator("input").press("Enter")
    expect(live.locator(".state")).to_have_text("The model translates: Sie schlafen.")
    expect(live.locator(".words button").first).to_have_text("They")


def test_what_it_says_follows_the_language(live):
    live.page.get_by_role("button", name="中文", exact=True).click()
    expect(live.locator(".state")).to_contain_text("模型的译文")
    live.page.get_by_role("button", name="EN", exact=True).click()
    expect(live.locator(".state")).to_contain_text("The model translates")
    expect(live).to_contain_text("compiled to WebAssembly")


def test_the_model_is_loaded_when_the_figure_is_seen(opened):
    watched = opened(CHAPTER, **DESKTOP)
    assert not [url for url in watched.requests if "model-" in url]
    ready(watched.page)
    assert len([url for url in watched.requests if "model-" in url]) == 1


def test_nothing_in_it_keeps_people_out(opened):
    for options in (DESKTOP, PHONE):
        live = ready(opened(CHAPTER, **options).page)
        live.get_by_role("button", name=re.compile("^weight of “animal”")).click()
        assert serious_findings(live.page) == []
        live.page.emulate_media(color_scheme="dark")
        assert serious_findings(live.page, ["color-contrast"]) == []


def test_it_works_from_disk_and_with_odd_sentences(browser, folder):
    watched = Watched(browser, **DESKTOP)
    watched.page.goto((folder / CHAPTER).as_uri())
    live = ready(watched.page)
    for text, tokens in (("", None), ("word " * 60, 24), ("<b>😀</b>", None), ("日本", None)):
        live.locator("input").fill(text)
        live.get_by_role("button", name="Compute").click()
        if tokens:
            expect(live).to_contain_text("The sentence is cut to 24 tokens.")
            expect(live.locator(".words button")).to_have_count(tokens)
        expect(live.locator(".state")).to_contain_text("The model translates")
    assert watched.complaints == []
    watched.context.close()


def test_a_chinese_sentence_has_a_model_of_its_own(opened):
    page = opened(f"{CHAPTER}?lang=zh", **PHONE).page
    live = ready(page)
    live.get_by_label("模型").select_option(label="中译英（小型教学模型）")
    sentence = live.get_by_label("你的中文句子")
    expect(sentence).to_have_value("我不知道他为什么生气。")
    assert sentence.get_attribute("lang") == "zh-CN"
    sentence.fill("我喜欢这本书。")
    live.get_by_role("button", name="计算").click()
    tokens = regard.load("zh-en", device="cpu").tokenizers.source.tokenize("我喜欢这本书。")
    words = [token.removeprefix("\u2581") for token in tokens]
    expect(live.locator(".words button")).to_have_text([*(word for word in words if word), "</s>"])
    expect(live.locator(".state")).to_contain_text("模型的译文：")
    difference = re.search(r"最大差别是 (\S+)。", live.inner_text())
    assert float(difference[1]) < 1e-4
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0 and serious_findings(page) == []
    live.get_by_label("模型").select_option(label="英译德")
    expect(live.locator(".words button").first).to_have_text("The")
