"""Protected spans: what a model cannot know and must copy, such as a URL, a number, an emoji or an inline tag.

Each span is replaced by a placeholder, a symbol that the tokenizer never splits, and put back after translation:

    Open <b>{file}</b>!   →   Open ⟦1⟧ ⟦2⟧ ⟦3⟧!   →   Öffne ⟦1⟧ ⟦2⟧ ⟦3⟧!   →   Öffne <b>{file}</b>!

A placeholder is separated from the words next to it, so that they are split into subwords as usual; these spaces are
removed again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from regard.text.tokenizer import Tokenizer

MOST_PLACEHOLDERS = 20  # of one text; further spans are left to the model
PLACEHOLDERS = tuple(f"⟦{number}⟧" for number in range(1, MOST_PLACEHOLDERS + 1))

_EMOJI = "[\u203c-\u3299\U0001f000-\U0001faff]"
# Symbols in that range that are text: arrows and mathematics, CJK punctuation and kana.
_NO_EMOJI = "[\u2070-\u21a8\u21ab-\u22ff\u3001-\u302f\u3031-\u303c\u303e-\u3296]"
# The first kind that fits counts. Repetitions are bounded, so that the time is linear in the length of a text.
KINDS = {
    "placeholder": r"⟦\d{1,3}⟧",
    "code": r"`[^`\n]{1,200}`",
    "url": r"(?:https?|ftp)://[^\s<>\"“”]{1,1000}|\bwww\.[^\s<>\"“”]{1,1000}",
    "e-mail": r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "tag": r"</?[A-Za-z][\w:-]{0,50}(?:\s[^<>]{0,500})?/?>|&(?:[A-Za-z]{2,12}|#\d{1,7}|#x[\dA-Fa-f]{1,6});",
    "format": r"%(?:\(\w{1,50}\)|\d{1,2}\$)?[-+#0]{0,3}\d{0,4}(?:\.\d{1,4})?(?:l{1,2}|h)?[sdiufgGeExXoc@](?!\w)",
    "variable": r"\$?\{\{?\s?[\w.:,#!|-]{0,64}\s?\}?\}|\$[A-Za-z_]\w{0,50}(?!\w)|(?<![\w%])%\w{1,50}%(?!\w)",
    "number": r"(?<![\w.,])[$€£¥]?[+\-−]?\d{1,50}(?:[.,:/\-–]\d{1,50}){0,20}(?:\s?%|[€£¥])?(?![\w@])",
    "emoji": f"(?!{_NO_EMOJI})(?:{_EMOJI}[\ufe0f\u200d\U0001f3fb-\U0001f3ff]{{0,3}}){{1,10}}",
}
_NAMES = tuple(KINDS)
# What every span has; most texts have nothing of it.
_HINT = re.compile("[0-9@<&%{$`⟦\u203c-\u3299\U0001f000-\U0001faff]|://|www\\.|[^\x00-\x7f](?<=\\d)")
_PLACEHOLDER = re.compile(r"⟦([1-9]\d?)⟧")
# Marks at the end of a sentence or a clause, and closing brackets, do not belong to a URL.
_AFTER_URL = ".,;:!?'\"»“)]}…"


@cache
def _span_pattern() -> re.Pattern[str]:
    # Compiled when a text has a hint of a span: it takes longer than a translation.
    return re.compile("|".join(f"(?P<k{number}>{pattern})" for number, pattern in enumerate(KINDS.values())))


@dataclass(frozen=True)
class Span:
    """A part of a text that must come back as it is."""

    kind: str
    text: str
    start: int
    joined_before: bool = False  # whether a word or another span touches it
    joined_after: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Masked:
    """A text with placeholders, and the spans that they stand for, in their order."""

    text: str
    spans: tuple[Span, ...]

    def mask_output(self, output: str) -> str:
        """Return an output with placeholders in place of the spans that it has: what `restore` was given."""
        unused: dict[str, list[tuple[Span, str]]] = {}
        for span, placeholder in zip(self.spans, PLACEHOLDERS, strict=False):
            unused.setdefault(span.text, []).append((span, placeholder))
        pattern = "|".join(_alone(text) for text in sorted(unused, key=len, reverse=True))
        found: list[tuple[Span, str]] = []
        for match in re.finditer(pattern, output) if pattern else ():
            if unused[match[0]]:
                span, placeholder = unused[match[0]].pop(0)
                # `restore` has removed the spaces next to it as the source says.
                before, after = output[: match.start()][-1:], output[match.end() :][:1]
                joined = span.joined_before and not before.isspace(), span.joined_after and not after.isspace()
                found.append((Span(span.kind, span.text, match.start(), *joined), placeholder))
        return _replaced(output, found)

    @property
    def unprotected(self) -> str:
        """The text without its spans."""
        return _PLACEHOLDER.sub(" ", self.text)

    def display(self, token: str) -> str:
        """Return a token as it is displayed: a placeholder as the span that it stands for, another one as it is."""
        found = _PLACEHOLDER.fullmatch(token)
        number = int(found[1]) if found else 0
        return self.spans[number - 1].text if 1 <= number <= len(self.spans) else token

    def restore(self, output: str) -> str:
        """Return the output with the spans in place of their placeholders."""
        parts = _PLACEHOLDER.split(output)  # text, number, text, number, ..., text
        for place in range(1, len(parts), 2):
            number = int(parts[place])
            if number > len(self.spans):
                parts[place] = f"⟦{number}⟧"
                continue
            span = self.spans[number - 1]
            parts[place] = span.text
            if span.joined_before:
                parts[place - 1] = parts[place - 1].removesuffix(" ")
            if span.joined_after:
                parts[place + 1] = parts[place + 1].removeprefix(" ")
        return "".join(parts)


def _alone(span: str) -> str:
    """Return the pattern of a span that is not a part of a longer word, number or address."""
    before = r"(?<![\w@])(?<!\d[.,:/–-])" if span[0].isalnum() else ""
    after = r"(?![\w@/])(?![.,:–-]\d)" if span[-1].isalnum() else ""
    return f"{before}{re.escape(span)}{after}"


def find_spans(text: str, keep: Sequence[str] = ()) -> list[Span]:
    """Return the protected spans of a text, in order. `keep` are further parts of it that are protected."""
    found: list[Span] = []
    if not keep and _HINT.search(text) is None:
        return found
    position = 0
    for kind, start, span in sorted(_kept(text, keep), key=lambda one: one[1]) if keep else ():
        found += _known_spans(text, position, start)
        found.append(Span(kind, span, start))
        position = start + len(span)
    found += _known_spans(text, position, len(text))
    return [_with_neighbours(text, span, before, after) for before, span, after in _triples(found)]


def _known_spans(text: str, position: int, end: int) -> list[Span]:
    """Return the spans of all kinds from a position to another."""
    found: list[Span] = []
    pattern = _span_pattern()
    while match := pattern.search(text, position, end):
        kind, span = _NAMES[int(str(match.lastgroup)[1:])], match[0]
        if kind == "url":
            span = _without_marks(span)
        position = match.start() + max(len(span), 1)
        if span.strip():
            found.append(Span(kind, span, match.start()))
    return found


def _kept(text: str, keep: Sequence[str]) -> list[tuple[str, int, str]]:
    longest_first = sorted({one.strip() for one in keep if one.strip()}, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    return [("kept", match.start(), match[0]) for match in re.finditer(pattern, text)] if pattern else []


def _triples(spans: Sequence[Span]) -> Iterator[tuple[Span | None, Span, Span | None]]:
    """Yield each span with the one before and the one after it."""
    yield from zip([None, *spans], spans, [*spans[1:], None], strict=False)


def _with_neighbours(text: str, span: Span, before: Span | None, after: Span | None) -> Span:
    """Return the span, which knows whether a word or another span touches it."""
    touches_before = before is not None and before.end == span.start
    touches_after = after is not None and after.start == span.end
    return replace(
        span,
        joined_before=touches_before or text[span.start - 1 : span.start].isalnum(),
        joined_after=touches_after or text[span.end : span.end + 1].isalnum(),
    )


def _without_marks(url: str) -> str:
    """Return a URL without the marks behind it. A closing bracket belongs to it if the URL has the opening one."""
    while url[-1] in _AFTER_URL and not (url[-1] == ")" and url.count("(") >= url.count(")")):
        url = url[:-1]
    return url


def mask(text: str, keep: Sequence[str] = ()) -> Masked:
    """Return the text with placeholders in place of its first spans."""
    spans = find_spans(text, keep)[:MOST_PLACEHOLDERS]
    return Masked(_replaced(text, list(zip(spans, PLACEHOLDERS, strict=False))), tuple(spans))


def _replaced(text: str, spans: Sequence[tuple[Span, str]]) -> str:
    """Return the text with placeholders in place of spans, separated from the words next to them."""
    parts, position = [], 0
    for span, placeholder in spans:
        before, after = (" " if joined else "" for joined in (span.joined_before, span.joined_after))
        parts += [text[position : span.start], before, placeholder, after]
        position = span.end
    return "".join([*parts, text[position:]]).replace("⟧  ⟦", "⟧ ⟦")


def lost_spans(source: str, output: str, keep: Sequence[str] = ()) -> list[str]:
    """Return the protected spans of a source that its output does not have, or not often enough."""
    wanted = Counter(span.text for span in find_spans(source, keep))
    return [text for text, count in wanted.items() if output.count(text) < count]


def placeholder_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the placeholders, or none if the tokenizer splits them."""
    found = []
    for symbol in PLACEHOLDERS:
        last = tokenizer.encode(symbol)[-1:]
        if tokenizer.tokens(last) != [symbol]:
            return []
        found += last
    return found


def common_spans(source: Sequence[Span], target: Sequence[Span]) -> list[tuple[Span, Span]]:
    """Return the spans that stand exactly once in both texts, as pairs."""
    once = {text for text, count in Counter(span.text for span in target).items() if count == 1}
    in_target = {span.text: span for span in target if span.text in once}
    in_source = Counter(span.text for span in source)
    return [(span, in_target[span.text]) for span in source if span.text in in_target and in_source[span.text] == 1]
