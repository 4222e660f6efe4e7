"""Parts of a page as HTML: code in colours, formulas, live figures, drawings, and text in two languages."""

from __future__ import annotations

import html
import json
import re
import tomllib
from collections.abc import Callable

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from regard.errors import ConfigError
from regard.explain.page_assets import escape_json
from regard.learn.drawing import Drawing, loss_curves
from regard.learn.family import FAMILY
from regard.learn.sources import read

DIRECTIVES = ("include", "live", "drawing", "run", "output", "results", "formula", "hint", "same")
DRAWINGS: dict[str, Callable[[], Drawing]] = {**FAMILY, "curves": loss_curves}
LANGUAGES = {"en": "en", "zh": "zh-CN"}
FORMATTER = HtmlFormatter(nowrap=True, classprefix="c-")
FORMULA = re.compile(r"([_^])(?:\{([^{}]*)\}|([\w']+))")


def formula_html(text: str) -> str:
    """Return a formula with its lower and upper indices: d_k, 10000^{2i/d}."""

    def index(found: re.Match[str]) -> str:
        tag = "sub" if found[1] == "_" else "sup"
        return f"<{tag}>{found[2] if found[2] is not None else found[3]}</{tag}>"

    return FORMULA.sub(index, html.escape(text)).replace("\n", "<br>")


def code_html(text: str, language: str) -> str:
    """Return code in colours."""
    try:
        lexer = get_lexer_by_name(language or "text")
    except ClassNotFound:
        raise ConfigError(
            f"there is no language {language!r} for code; directives are {', '.join(DIRECTIVES)}"
        ) from None
    return f'<pre class="code" tabindex="0"><code>{highlight(text, lexer, FORMATTER)}</code></pre>'


def figure_html(name: str, content: str) -> str:
    """Return the place of a live figure, which its script fills."""
    try:
        options = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the options of the figure {name} are not TOML: {error}") from None
    given = json_script(str(options.pop("json"))) if "json" in options else ""
    data = "".join(f' data-{key}="{html.escape(str(value))}"' for key, value in options.items())
    texts = {"en": "This figure needs JavaScript.", "zh": "这幅图需要 JavaScript。"}
    without = f"<noscript>{in_languages(texts, 'span')}</noscript>"
    return f'<figure class="live" data-live="{html.escape(name)}"{data}>{given}{without}</figure>'


def json_script(name: str) -> str:
    """Return a part of a JSON file of the repository for a figure: FILE#KEY.KEY."""
    path, _, keys = name.partition("#")
    value = json.loads(read(path))
    for key in keys.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ConfigError(f"{path} has no {keys}")
        value = value[key]
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f'<script type="application/json">{escape_json(text)}</script>'


def drawing_html(name: str, content: str) -> str:
    """Return a drawing with its caption, which is in TOML by language."""
    if name not in DRAWINGS:
        raise ConfigError(f"there is no drawing {name!r}; there are {', '.join(DRAWINGS)}")
    captions = tomllib.loads(content)
    texts = {lang: html.escape(text) for lang, text in captions.items()}
    drawn = DRAWINGS[name]().svg(captions["en"])
    return f'<figure class="drawn">{drawn}<figcaption>{in_languages(texts, "span")}</figcaption></figure>'


def label(english: str, chinese: str) -> str:
    """Return the attributes that name an element for a screen reader; site.js chooses the language."""
    return f'aria-label="{html.escape(english)}" data-label-zh="{html.escape(chinese)}"'


def in_languages(texts: dict[str, str], tag: str) -> str:
    """Return HTML in each language that it is there in, once if it is the same; styles show the chosen ones."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "".join(f'<{tag} class="{lang}" lang="{LANGUAGES[lang]}">{text}</{tag}>' for lang, text in texts.items())
