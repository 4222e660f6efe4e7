"""Build the site: chapters, guides, results and the reference as static files, with links checked."""

from __future__ import annotations

import html
import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any

from regard.errors import ConfigError
from regard.explain.page_assets import asset
from regard.learn.html_parts import code_html, in_languages, label
from regard.learn.links import SOURCES, Links, chapter_url, original, relative, translated
from regard.learn.live_model import live_script, model_script
from regard.learn.numbers import with_numbers
from regard.learn.recipe_list import recipe_page
from regard.learn.reference import reference_modules, reference_page
from regard.learn.render import Heading, Rendered, render
from regard.learn.search import Section, search_script
from regard.learn.sources import ASSETS, PAGES, find, read, repository

MODELS = ("en-de", "zh-en")  # of the live figures
CHOICES = ("en", "zh", "both")
NOT_TRANSLATED = "本页还没有中文译文，以下是英文原文。"


@dataclass
class Page:
    """A page of the site."""

    url: str
    rendered: Rendered
    titles: dict[str, str]


@dataclass
class Chapter:
    """A section of the navigation."""

    titles: dict[str, str]
    pages: list[Page] = field(default_factory=list)


@dataclass
class Site:
    """The pages and files of the site, before they are written."""

    lang: str = "en"
    chapters: list[Chapter] = field(default_factory=list)
    pages: dict[str, Page] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    links: Links = field(default_factory=Links)

    def add_contents(self) -> None:
        """Render all pages of pages/contents.toml."""
        contents = tomllib.loads((PAGES / "contents.toml").read_text(encoding="utf-8"))
        named = {one for section in contents["section"] for key in ("pages", "files") for one in section.get(key, [])}
        for section in contents["section"]:
            chapter = Chapter({"en": section["en"], "zh": section["zh"]})
            for page in self.section_pages(section, named):
                chapter.pages.append(page)
            self.chapters.append(chapter)
        for path, titles in contents["titles"].items():
            self.pages[self.links.file(path, "contents.toml")].titles = titles
        forgotten = {path.stem for path in (PAGES / "en").glob("*.md")} - named
        if forgotten:
            raise ConfigError(f"pages/contents.toml does not name the chapters {', '.join(sorted(forgotten))}")

    def section_pages(self, section: dict[str, Any], named: set[str]) -> Iterator[Page]:
        """Render the pages of a section of the contents. `named` are files and chapters that some section names."""
        for name in section.get("pages", []):
            yield self.add_chapter(name)
        others: set[str] = set()
        if "others" in section:
            others = {path.relative_to(repository()).as_posix() for path in repository().glob(section["others"])}
        for path in [*section.get("files", []), *sorted(path for path in others - named if path == original(path))]:
            yield self.add_document(path)
        if section.get("recipes"):
            english, chinese = (recipe_page(lang) for lang in ("en", "zh"))
            yield self.add_page("recipes.html", english, name="the list of recipes", folder="", translation=chinese)
        for module in reference_modules() if section.get("reference") else []:
            yield self.add_page(
                f"api/{module}.html", reference_page(module), name=f"the reference of {module}", folder="docs"
            )

    def add_chapter(self, name: str) -> Page:
        text, translation = (_chapter(name, lang) for lang in ("en", "zh"))
        if text is None:
            raise ConfigError(f"there is no chapter pages/en/{name}.md")
        return self.add_page(
            chapter_url(name), text, name=f"{name}.md", folder=None, translation=translation, formulas=True
        )

    def add_document(self, path: str) -> Page:
        translation = read(translated(path)) if find(translated(path)) else None
        return self.add_page(
            self.links.file(path, "the contents"),
            read(path),
            name=path,
            folder=posixpath.dirname(path),
            translation=translation,
        )

    def add_page(
        self,
        url: str,
        text: str,
        *,
        name: str,
        folder: str | None,
        translation: str | None = None,
        formulas: bool = False,
    ) -> Page:
        link = partial(self.links.resolve, url=url, folder=folder, name=name)
        rendered = render(text, link=link, name=name, translation=translation, formulas=formulas)
        page = self.pages[url] = Page(url, rendered, rendered.titles)
        return page

    def add_linked_files(self) -> None:
        """Add the files of the repository that pages link to, and what these link to."""
        while missing := [(path, url) for path, url in self.links.files.items() if url not in self.pages | self.files]:
            for path, url in missing:
                found = find(path)
                assert found is not None, path
                kind = PurePosixPath(path).suffix
                if found.is_dir():
                    self.add_page(url, _listing(path, found), name=path, folder=path)
                elif kind == ".md":
                    self.add_document(path)
                elif kind in SOURCES:
                    title = {"en": path}
                    made = f"<h1>{html.escape(path)}</h1>\n{code_html(read(path), SOURCES[kind])}"
                    self.pages[url] = Page(url, Rendered(made, [Heading(1, "", title)]), title)
                else:
                    self.files[url] = found.read_bytes()

    def check(self) -> None:
        """Raise ConfigError for broken links and unknown figures."""
        anchors = {url: {one.anchor for one in page.rendered.headings} for url, page in self.pages.items()}
        self.links.check(anchors | {url: set() for url in self.files})
        known = {path.stem.removeprefix("figure_") for path in (ASSETS / "live").glob("figure_*.js")}
        for page in self.pages.values():
            unknown = set(page.rendered.figures) - known
            if unknown:
                raise ConfigError(f"{page.url} has the figure {unknown.pop()}; there are {', '.join(sorted(known))}")

    def add_assets(self) -> None:
        """Add styles, scripts, the index of the search, and the models of the live figures."""
        style = "\n".join(
            [_tokens(), *((ASSETS / name).read_text(encoding="utf-8") for name in ("site.css", "live.css"))]
        )
        self.files["assets/site.css"] = style.encode()
        self.files["assets/site.js"] = (ASSETS / "site.js").read_bytes()
        self.files["assets/search.js"] = search_script(self.sections()).encode()
        self.files["assets/live.js"] = live_script().encode()
        for name in MODELS:
            self.files[f"assets/model-{name}.js"] = model_script(name).encode()

    def sections(self) -> Iterator[Section]:
        """Return what the search finds: the pages of the navigation by section."""
        for page in (page for chapter in self.chapters for page in chapter.pages):
            title = " ".join(page.titles.values())
            headings = {one.anchor: " ".join(one.texts.values()) for one in page.rendered.headings}
            for number, (anchor, text) in enumerate(page.rendered.sections):
                yield Section(f"{page.url}#{anchor}" if number else page.url, title, headings.get(anchor, ""), text)

    def write(self, out: Path) -> None:
        """Write all pages and files."""
        template = Template((ASSETS / "page.html").read_text(encoding="utf-8"))
        order = [page for chapter in self.chapters for page in chapter.pages]
        for page in self.pages.values():
            self.files[page.url] = self.page_html(template, page, order).encode()
        for url, content in self.files.items():
            path = out / url
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def page_html(self, template: Template, page: Page, order: list[Page]) -> str:
        """Return a complete page."""
        steps = []
        if page in order:
            at = order.index(page)
            steps += [("prev", f"← {_plain(one.titles)}", one.url) for one in order[max(0, at - 1) : at]]
            steps += [("next", f"{_plain(one.titles)} →", one.url) for one in order[at + 1 : at + 2]]
        around = "".join(f'<a rel="{rel}" href="{relative(page.url, url)}">{text}</a>' for rel, text, url in steps)
        note = "" if page.rendered.translated else f'<p class="note zh untranslated" lang="zh-CN">{NOT_TRANSLATED}</p>'
        script = (
            f'<script defer src="{relative(page.url, "assets/live.js")}"></script>' if page.rendered.figures else ""
        )
        root = relative(page.url, ".") if "/" in page.url else "."
        return template.substitute(
            lang=self.lang,
            root=html.escape(root),
            title=html.escape(page.titles["en"]),
            title_zh=html.escape(page.titles.get("zh", page.titles["en"])),
            live=script,
            nav=self.nav_html(page),
            note=note,
            content=page.rendered.html,
            around=f'<nav class="around" {label("Previous and next page", "上一页和下一页")}>{around}</nav>'
            if around
            else "",
        )

    def nav_html(self, current: Page) -> str:
        """Return the navigation, with the headings of the current page in it."""
        parts = []
        for chapter in self.chapters:
            parts.append(f"<h2>{in_languages(chapter.titles, 'span')}</h2><ul>")
            for page in chapter.pages:
                here = page is current
                link = f'<a href="{relative(current.url, page.url)}"{" aria-current=page" * here}>{_plain(page.titles)}</a>'
                inner = [one for one in page.rendered.headings if one.level == 2] if here else []
                items = "".join(f'<li><a href="#{one.anchor}">{_plain(one.texts)}</a></li>' for one in inner)
                parts.append(f"<li>{link}{f'<ul>{items}</ul>' if items else ''}</li>")
            parts.append("</ul>")
        return "".join(parts)


def build(out: Path, *, lang: str = "en") -> Site:
    """Build the site into a folder. Raise ConfigError for a broken link, an unpaired block or an unknown figure."""
    if lang not in CHOICES:
        raise ConfigError(f"the language is {lang!r}; choose {', '.join(CHOICES)}")
    site = Site(lang)
    site.add_contents()
    site.add_linked_files()
    site.check()
    site.add_assets()
    site.write(out)
    return site


def _chapter(name: str, lang: str) -> str | None:
    path = PAGES / lang / f"{name}.md"
    return with_numbers(path.read_text(encoding="utf-8"), f"{lang}/{name}.md") if path.is_file() else None


def _plain(texts: dict[str, str]) -> str:
    return in_languages({lang: html.escape(text) for lang, text in texts.items()}, "span")


def _listing(path: str, folder: Path) -> str:
    """Return the page of a folder, as Markdown."""
    names = sorted(one.name for one in folder.iterdir() if not one.name.startswith((".", "__")))
    return f"# {path}\n\n" + "\n".join(f"- [{name}](/{path}/{name})" for name in names) + "\n"


def _tokens() -> str:
    """Return the colours of `regard look`, with a choice of light and dark that is stronger than the system's."""
    style = asset("look.css")
    light = re.search(r"^:root \{(.*?)\n\}", style, flags=re.M | re.S)
    dark = re.search(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\n  \}", style, flags=re.S)
    assert light is not None and dark is not None, "look.css defines the colours in :root"
    return (
        f":root {{{light[1]}\n}}\n@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{{dark[1]}\n}} }}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark[1]}\n}}\n:root[data-theme=light] {{ color-scheme: light; }}"
    )
