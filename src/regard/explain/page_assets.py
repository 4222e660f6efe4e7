"""Files of pages: styles, scripts and templates, and how they are put into a page."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template

ASSETS = resources.files("regard.explain") / "assets"
# The view of attention, each after what it imports.
VIEW_MODULES = (
    *(
        "elements.js",
        "weights.js",
        "lines.js",
        "heatmap.js",
        "overview.js",
        "linked_texts.js",
        "controls.js",
        "scores.js",
    ),
    *("attention.js", "output.js"),
)


def asset(name: str) -> str:
    """Return the text of a file in the package's assets folder."""
    return (ASSETS / name).read_text(encoding="utf-8")


def make_page(
    name: str,
    values: Mapping[str, str],
    *,
    title: str,
    styles: Sequence[str],
    scripts: bool = False,
    refresh_seconds: int | None = None,
) -> str:
    """Return a page: the head that all pages have, and a template of the assets for its body, filled with HTML values.

    The page loads nothing from elsewhere, and runs scripts only with `scripts`.
    """
    head = Template(asset("head.html")).substitute(
        title=html.escape(title),
        scripts="script-src 'unsafe-inline'; " if scripts else "",
        refresh="" if refresh_seconds is None else f'<meta http-equiv="refresh" content="{refresh_seconds}">\n',
        style="".join(map(asset, styles)),
    )
    return head + Template(asset(name)).substitute(title=html.escape(title), **values)


def join_modules(*modules: str) -> str:
    """Return JavaScript modules as one script without imports and exports, which cannot end the element around it."""
    text = re.sub(r"^import .*$", "", "\n".join(modules), flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE).replace("</script", "<\\/script")


def escape_json(text: str) -> str:
    """Return JSON in which nothing can end the script element around it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
