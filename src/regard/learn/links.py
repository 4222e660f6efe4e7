"""Links of pages: addresses in the site for what the text links to, and a check that each target and anchor is there."""

from __future__ import annotations

import functools
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

from regard.errors import ConfigError
from regard.learn.sources import PAGES, find

OUTSIDE = re.compile(r"^(?:https?:|mailto:)")
SOURCES = {
    ".py": "python",
    ".toml": "toml",
    ".txt": "text",
    ".sh": "bash",
    ".c": "c",
    ".h": "c",
    ".js": "javascript",
    "": "text",
}


class Used(NamedTuple):
    """A link: the page it is on, and what it points to."""

    page: str
    target: str
    anchor: str


@dataclass
class Links:
    """All links of the site, and the files of the repository that they point to."""

    used: list[Used] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # address by path in the repository

    def resolve(self, href: str, *, url: str, folder: str | None, name: str) -> str:
        """Return the address for what a page links to. `folder` is the page's in the repository; None is a chapter."""
        if OUTSIDE.match(href):
            return href
        path, _, anchor = href.partition("#")
        target = url if not path else self.address(path, folder, name)
        self.used.append(Used(name, target, anchor))
        return relative(url, target, anchor) if path else f"#{anchor}"

    def address(self, path: str, folder: str | None, name: str) -> str:
        """Return the address of a chapter or of a file of the repository."""
        if path.startswith("api/"):
            return path
        if folder is None and path == "recipes.md":
            return "recipes.html"
        if folder is None and not path.startswith("/"):
            chapter = path.removesuffix(".md")
            if not (PAGES / "en" / f"{chapter}.md").is_file():
                raise ConfigError(
                    f"{name} links to the chapter {path}, which is not there; files of the repository begin with /"
                )
            return chapter_url(chapter)
        full = path[1:] if path.startswith("/") else posixpath.normpath(posixpath.join(folder or "", path))
        return self.file(full.rstrip("/"), name)

    def file(self, path: str, name: str) -> str:
        """Return the address of a file or folder of the repository, which the site will have."""
        found = find(path)
        if found is None:
            raise ConfigError(f"{name} links to {path}, which is not there")
        path = original(path)
        if path not in self.files:
            self.files[path] = f"files/{path}/index.html" if found.is_dir() else file_url(path)
        return self.files[path]

    def check(self, anchors: dict[str, set[str]]) -> None:
        """Raise ConfigError for links without a target. `anchors` are those of each address."""
        broken = []
        for one in self.used:
            if one.target not in anchors:
                broken.append(f"{one.page} links to {one.target}, which is not there")
            elif one.anchor and one.anchor not in anchors[one.target]:
                broken.append(f"{one.page} links to {one.target}#{one.anchor}, and there is no such heading")
        if broken:
            raise ConfigError("; ".join(broken))


def original(path: str) -> str:
    """Return the file that a translation such as README.zh.md is shown with."""
    return f"{path.removesuffix('.zh.md')}.md" if path.endswith(".zh.md") else path


def translated(path: str) -> str:
    """Return the name of a file's translation."""
    return f"{path.removesuffix('.md')}.zh.md"


def chapter_url(name: str) -> str:
    return "index.html" if name == "index" else f"learn/{name}.html"


def file_url(path: str) -> str:
    """Return the address of a file: pages of Markdown, sources in colours, others as they are."""
    clean = PurePosixPath(path)
    if clean.suffix == ".md":
        return str(clean.with_suffix(".html"))
    return f"files/{path}.html" if clean.suffix in SOURCES else f"files/{path}"


def relative(url: str, target: str, anchor: str = "") -> str:
    """Return an address as the page at `url` writes it."""
    return _from_folder(target, posixpath.dirname(url) or ".") + (f"#{anchor}" if anchor else "")


@functools.cache
def _from_folder(target: str, folder: str) -> str:
    """Return `relpath`, kept because every page has the navigation with all addresses."""
    return posixpath.relpath(target, folder)
