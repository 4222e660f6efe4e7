"""Fonts of pictures: characters that the usual font lacks, such as Chinese ones, are drawn with another installed font."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from regard.messages import warn_caller


def choose_fonts(figure: Any, *, warn: Callable[[str], None] = warn_caller) -> bool:
    """Give every text of a figure fonts that have its characters, and return whether there are such fonts.

    Warn about characters that no installed font has.
    """
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.text import Text

    texts = [one for one in figure.findobj(Text) if one.get_text()]
    usual = findfont(FontProperties())
    needed = {ord(letter) for one in texts for letter in one.get_text() if not letter.isspace()} - characters_of(usual)
    if not needed:
        return True
    families = []
    for name, path in _installed():
        found = needed & characters_of(path)
        if found:
            families.append(name)
            needed -= found
        if not needed:
            break
    for one in texts:
        one.set_fontfamily([*one.get_fontfamily(), *families])
    if needed:
        lacking = "".join(map(chr, sorted(needed)[:10]))
        warn(f"no installed font has {lacking}; install one that has, such as Noto Sans CJK for Chinese and Japanese")
    return not needed


@cache
def characters_of(path: str) -> frozenset[int]:
    """Return the code points that a font has."""
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(path).get_charmap())


def _installed() -> list[tuple[str, str]]:
    """Return names and paths of upright fonts of normal weight; those made for Chinese, Japanese and Korean first."""
    from matplotlib.font_manager import fontManager

    upright = [one for one in fontManager.ttflist if one.style == "normal" and one.weight in (400, "normal")]
    # A "last resort" font has a box with a number for every character.
    found = {one.name: one.fname for one in upright if not one.name.startswith("Last Resort")}
    return sorted(found.items(), key=lambda one: ("CJK" not in one[0], one[0]))
