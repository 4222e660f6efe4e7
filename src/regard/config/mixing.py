"""Several corpora in one training: tags in front of the source, languages, and the stages of training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,2}")  # en, pt-BR, zh-Hans
_TAG = re.compile(r"\S{1,64}")
MOST_CORPORA = 1000


class Staged(Protocol):
    """What is used from one step of training until another."""

    @property
    def begin(self) -> int:
        """The steps that are taken before it is used."""

    @property
    def until(self) -> int | None:
        """The steps after which it is not used any more; None: it is used to the last step."""


def stage_begins(corpora: Sequence[Staged], steps: int) -> list[int]:
    """Return the numbers of steps after which another set of corpora is used; the first is 0."""
    bounds = {bound for one in corpora for bound in (one.begin, one.until) if bound is not None}
    return sorted({0, *(bound for bound in bounds if 0 < bound < steps)})


def used_after(corpora: Sequence[Staged], steps: int) -> list[bool]:
    """Return for each corpus whether the step after so many steps draws from it."""
    return [one.begin <= steps and (one.until is None or steps < one.until) for one in corpora]


def refuse_empty_stages(corpora: Sequence[Staged], steps: int) -> None:
    """Raise ValueError if there are steps of training for which there is no corpus."""
    begins = stage_begins(corpora, steps)
    for begin, end in zip(begins, [*begins[1:], steps], strict=True):
        if not any(used_after(corpora, begin)):
            raise ValueError(
                f"data.train: no corpus is used in steps {begin + 1:,} to {end:,}; one must be, so change a from or an until"
            )


def language_tag(language: str) -> str:
    """Return the symbol in front of a source that is to be translated into a language."""
    return f"<2{language}>"


def is_list_of_tags(tags: Sequence[str]) -> bool:
    """Return whether these are distinct words that can be tags, and not too many of them."""
    return len(tags) == len(set(tags)) <= 2 * MOST_CORPORA and all(map(_is_tag, tags))


def _is_tag(text: str) -> bool:
    return bool(_TAG.fullmatch(text)) and text.isprintable()


def check_tag(tag: str | None) -> None:
    """Raise ValueError if this cannot be a tag."""
    if tag is not None and not _is_tag(tag):
        raise ValueError(f"tag is {tag!r}; it must be one word of at most 64 printable characters, as in '<bt>'")


def check_languages(languages: tuple[str, str] | None) -> None:
    """Raise ValueError if these cannot be the languages of source and target."""
    for one in languages or ():
        if not _LANGUAGE.fullmatch(one):
            raise ValueError(
                f"languages has {one!r}; write the codes of source and target, as in ['en', 'de'] or ['en', 'pt-BR']"
            )
