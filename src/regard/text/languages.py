"""The languages of a translation model, and the symbols in front of a source that choose among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath

from regard.config import DataConfig
from regard.config.mixing import language_tag
from regard.errors import DecodeError, did_you_mean
from regard.text.compression import ENDINGS

_PAIR = re.compile(r"(?:^|[^a-z])([a-z]{2})-([a-z]{2})$")


@dataclass(frozen=True)
class Languages:
    """The pairs of languages, source and target, that a model was trained with, as far as its recipe names them."""

    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The languages that the model translates into."""
        return tuple(dict.fromkeys(target for _, target in self.pairs))

    @property
    def several(self) -> bool:
        """Whether a symbol in front of the source says into which language it is translated."""
        return len(self.targets) > 1

    def tags_into(self, language: str | None) -> tuple[str, ...]:
        """Return the symbols in front of a source that is to be translated into a language; None: into the only one."""
        if language is None:
            if self.several:
                raise DecodeError(
                    f"this model translates into {', '.join(self.targets)}; say into which, as in --to {self.targets[0]} "
                    f"or, in Python, to={self.targets[0]!r}"
                )
            return ()
        if not self.targets:
            raise DecodeError(
                f"the recipe of this model names no languages, so {language!r} cannot be chosen; leave it out"
            )
        if language not in self.targets:
            raise DecodeError(
                f"this model does not translate into {language!r}; {did_you_mean(language, self.targets)}"
            )
        return (language_tag(language),) if self.several else ()


@cache
def known_languages() -> dict[str, str]:
    """Return the English names of languages by their two-letter codes."""
    from babel import Locale

    return {code: name for code, name in Locale("en").languages.items() if len(code) == 2}


def languages_of(data: DataConfig, name: str) -> tuple[str, str] | None:
    """Return the languages that a run's data states, or those of the columns (en, de) or suffixes (train.de) of its files.

    Else the languages are those in the name of the run (news-de-en), or None.
    """
    if data.language_pairs:
        return data.language_pairs[0]
    first = data.corpora[0]
    columns = [str(column).lower() for column in first.columns or ("", "")]
    endings = [_ending(*first.names(side)) for side in ("source", "target")]
    for source, target in (columns, endings, _PAIR.findall(name)[-1] if _PAIR.search(name) else ("", "")):
        if source != target and {source, target} <= known_languages().keys():
            return source, target
    return None


def _ending(*names: str) -> str:
    """Return the suffix of the first file's name, without that of its compression."""
    suffixes = [suffix.lstrip(".") for suffix in PurePath(*names[:1]).suffixes if suffix not in ENDINGS]
    return suffixes[-1] if suffixes else ""
