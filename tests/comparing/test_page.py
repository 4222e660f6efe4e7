"""The page of a comparison: one file without scripts, with the numbers of the JSON, readable by everyone."""

import html
import re

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.comparing.page import mark_differences
from tests.browser import Watched, expect, serious_findings


@pytest.fixture(scope="module")
def comparison(folder):
    files = [folder / name for name in ("a.txt", "b.txt", "c.txt")]
    references = [folder / "ref.txt", folder / "ref2.txt"]
    return regard.compare(*files, reference=references, source=folder / "source.txt", resamples=40, trials=50)


def test_the_page_has_every_number_and_every_sentence(comparison):
    page = comparison.as_page()
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    [only] = comparison.sets
    for metric in only.metrics:
        assert metric.signature in text
        for one in metric.systems:
            assert f">{one.score:.2f}</td>" in page and f"{one.mean:.2f} ± {one.ci:.2f}" in page
            if one.paired is not None:
                assert f"{one.paired.change:+.2f}" in page and f">{one.paired.p_bootstrap:.4f}</td>" in page
                assert f">{one.paired.p_randomization:.4f}</td>" in page
    for changes in only.changes.values():
        for one in (*changes.improved, *changes.worsened):
            assert one.source in text and all(reference in text for reference in one.references)
            assert one.before in text and one.after in text
    for group in only.by_length.groups:
        assert all(f"{score:.2f}" in page for scores in group.scores.values() for score in scores)


def test_the_page_loads_nothing_and_runs_nothing(comparison):
    page = comparison.as_page()
    assert "default-src 'none'" in page[:1000] and "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)


def test_text_of_a_system_is_never_markup(tmp_path):
    attack = "</dd><script>alert(1)</script><img src=x onerror=alert(2)>"
    (tmp_path / "ref").write_text("a b\nc d\n")
    (tmp_path / "src").write_text(f"{attack}\n{attack}\n")
    (tmp_path / "a").write_text("a b\nc d\n")
    (tmp_path / "<b>&").write_text(f"a b\n{attack}\n")
    page = regard.compare(
        tmp_path / "a", tmp_path / "<b>&", reference=tmp_path / "ref", source=tmp_path / "src", resamples=40, trials=1
    ).as_page()
    assert "<script" not in page and "<img" not in page and "<b>" not in page
    assert html.escape(attack) in page and "&lt;b&gt;&amp;" in page


def test_the_words_that_differ_are_marked():
    one, other = mark_differences("the dog sees a cat", "the dog saw a black cat")
    assert one == "the dog <mark>sees</mark> a cat"
    assert other == "the dog <mark>saw</mark> a <mark>black</mark> cat"
    assert mark_differences("", "a < b") == ("(empty)", "<mark>a &lt; b</mark>")


def test_the_option_writes_the_page_and_replaces_an_earlier_one(folder, tmp_path):
    out = tmp_path / "page.html"
    words = [str(folder / "a.txt"), str(folder / "b.txt"), "--reference", str(folder / "ref.txt"), "--trials", "1"]
    for _ in range(2):
        result = CliRunner().invoke(app, ["compare", *words, "--resamples", "40", "--html", str(out)])
        assert result.exit_code == 0 and "95 % interval" in result.stdout
    assert "regard compare · a.txt, b.txt" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_in_a_browser_and_is_accessible(browser, comparison, scheme, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(comparison.as_page(), encoding="utf-8")
    watched = Watched(browser, color_scheme=scheme)
    watched.page.goto(file.as_uri())
    expect(watched.page.get_by_role("img", name=re.compile("BLEU with 95 % intervals: a.txt "))).to_be_visible()
    expect(watched.page.get_by_role("rowheader", name="b.txt").first).to_be_visible()
    background = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(251, 250, 247)", "dark": "rgb(21, 22, 26)"}[scheme]
    # On a narrow screen, tables scroll inside of their region, and the page does not.
    watched.page.set_viewport_size({"width": 360, "height": 700})
    assert watched.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert watched.requests == [file.as_uri()] and watched.complaints == []
    assert serious_findings(watched.page) == []
