"""The scripts of the live figures: the figures with the engine's modules, and a model in a script of its own."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

from regard.exchange.to_web import load_page_model, page_data, page_source
from regard.explain.page_assets import asset, join_modules
from regard.learn.sources import ASSETS

# Each after what it imports.
ENGINE_MODULES = ("tokenizer.js", "text.js", "engine.js", "span_search.js", "translator.js")
ENGINE_NAMES = "Engine, Translator"
LIVE_MODULES = ("registry.js", "words.js", "encoder.js", "model.js", "numbers.js", "plot.js", "sentence.js")


def live_script() -> str:
    """Return one script with all figures. A page opened from disk cannot load modules."""
    folder = ASSETS / "live"
    # The names of a figure are its own.
    figures = [f"{{\n{_text(path)}}}" for path in sorted(folder.glob("figure_*.js"))]
    ours = [*(_text(folder / name) for name in LIVE_MODULES), *figures, _text(folder / "start.js")]
    inside = join_modules(*map(page_source, ENGINE_MODULES))
    engine = f"const {{ {ENGINE_NAMES} }} = (() => {{\n{inside}\nreturn {{ {ENGINE_NAMES} }};\n}})();"
    texts = [asset("elements.js"), asset("heatmap.js"), asset("chart.js"), *ours]
    return f"(() => {{\n'use strict';\n{engine}\n{join_modules(*texts)}\n}})();\n"


def model_script(run: str) -> str:
    """Return a script that hands over a model: facts, engine, tokenizers and weights.

    Matrices are 8-bit integers, which the engine multiplies as the float32 numbers that they stand for, so that the
    figures can compute the same in JavaScript.
    """
    model = load_page_model(run)
    data = page_data(model, int8=False)
    parts = {name: _packed(getattr(data, name)) for name in ("engine", "tokenizers", "weights")}
    facts = {**data.facts, "norm_eps": model.config.norm_eps}
    given = json.dumps({"facts": facts, **parts}, ensure_ascii=False, separators=(",", ":"))
    return f"regardModel({json.dumps(run)},{given});\n"


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
