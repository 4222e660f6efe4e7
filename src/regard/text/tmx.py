"""Pairs in TMX, the exchange format of translation memories, and in TBX, that of glossaries.

The parser declares no entities and opens no other file. A unit of TMX (`tu`) has one variant (`tuv`) per language. Inline
codes of a segment (`bpt`, `ept`, `it`, `ph`, `ut`) are markup of the document that it comes from, and are left out. Bytes
that are not UTF-8, and characters that XML does not allow, spoil only the unit that has them.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.parsers import expat

from regard.errors import DataError
from regard.text.lines import MAX_LINE_CHARS, long_text
from regard.text.pair import Pair, Row, TextProblem
from regard.text.table_files import Sides
from regard.text.text_report import MARKUP, NOT_XML, TextReport

SEVERAL = "|"  # between several terms for one concept
MAX_DEPTH = 50  # of nested elements
MAX_TAG = 2**20  # bytes of a tag or a comment, which the parser holds in memory
MAX_LANGUAGES = 200  # of a unit
MAX_INVALID = 1000  # places in a block that are not UTF-8; a file with more is in another encoding
_BLOCK = 2**16
_CODES = {"bpt", "ept", "it", "ph", "ut"}
_INVALID = "\U0001fffe"  # not a character, but allowed in XML: marks bytes that are not UTF-8
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_REFERENCE = re.compile(r"&#(?:x([0-9a-fA-F]{1,8})|([0-9]{1,8}));")
_ENCODING = re.compile(rb"""^(?:\xef\xbb\xbf)?<\?xml[^>]{0,100}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,30})["']""")
_ENCODINGS = {"utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252"}


class Dialect(NamedTuple):
    """What the elements of a format are called."""

    name: str
    first: tuple[str, ...]
    unit: tuple[str, ...]
    variant: tuple[str, ...]
    text: str
    several: bool  # whether a variant may have several texts, which are joined by SEVERAL


TMX = Dialect("TMX", ("tmx",), ("tu",), ("tuv",), "seg", several=False)
TBX = Dialect("TBX", ("tbx", "martif"), ("conceptentry", "termentry"), ("langsec", "langset"), "term", several=True)


def read_tmx(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport) -> Iterator[Row]:
    """Yield one row per unit, with the line on which it begins."""
    return _read(stream, name, sides, report, TMX)


def read_tbx(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport) -> Iterator[Row]:
    """Yield one row per concept, with the line on which it begins."""
    return _read(stream, name, sides, report, TBX)


def _read(stream: io.BufferedReader, name: str, sides: Sides, report: TextReport, dialect: Dialect) -> Iterator[Row]:
    parser = _UnitParser(name, sides.named(), report, dialect)
    for text in _decoded(stream, name, report):
        parser.feed(text)
        yield from parser.rows
        parser.rows.clear()
    parser.feed("", final=True)
    yield from parser.rows


class _UnitParser:
    """The state between two blocks of a file."""

    def __init__(self, name: str, languages: tuple[str, str] | None, report: TextReport, dialect: Dialect) -> None:
        self.name, self.languages, self.report, self.dialect = name, languages, report, dialect
        self.rows: list[Row] = []
        self._source_language = ""  # of the header
        self._depth = 0
        self._line = 0  # of the unit
        self._texts: dict[str, str] = {}  # of the unit, by language
        self._problem: TextProblem | None = None  # of the unit
        self._language = ""
        self._segment: list[str] | None = None  # parts of the text, within a segment
        self._characters = 0  # of the segment
        self._code_depth = 0  # of inline codes
        self._coded = False  # whether the segment has inline codes
        self._fed = 0
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._refuse_entity
        parser.SkippedEntityHandler = self._note_entity

    def feed(self, text: str, *, final: bool = False) -> None:
        """Parse some more text; complete units are added to `rows`."""
        try:
            self._parser.Parse(text, final)
        except expat.ExpatError as error:
            raise DataError(
                f"line {error.lineno} of {self.name} is not well-formed XML ({expat.ErrorString(error.code)}); "
                "export the file again"
            ) from error
        self._fed += len(text.encode())
        if self._fed - max(self._parser.CurrentByteIndex, 0) > MAX_TAG:
            raise DataError(
                f"{self.name} has a tag of more than {MAX_TAG:,} bytes, so it is not a {self.dialect.name} file"
            )

    def _refuse_entity(self, entity: str, *rest: Any) -> None:
        raise DataError(
            f"line {self._parser.CurrentLineNumber} of {self.name} declares an entity ({entity[:40]!r}), "
            "which could expand without end; remove it"
        )

    def _note_entity(self, entity: str, is_parameter: bool) -> None:
        if self._segment is not None:
            sentence = f"has an undefined entity (&{entity[:40]};); write the character itself"
            self._problem = self._problem or TextProblem("undefined entity", sentence, "".join(self._segment))

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise DataError(
                f"line {self._parser.CurrentLineNumber} of {self.name} is nested too deeply for a {self.dialect.name} file"
            )
        tag = tag.lower()
        if self._depth == 1 and tag not in self.dialect.first:
            raise DataError(f"{self.name} is XML but not {self.dialect.name}: its first element is {tag[:40]!r}")
        if self._depth == 1 and self.dialect is TBX:
            self._source_language = attributes.get("xml:lang", "")
        if self._segment is not None:
            if tag in _CODES or self._code_depth:
                self._code_depth, self._coded = self._code_depth + 1, True
        elif tag == "header":
            self._source_language = attributes.get("srclang", "")
        elif tag in self.dialect.unit:
            self._line, self._texts, self._problem = self._parser.CurrentLineNumber, {}, None
        elif tag in self.dialect.variant:
            self._language = _plain(attributes.get("xml:lang", attributes.get("lang", "")))
        elif tag == self.dialect.text:
            self._segment, self._characters, self._coded = [], 0, False

    def _text(self, text: str) -> None:
        if self._segment is None or self._code_depth:
            return
        self._characters += len(text)
        if self._characters <= MAX_LINE_CHARS:
            self._segment.append(text)
        else:
            self._problem = self._problem or long_text(self._characters, "".join(self._segment))

    def _end(self, tag: str) -> None:
        self._depth -= 1
        tag = tag.lower()
        if self._code_depth:
            self._code_depth -= 1
        elif tag == self.dialect.text and self._segment is not None:
            text, self._segment = "".join(self._segment), None
            if self._coded:
                self.report.mend(MARKUP)
            if _INVALID in text:
                sentence = "has a segment that is not UTF-8; convert the file to UTF-8, for example with iconv"
                self._problem = self._problem or TextProblem("not UTF-8", sentence, text.replace(_INVALID, "\ufffd"))
            if self._language in self._texts and self.dialect.several:
                self._texts[self._language] += SEVERAL + text
            elif len(self._texts) < MAX_LANGUAGES:
                self._texts.setdefault(self._language, text)
        elif tag in self.dialect.unit:
            self.rows.append(Row(self._line, self._problem or self._pair()))

    def _pair(self) -> Pair | TextProblem:
        source, target = self.languages = self.languages or self._default_languages()
        one, other = _in_language(self._texts, source), _in_language(self._texts, target)
        if one is not None and other is not None:
            return Pair(one, other)
        missing = source if one is None else target
        has = ", ".join(map(repr, self._texts)) or "none"
        return TextProblem(
            f"no text in {missing!r}",
            f"has a unit without a text in {missing!r} (it has {has})",
            one or other or next(iter(self._texts.values()), ""),
            expected=True,
        )

    def _default_languages(self) -> tuple[str, str]:
        """Return the source language of the header and the only other language of the unit."""
        others = [language for language in self._texts if not _matches(self._source_language, language)]
        if len(self._texts) != 2 or len(others) != 1:
            raise DataError(
                f"line {self._line} of {self.name} has texts in {', '.join(map(repr, self._texts)) or 'no language'}, "
                f"and the header names {self._source_language!r} as the source; "
                'name the languages, as in columns = ["en", "de"]'
            )
        return _plain(self._source_language), others[0]


def _plain(language: str) -> str:
    return language.strip().lower().replace("_", "-")[:40]


def _matches(wanted: str, language: str) -> bool:
    """Whether two languages are the same, or one is the other without its region."""
    wanted, language = _plain(wanted), _plain(language)
    return wanted == language or language.startswith(f"{wanted}-") or wanted.startswith(f"{language}-")


def _in_language(texts: dict[str, str], wanted: str) -> str | None:
    """Return the text in a language: of the same name if there is one, else of the first that matches."""
    if _plain(wanted) in texts:
        return texts[_plain(wanted)]
    return next((text for language, text in texts.items() if language and _matches(wanted, language)), None)


def _decoded(stream: io.BufferedReader, name: str, report: TextReport) -> Iterator[str]:
    """Yield the text in blocks, without characters that XML does not allow."""
    decode = _decoder(stream, name)
    held = ""
    while block := stream.read(_BLOCK):
        text = held + decode(block, False)
        # A reference such as &#31; may continue in the next block.
        cut = text.rfind("&", max(len(text) - 12, 0))
        text, held = (text[:cut], text[cut:]) if cut >= 0 else (text, "")
        yield _allowed(text, report)
    yield _allowed(held + decode(b"", True), report)


def _allowed(text: str, report: TextReport) -> str:
    allowed = _REFERENCE.sub(_allowed_reference, _NOT_XML.sub(" ", text))
    if allowed != text:
        report.mend(NOT_XML)
    return allowed


def _allowed_reference(found: re.Match[str]) -> str:
    code = int(found[1], 16) if found[1] else int(found[2])
    allowed = code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
    return found[0] if allowed else " "


def _decoder(stream: io.BufferedReader, name: str) -> Any:
    """Return a function that decodes the blocks of the stream."""
    start = stream.peek(200)[:200]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return codecs.getincrementaldecoder("utf-16")(errors="replace").decode
    declared = _ENCODING.match(start)
    encoding = declared[1].decode().lower() if declared else "utf-8"
    if encoding not in _ENCODINGS:
        raise DataError(f"{name} is encoded in {encoding!r}; convert it to UTF-8, for example with iconv")
    if encoding in ("iso-8859-1", "windows-1252"):
        return codecs.getincrementaldecoder(encoding)(errors="replace").decode
    return _Utf8(name).decode


class _Utf8:
    """Decodes UTF-8 in blocks, and puts a mark in place of bytes that are not UTF-8."""

    def __init__(self, name: str) -> None:
        self.name, self._rest, self._begun = name, b"", False

    def decode(self, block: bytes, final: bool) -> str:
        block, self._rest = self._rest + block, b""
        if not self._begun:
            block, self._begun = block.removeprefix(codecs.BOM_UTF8), True
        parts: list[str] = []
        while True:
            try:
                return "".join([*parts, block.decode()])
            except UnicodeDecodeError as error:
                parts.append(block[: error.start].decode())
                if not final and len(block) - error.start < 4 and error.end == len(block):
                    self._rest = block[error.start :]
                    return "".join(parts)
                if len(parts) > 2 * MAX_INVALID:
                    raise DataError(f"{self.name} is not UTF-8; convert it, for example with iconv") from error
                parts.append(_INVALID)
                block = block[error.end :]
