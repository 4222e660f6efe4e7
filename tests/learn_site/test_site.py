"""The built site: links, navigation, translation, the reference, and nothing from outside."""

import json
import re
import tomllib

import pytest

import regard
from regard.cli.commands import app
from regard.errors import ConfigError
from regard.learn import reference
from regard.learn.links import Links
from regard.learn.recipe_list import recipe_page, recipes
from regard.learn.render import render
from regard.learn.serving import make_server
from regard.learn.site import Site, build
from regard.learn.sources import PACKAGE, PAGES, repository

LARGEST = 1_000_000  # bytes of a page and what it loads at once


def test_it_builds_without_a_warning(known):
    assert known["warnings"] == []


def checked(text):
    """A site of one chapter."""
    site = Site()
    site.add_page("learn/some.html", text, name="some.md", folder=None)
    site.add_linked_files()
    site.check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a](nowhere.md)", "some.md links to the chapter nowhere.md"),
        ("[a](/docs/nowhere.md)", "some.md links to docs/nowhere.md, which is not there"),
        ("[a](/../secret)", "which is not there"),
        ("[a](/docs/guide.md#nowhere)", "some.md links to docs/guide.html#nowhere, and there is no such heading"),
        ("[a](#nowhere)", "#nowhere, and there is no such heading"),
        ("![a](/docs/pictures/nowhere.png)", "docs/pictures/nowhere.png, which is not there"),
        ("```live nowhere\n```", "has the figure nowhere"),
    ],
)
def test_a_broken_link_is_an_error(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        checked(f"# A\n\n{text}\n")


def test_every_address_in_the_written_pages_exists(folder):
    for page in folder.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r'(?:href|src)="(?!https?:|data:|mailto:)([^"#]*)(#[^"]*)?"', text):
            found = (page.parent / target).resolve() if target else page
            assert found.is_file(), f"{page}: {target}"
            if anchor and found.suffix == ".html":
                assert f'id="{anchor[1:]}"' in found.read_text(encoding="utf-8"), f"{page}: {target}{anchor}"


def test_ids_of_a_page_are_unique(folder):
    """A heading such as Search has no id of the page around it, which its script would find."""
    for page in folder.rglob("*.html"):
        ids = re.findall(r' id="([^"]*)"', page.read_text(encoding="utf-8"))
        assert len(ids) == len(set(ids)), page


def test_a_page_loads_nothing_from_outside_and_less_than_a_megabyte(folder):
    for page in folder.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script[^>]*|link[^>]*rel="stylesheet"[^>]*|img[^>]*)(?:src|href)="([^"]*)"', text)
        assert not [one for one in loaded if "://" in one]
        if "learn/" in str(page) or page.name == "index.html":
            size = len(text) + sum((page.parent / one).stat().st_size for one in loaded)
            assert size < LARGEST, page


def test_a_missing_translation_shows_english_with_a_note(folder):
    translated = (folder / "index.html").read_text(encoding="utf-8")
    other = (folder / "docs" / "guide.html").read_text(encoding="utf-8")
    assert "untranslated" not in translated
    assert "让论文运行起来" in translated
    assert "本页还没有中文译文" in other


def test_the_readme_is_shown_with_its_translation(folder):
    page = (folder / "README.html").read_text(encoding="utf-8")
    assert "五分钟上手" in page
    assert page.count("train has no field") == 2
    assert 'href="README.html"' in page
    assert not (folder / "README.zh.html").exists()


def test_every_chapter_is_in_the_navigation(known):
    listed = {url for url, _ in known["titles"]}
    assert {f"learn/{path.stem}.html" for path in (PAGES / "en").glob("*.md") if path.stem != "index"} <= listed


def test_every_translation_has_an_original():
    assert {path.name for path in (PAGES / "zh").glob("*.md")} <= {path.name for path in (PAGES / "en").glob("*.md")}


def test_the_reference_has_every_public_name(known):
    assert {name for name in regard.__all__ if name not in ("nn", "__version__")} <= set(known["public"])


def test_the_reference_shows_signature_docstring_and_fields():
    text = reference.reference_page("regard")
    assert "options: SearchOptions" in text.split("## `search`")[1].split("##")[0]
    assert regard.search.__doc__.splitlines()[0] in text
    assert "- `beam: " in text.split("## `SearchOptions`")[1].split("\n## ")[0]


def test_the_index_of_the_search_has_all_sections(folder):
    script = (folder / "assets" / "search.js").read_text(encoding="utf-8")
    rows = json.loads(re.fullmatch(r"regardSearch\((.*)\);\n", script, flags=re.S)[1])
    assert ["docs/guide.html" in row[0] for row in rows].count(True) > 5
    assert all((folder / row[0].split("#")[0]).is_file() for row in rows)


def test_an_unknown_language_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="the language is 'fr'; choose en, zh, both"):
        build(tmp_path, lang="fr")


def test_a_link_from_a_folder_of_the_repository_is_relative_to_it():
    links = Links()
    made = render(
        "[a](../rivals.md)\n",
        link=lambda href: links.resolve(href, url="docs/tasks/README.html", folder="docs/tasks", name="x"),
        name="x",
    )
    assert 'href="../rivals.html"' in made.html


def test_the_start_page_has_every_command():
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    commands |= {group.name for group in app.registered_groups}
    for lang in ("en", "zh"):
        page = (PAGES / lang / "index.md").read_text(encoding="utf-8")
        assert commands == set(re.findall(r"`regard (\w+)`", page))


def test_every_guide_has_a_title_in_both_languages(known):
    untitled = [url for url, titles in known["titles"] if "zh" not in titles]
    assert [url for url in untitled if not url.startswith("api/")] == []


def test_a_guide_is_in_one_section(known):
    listed = [url for url, _ in known["titles"]]
    assert len(listed) == len(set(listed))


def test_the_list_of_recipes_has_each_with_the_scores_of_its_cards():
    page = recipe_page()
    assert set(re.findall(r"^### `(.+)`$", page, flags=re.M)) == {
        path.stem for path in (PACKAGE / "recipes").glob("*.toml")
    }
    assert "n200 hull accuracy 63.20 |" in page
    assert "test2016 BLEU 41.67, test2017 BLEU 34.40 |" in page
    assert "| [de-en](/src/regard/shipped/de-en/card.md) | test BLEU 57.12 |" in page
    assert recipes()["hull-50"] == "The convex hull of 50 points (Vinyals et al. 2015), by a Transformer."


def test_the_list_of_recipes_is_in_chinese_too():
    english, chinese = (recipe_page(lang) for lang in ("en", "zh"))
    number = re.compile(r"\d[\d,.]*\d|\d")
    sections = [page.split("\n### ")[1:] for page in (english, chinese)]
    assert len(sections[0]) == len(sections[1]) == len(recipes()) > 50
    for ours, theirs in zip(*sections, strict=True):
        assert ours.splitlines()[0] == theirs.splitlines()[0]
        assert re.search("[\u4e00-\u9fff]", theirs), ours
        assert re.findall(r"\]\(.*?\)", ours) == re.findall(r"\]\(.*?\)", theirs)
    known = tomllib.loads((PAGES / "zh" / "recipes.toml").read_text(encoding="utf-8"))
    assert known.keys() == recipes().keys()
    # Numbers of a description are the same, if those spelled as words are left out.
    for name, words in recipes().items():
        assert {one for one in number.findall(words) if len(one) > 2} <= set(number.findall(known[name])), name
    assert "n200 凸包准确率 63.20 |" in chinese


def test_a_port_that_is_in_use_is_named(tmp_path):
    with make_server(tmp_path, 0) as server:
        port = server.server_address[1]
        with pytest.raises(ConfigError, match=f"port {port} cannot be used .*--port"):
            make_server(tmp_path, port)


def test_a_wheel_has_all_files_that_pages_link_to(known):
    hook = (repository() / "scripts" / "build_hook.py").read_text(encoding="utf-8")
    [copied] = re.findall(r"^PAGES = \((.*?)^\)", hook, flags=re.M | re.S)
    names = re.findall(r'"([^"]+)"', copied)
    [studies] = re.findall(r"^STUDIES = \((.*?)\)", hook, flags=re.M)
    names += [
        path.relative_to(repository()).as_posix()
        for pattern in re.findall(r'"([^"]+)"', studies)
        for path in (repository() / "studies").glob(pattern)
    ]
    others = [path for path in known["files"] if not path.startswith("src/regard/")]
    assert len(others) > 50
    assert [path for path in others if not any(path == one or path.startswith(f"{one}/") for one in names)] == []
    # Sources of the engine in C, and their build script, are not in a wheel.
    sources = [path for path in known["files"] if path.startswith("src/regard/")]
    assert not [path for path in sources if path.endswith((".c", ".h", "engine/build.py"))]
