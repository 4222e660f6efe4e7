"""Pairs in gettext's PO files: a message (`msgid`) and its translation (`msgstr`).

Messages that are not translated, or whose translation is marked as fuzzy, are part of the format: they are left out and
counted. Obsolete messages (`#~`) and the header are not messages.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from regard.errors import DataError
from regard.text.lines import MAX_LINE_CHARS, decode_lines, long_text
from regard.text.pair import Pair, Row, TextProblem
from regard.text.table_files import Sides
from regard.text.text_report import TextReport

MAX_PLURALS = 20
_FIELD = re.compile(r"""(msgctxt|msgid|msgid_plural|msgstr(?:\[(\d{1,3})\])?)\s+(".*")""")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
MESSAGE_AND_TRANSLATION = ("msgid", "msgstr")


@dataclass
class _Entry:
    """A message with its translations."""

    line: int = 0  # of its msgid
    fuzzy: bool = False
    problem: TextProblem | None = None
    parts: dict[str, list[str]] = field(default_factory=dict)  # of the texts, by field
    characters: int = 0

    def add(self, name: str, text: str) -> None:
        self.characters += len(text)
        if self.characters > MAX_LINE_CHARS or len(self.parts) > MAX_PLURALS:
            self.problem = self.problem or long_text(self.characters, self.text("msgid"))
        else:
            self.parts.setdefault(name, []).append(text)

    def text(self, name: str) -> str:
        return "".join(self.parts.get(name, []))

    @property
    def translations(self) -> list[str]:
        return [self.text(name) for name in sorted(self.parts) if name.startswith("msgstr")]

    def rows(self) -> Iterator[Row]:
        """Yield the message with its translation, and its plural with the last of the translations."""
        if self.problem is not None:
            yield Row(self.line, self.problem)
            return
        translations = self.translations
        if not translations:
            yield Row(self.line, TextProblem("no msgstr", "has a msgid without a msgstr; add one", self.text("msgid")))
            return
        pairs = [Pair(self.text("msgid"), translations[0])]
        if "msgid_plural" in self.parts:
            plural = Pair(self.text("msgid_plural"), translations[-1])
            pairs = [plural] if len(translations) == 1 else [*pairs, plural]
        for pair in pairs:
            yield Row(self.line, self._left_out(pair) or pair)

    def _left_out(self, pair: Pair) -> TextProblem | None:
        if not pair.target:
            return TextProblem("not translated", "has a message without a translation", pair.source, expected=True)
        if self.fuzzy:
            return TextProblem("fuzzy", "has a fuzzy translation", pair.source, expected=True)
        return None


def read_po(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport) -> Iterator[Row]:
    """Yield one row per message, and one more for its plural."""
    reverse: bool | None = None
    for entry in _entries(stream, name, report):
        is_header = entry.problem is None and not entry.text("msgid") and "msgctxt" not in entry.parts
        if reverse is None:
            reverse = _is_reversed(sides, entry.text("msgstr") if is_header else "", name)
        if is_header:
            continue
        for line, found in entry.rows():
            yield Row(line, Pair(found.target, found.source) if reverse and isinstance(found, Pair) else found)


def _entries(stream: io.BufferedReader, name: str, report: TextReport) -> Iterator[_Entry]:
    entry, current = _Entry(), ""
    for number, line in enumerate(decode_lines(stream, name, report), start=1):
        text = line.strip() if isinstance(line, str) else ""
        if isinstance(line, TextProblem):
            entry.problem, entry.line = entry.problem or line, entry.line or number
            continue
        if not text or text.startswith("#"):
            if entry.parts or entry.problem:
                yield entry
                entry = _Entry()
            current = ""
            entry.fuzzy = entry.fuzzy or (text.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", text))
            continue
        found = _FIELD.fullmatch(text)
        if found:
            current = found[1] if found[2] is None else f"msgstr[{int(found[2]):03d}]"
            if current in ("msgctxt", "msgid") and (entry.translations or current in entry.parts):
                yield entry
                entry = _Entry()
            if current == "msgid" or not entry.line:
                entry.line = number
        quoted = _QUOTED.fullmatch(found[3] if found else text)
        if quoted is None or not current:
            entry.line = entry.line or number
            sentence = "is not a line of a PO file; it needs msgid or msgstr and a text in quotes"
            entry.problem = entry.problem or TextProblem("malformed PO", sentence, text)
        else:
            entry.add(current, _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted[1]))
    if entry.parts or entry.problem:
        yield entry


def _is_reversed(sides: Sides, header: str, name: str) -> bool:
    """Return whether the translation is the source: the sides are `msgid` and `msgstr`, or languages as in the header."""
    fields = {
        key.strip().lower(): value.strip() for key, _, value in (one.partition(":") for one in header.split("\n"))
    }
    charset = re.search(r"charset=([\w.:-]+)", fields.get("content-type", ""))
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii", "ascii", "charset"):
        raise DataError(f"{name} is encoded in {charset[1]}; convert it to UTF-8, for example with msgconv -t UTF-8")
    named = sides.named()
    if named is None or named == MESSAGE_AND_TRANSLATION:
        return False
    if named == MESSAGE_AND_TRANSLATION[::-1]:
        return True
    language = fields.get("language", "").lower().replace("_", "-").partition("-")[0]
    one, other = (side.lower().replace("_", "-").partition("-")[0] for side in named)
    if not language or language not in (one, other) or one == other:
        says = (
            f"says that it translates into {language!r}"
            if language
            else "does not say into which language it translates"
        )
        raise DataError(
            f"{name} {says}, but the sides are named {named[0]!r} and {named[1]!r}; "
            'use columns = ["msgid", "msgstr"], or the other way round'
        )
    return language == one
