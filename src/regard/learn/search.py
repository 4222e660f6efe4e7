"""The index of the site's search: the sections of all pages, in a script that the page loads when search is first used."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

LONGEST = 1200  # characters of a section that are searched


class Section(NamedTuple):
    """A part of a page with its heading."""

    url: str
    title: str
    heading: str
    text: str


def search_script(sections: Iterable[Section]) -> str:
    """Return the index as a script. Opened from disk, a page can load a script, but no data."""
    rows = [[one.url, one.title, one.heading, " ".join(one.text.split())[:LONGEST]] for one in sections]
    return f"regardSearch({json.dumps(rows, ensure_ascii=False, separators=(',', ':'))});\n"
