"""Files of pages: styles, scripts and templates."""

from __future__ import annotations

from importlib import resources

ASSETS = resources.files("regard.explain") / "assets"


def asset(name: str) -> str:
    """Return the text of a file in the package's assets folder."""
    return (ASSETS / name).read_text(encoding="utf-8")
