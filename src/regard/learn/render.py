"""Markdown to HTML: code in colours, lines of the source by name, live figures, formulas, and pairs of paragraphs.

Directives are fenced blocks: `include FILE NAME`, `live FIGURE`, `drawing NAME` (with captions by language), `run` (Python
that the tests run), `output` (what it prints), `results FILE` (a table of our results), `formula`, `hint` (Markdown that a
click opens), and in a translation `same`, which stands for the block of the original.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from regard.errors import ConfigError
from regard.learn.html_parts import code_html, drawing_html, figure_html, formula_html, in_languages, label
from regard.learn.results_table import results_table
from regard.learn.sources import excerpt

NO_TEXT = ("include", "live", "drawing", "results", "same")  # whose lines are options
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
WIDE = re.compile(
    r"[\u3000-\u9fff\uff00-\uffef]{2}|[\u3000-\u303f\uff00-\uffef].|.[\u3000-\u303f\uff00-\uffef]"
)  # no space

Link = Callable[[str], str]  # what a page writes to the address in the site; raises ConfigError


class Heading(NamedTuple):
    """A heading of a page."""

    level: int
    anchor: str
    texts: dict[str, str]  # by language


@dataclass
class Rendered:
    """A page as HTML, and what navigation and search need of it."""

    html: str = ""
    headings: list[Heading] = field(default_factory=list)
    sections: list[tuple[str, str]] = field(default_factory=list)  # anchor and plain text
    figures: list[str] = field(default_factory=list)
    translated: bool = False

    @property
    def titles(self) -> dict[str, str]:
        return self.headings[0].texts if self.headings else {"en": ""}


@dataclass
class Block:
    """A block of the top level."""

    tokens: list[Token]

    @property
    def kind(self) -> str:
        first = self.tokens[0]
        return first.tag if first.type == "heading_open" else first.type.removesuffix("_open")

    @property
    def directive(self) -> str:
        """The first word behind the fence."""
        return self.tokens[0].info.split(" ")[0] if self.kind == "fence" else ""

    @property
    def text(self) -> str:
        """What a reader sees, without marks."""
        parts = []
        for token in self.tokens:
            if token.type == "inline":
                parts.append("".join(" " if one.type == "softbreak" else one.content for one in token.children or []))
            elif token.type in ("fence", "code_block") and self.directive not in NO_TEXT:
                parts.append(token.content)
        return " ".join(parts).replace("$", "")


def split_blocks(text: str) -> list[Block]:
    """Return the blocks of the top level."""
    blocks: list[Block] = []
    depth = 0
    for token in MARKDOWN.parse(text):
        if depth == 0:
            blocks.append(Block([]))
        token.children = _without_breaks(token.children) if token.children else token.children
        blocks[-1].tokens.append(token)
        depth += token.nesting
    return blocks


def _without_breaks(children: list[Token]) -> list[Token]:
    """Leave out ends of lines within Chinese text, which browsers would show as spaces.

    A space between bold text that ends in wide punctuation and Chinese is needed in Markdown, and is left out as well.
    """
    kept = []
    for at, one in enumerate(children):
        before = next((other.content for other in children[at - 1 :: -1] if other.content), "") if at else ""
        after = next((other.content for other in children[at + 1 :] if other.content), "")
        joined = WIDE.match(before[-1:] + after[:1])
        if one.type == "text" and re.match(r" [\u4e00-\u9fff]", one.content) and WIDE.match(before[-1:] + " "):
            one.content = one.content[1:]
        if one.type != "softbreak" or not joined:
            kept.append(one)
    return kept


def render(text: str, *, link: Link, name: str, translation: str | None = None, formulas: bool = True) -> Rendered:
    """Return a page as HTML. `translation` has the same blocks in the other language; ConfigError says where not."""
    page = Rendered(translated=translation is not None)
    ours = split_blocks(text)
    others = ours if translation is None else _paired(name, ours, split_blocks(translation))
    writer = _Writer(link, page, name, formulas)
    anchors: set[str] = set()
    parts = []
    for block, other in zip(ours, others, strict=True):
        pair = {"en": block} if other is block else {"en": block, "zh": other}
        if block.kind.startswith("h") and block.kind[1:].isdigit():
            anchor = _unused(slug(block.text), anchors)
            page.headings.append(Heading(int(block.kind[1:]), anchor, {lang: one.text for lang, one in pair.items()}))
            page.sections.append((anchor, ""))
            parts.append(writer.heading(pair, anchor))
        else:
            parts.append(writer.block(pair))
        before = page.sections.pop() if page.sections else ("", "")
        page.sections.append((before[0], " ".join([before[1], *(one.text for one in pair.values())]).strip()))
    page.html = "\n".join(parts)
    return page


def _paired(name: str, ours: Sequence[Block], others: Sequence[Block]) -> list[Block]:
    """Return the blocks of a translation, with our own in place of `same`."""
    found = []
    for number, (block, other) in enumerate(zip(ours, others, strict=False), 1):
        same = other.directive == "same" and block.kind == "fence"
        repeated = block.kind == "fence" and block.text == other.text and block.text != ""
        if not same and (block.kind, block.directive) != (other.kind, other.directive):
            raise ConfigError(
                f"{name}: block {number} is {block.kind} in en and {other.kind} in zh: "
                f"{block.text[:40]!r}, {other.text[:40]!r}"
            )
        found.append(block if same or repeated else other)
    if len(ours) != len(others):
        number = min(len(ours), len(others)) + 1
        longer, lang = (ours, "en") if len(ours) > len(others) else (others, "zh")
        text = longer[number - 1].text[:40]
        raise ConfigError(
            f"{name}: en has {len(ours)} blocks and zh {len(others)}; block {number} is in {lang} alone: {text!r}"
        )
    return found


class _Writer:
    def __init__(self, link: Link, page: Rendered, name: str, formulas: bool) -> None:
        self.link, self.page, self.name, self.formulas = link, page, name, formulas

    def heading(self, pair: dict[str, Block], anchor: str) -> str:
        tag = pair["en"].kind
        inside = {
            lang: MARKDOWN.renderer.render(self.prepared(one)[1:2], MARKDOWN.options, {}) for lang, one in pair.items()
        }
        mark = f'<a class="anchor" href="#{anchor}" {label("Link to this section", "本节的链接")}>#</a>'
        return f'<{tag} id="{anchor}">{in_languages(inside, "span")} {mark}</{tag}>'

    def block(self, pair: dict[str, Block]) -> str:
        if "zh" not in pair or pair["zh"] is pair["en"]:
            return self.one(pair["en"])
        made = {lang: self.one(one) for lang, one in pair.items()}
        return made["en"] if made["en"] == made["zh"] else f'<div class="pair">{in_languages(made, "div")}</div>'

    def one(self, block: Block) -> str:
        token = block.tokens[0]
        if block.kind == "fence":
            return self.fence(token)
        if block.kind == "code_block":
            return code_html(token.content, "text")
        made = MARKDOWN.renderer.render(self.prepared(block), MARKDOWN.options, {})
        made = re.sub(r' style="text-align:(\w+)"', r' class="\1"', made)  # the policy of a page refuses the attribute
        return (
            f'<div class="scroll" tabindex="0" role="group" {label("Table", "表格")}>{made}</div>'
            if block.kind == "table"
            else made
        )

    def prepared(self, block: Block) -> list[Token]:
        """Return the tokens with addresses of the site, and formulas."""
        for token in block.tokens:
            made: list[Token] = []
            for one in token.children or []:
                if one.type == "link_open":
                    one.attrSet("href", self.link(str(one.attrGet("href"))))
                elif one.type == "image":
                    one.attrSet("src", self.link(str(one.attrGet("src"))))
                    one.attrSet("loading", "lazy")
                made += _with_formulas(one) if one.type == "text" and self.formulas else [one]
            if token.children:
                token.children = made
            if token.type == "fence":  # inside a list
                token.type, token.content = "html_block", self.fence(token)
        return block.tokens

    def fence(self, token: Token) -> str:
        kind, *words = token.info.split() or ["text"]
        if kind == "include":
            if len(words) != 2 or token.content.strip():
                raise ConfigError(f"{self.name}: write ```include FILE NAME, and nothing inside")
            found = excerpt(*words)
            lines = {"en": f"lines {found.first} to {found.last}", "zh": f"第 {found.first} 到 {found.last} 行"}
            source = f'<a href="{self.link(f"/{found.path}")}">{found.path}</a>, {in_languages(lines, "span")}'
            return f'<figure class="source">{code_html(found.text, "python")}<figcaption>{source}</figcaption></figure>'
        if kind == "live":
            self.page.figures.append(words[0])
            return figure_html(words[0], token.content)
        if kind == "drawing":
            return drawing_html(words[0], token.content)
        if kind == "results":
            table = self.one(split_blocks(results_table(words[0], token.content))[0])
            source = f'<a href="{self.link(f"/{words[0]}")}">{words[0]}</a>'
            return f'<figure class="results">{table}<figcaption>{source}</figcaption></figure>'
        if kind == "formula":
            return f'<p class="formula">{formula_html(token.content.strip())}</p>'
        if kind == "hint":
            inside = render(token.content, link=self.link, name=self.name, formulas=self.formulas).html
            title = " ".join(words) or in_languages({"en": "Hint", "zh": "提示"}, "span")
            return f"<details><summary>{title}</summary>{inside}</details>"
        if kind == "output":
            return f'<figure class="output"><pre tabindex="0">{html.escape(token.content)}</pre></figure>'
        if kind == "same":
            raise ConfigError(f"{self.name}: `same` is for translations")
        return code_html(token.content, "python" if kind == "run" else kind)


def _with_formulas(token: Token) -> list[Token]:
    """Split a text at its formulas, which are between dollars."""
    parts = re.split(r"\$([^$]+)\$", token.content)
    made = []
    for number, part in enumerate(parts):
        one = Token("html_inline" if number % 2 else "text", "", 0)
        one.content = f'<span class="formula">{formula_html(part)}</span>' if number % 2 else part
        made.append(one)
    return made


def slug(text: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def _unused(anchor: str, used: set[str]) -> str:
    found, number = anchor, 0
    while found in used:
        number += 1
        found = f"{anchor}-{number}"
    used.add(found)
    return found
