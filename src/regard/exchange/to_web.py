"""One HTML file that holds the engine, a model and its tokenizers, and translates in a browser without a network.

The page consists of the files in `web/`, the engine in WebAssembly (`scripts/web.py`), and the view of attention of
`regard.explain`. Weights are 8-bit integers with a scale per row, as `regard export --weights int8` stores them, compressed
and written in base64.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import html
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np

from regard.config import Recipe, SearchOptions
from regard.config.transformer import TransformerConfig
from regard.config.transformer_shapes import transformer_shapes
from regard.engine.loading import EngineRun
from regard.engine.model import config_struct
from regard.errors import ConfigError
from regard.exchange.sentencepiece_file import read_sentencepiece
from regard.explain.page_assets import VIEW_MODULES, asset, escape_json, join_modules
from regard.run.finding import find_run
from regard.run.tensor_file import StoredWeight
from regard.text.languages import Languages, known_languages, languages_of
from regard.text.listed_subwords import ListedSubwords
from regard.text.subwords import SubwordTokenizer
from regard.text.symbols import BOS, EOS, SymbolTokenizer
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_pair import TaggedTokenizer, Tokenizers, load_tokenizers

Tell = Callable[[str], None]
WASM = "regard.wasm"
BLOCK = 1 << 20  # characters of base64, a multiple of 4
LONGEST_SENTENCE = 200  # tokens; longer sentences are split, because a page should answer soon
# Options of search that a page has. Others of a recipe are left out.
OPTIONS = ("beam", "length_penalty", "length_penalty_kind", "early_stopping", "max_extra", "max_source", "max_length")
OTHER_OPTIONS = ("sample", "beam_groups", "mbr", "coverage_penalty", "no_repeat_ngram", "max_repeats", "min_length")
# 'wasm-unsafe-eval' allows WebAssembly alone. The worker is made from text of the page.
POLICY = (
    "default-src 'none'; script-src '{script}' 'wasm-unsafe-eval'; worker-src blob:; style-src '{style}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


class PageModel(NamedTuple):
    """What a page holds of a run."""

    name: str
    recipe: Recipe
    config: TransformerConfig
    weights: Mapping[str, StoredWeight]  # matrices of 8-bit integers, and vectors
    tokenizers: Tokenizers


def export_page(run: Path | str, out: Path | str, *, tell: Tell = lambda text: None) -> Path:
    """Write a run's model as one HTML file, and return its path. Raise ConfigError for what cannot be exported."""
    path = Path(out)
    if path.exists():
        raise ConfigError(f"{path} is there already; name another file with --out")
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path} is to be one HTML file; give it a name that ends in .html")
    model = load_page_model(run)
    options = model.recipe.decode
    left_out = [name for name in OTHER_OPTIONS if getattr(options, name) != getattr(SearchOptions(), name)]
    if left_out:
        tell(f"a page searches with beams alone; it leaves out decode.{', decode.'.join(left_out)} of the recipe")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_bytes(page_of(model))
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def load_page_model(run: Path | str) -> PageModel:
    """Return a run's model. Raise ConfigError for runs that the engine cannot search."""
    folder = find_run(run)
    found = EngineRun.read(folder)
    if isinstance(found, str):
        raise ConfigError(f"{run} cannot become a page, which has the engine: {found}")
    tokenizers, config = load_tokenizers(folder.codec_folder()), found.config
    sizes = {"source_size": tokenizers.source.size, "target_size": tokenizers.target.size}
    if config.tie == "all" and sizes["source_size"] != sizes["target_size"]:
        raise ConfigError("model.tie is 'all' but the two sides have separate vocabularies; set model.tie=target")
    stored, _ = folder.stored_weights(transformer_shapes(config, **sizes))
    weights = {name: _quantized(name, weight) for name, weight in stored.tensors()}
    return PageModel(folder.path.absolute().name, found.recipe, config, weights, tokenizers)


def _quantized(name: str, weight: StoredWeight) -> StoredWeight:
    """Return a weight as `regard export --weights int8` stores it."""
    data, scales = weight
    if data.dtype == np.int8:
        return weight
    if data.ndim < 2:
        with np.errstate(over="ignore"):
            half = data.astype(np.float16)
        if not np.isfinite(half).all():
            raise ConfigError(f"{name} has values too large for float16, which a page stores")
        return StoredWeight(half)
    data = data.astype(np.float32)
    scales = (np.abs(data).max(axis=1).clip(min=1e-12) / np.float32(127)).astype(np.float32)
    return StoredWeight(np.rint(data / scales[:, None]).astype(np.int8), scales)


# The page


class PageData(NamedTuple):
    """A model as scripts of a page read it."""

    facts: dict[str, Any]
    engine: bytes
    tokenizers: bytes
    weights: bytes


def page_data(model: PageModel, *, int8: bool = True) -> PageData:
    """Return the data of a page. Without `int8` the engine multiplies the numbers that the integers stand for."""
    tensors, weights = _tensors(model.weights)
    engine = (resources.files("regard.engine") / WASM).read_bytes()
    tokenizers = json.dumps(_tokenizers(model.tokenizers), ensure_ascii=False, separators=(",", ":")).encode()
    sizes = {"engine": len(engine), "tokenizers": len(tokenizers), "weights": len(weights)}
    languages = _languages(model)
    facts = {
        "languages": languages,
        "about": _about(model, languages),
        "options": {name: getattr(model.recipe.decode, name) for name in OPTIONS},
        "words": _words(model, int8=int8),
        "tensors": tensors,
        "sizes": sizes,
        "layers": {"encoder": model.config.num_layers, "decoder": model.config.depth},
        "heads": model.config.num_heads,
        "source_eos": model.config.source_eos,
        "max_length": model.config.max_positions if model.config.positions == "learned" else None,
        "longest_sentence": LONGEST_SENTENCE,
    }
    return PageData(facts, engine, tokenizers, weights)


def page_of(model: PageModel) -> bytes:
    """Return the page."""
    facts, engine, tokenizers, weights = page_data(model)
    languages = facts["languages"]
    style = "\n".join([asset("look.css"), asset("desk.css"), page_source("page.css")])
    # Before the data, so that it runs while they are read.
    script = f"(async () => {{\n{join_modules(*map(asset, VIEW_MODULES), page_source('page.js'))}\n}})();"
    names = ("tokenizer.js", "text.js", "engine.js", "span_search.js", "translator.js", "worker.js")
    policy = POLICY.format(script=_digest(script), style=_digest(style))
    title = f"{model.name}: {languages[0]['name']}" if len(languages) == 1 else model.name
    page = Template(page_source("page.html")).substitute(
        title=html.escape(title),
        name=html.escape(model.name),
        description=html.escape(f"Translation in the browser, {facts['about']}"),
        policy=html.escape(policy, quote=False),
        notice=_notice(model),
        style=style,
        model=escape_json(json.dumps(facts, ensure_ascii=False, separators=(",", ":"))),
        data="\n".join(_blocks("engine", engine) + _blocks("tokenizers", tokenizers) + _blocks("weights", weights)),
        worker=join_modules(*map(page_source, names)),
        script=script,
    )
    return page.encode()


def page_source(name: str) -> str:
    """Return the text of a file of the page."""
    return (resources.files("regard.exchange") / "web" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the hash of a script or a style as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _blocks(name: str, content: bytes) -> list[str]:
    """Return compressed data in elements that the page reads one by one. Browsers run no script of this type."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    text = base64.b64encode(compressor.compress(content) + compressor.flush()).decode()
    parts = [text[at : at + BLOCK] for at in range(0, len(text), BLOCK)]
    attributes = [f'type="text/plain" data-name="{name}"' + " data-last" * (part is parts[-1]) for part in parts]
    return [f"<script {some}>{part}</script>" for some, part in zip(attributes, parts, strict=True)]


def _words(model: PageModel, *, int8: bool) -> list[int]:
    """Return the numbers of RegardConfig as 32-bit integers."""
    sizes = {"source_size": model.tokenizers.source.size, "target_size": model.tokenizers.target.size}
    content = bytes(config_struct(model.config, {**sizes, "bos": BOS, "eos": EOS, "int8": int8}))
    assert len(content) % ctypes.sizeof(ctypes.c_int32) == 0, len(content)
    return list(struct.unpack(f"<{len(content) // 4}i", content))


def _tensors(weights: Mapping[str, StoredWeight]) -> tuple[list[tuple[str, str, int, int]], bytes]:
    """Return name, type, rows and columns of each weight, and the bytes of all of them. Scales are behind their matrix."""
    types = {"int8": "I8", "float16": "F16", "float32": "F32"}
    named, parts = [], []
    for name, (data, scales) in weights.items():
        rows, columns = data.shape if data.ndim == 2 else (1, data.size)
        named.append((name, types[data.dtype.name], rows, columns))
        parts += [data.tobytes(), b"" if scales is None else scales.tobytes()]
    return named, b"".join(parts)


# Facts about the model


def _languages(model: PageModel) -> list[dict[str, Any]]:
    """Return what the page can translate into: codes, a name, and the ids in front of a source."""
    languages = Languages(model.recipe.data.language_pairs)
    if not languages.several:
        found = languages_of(model.recipe.data, model.name)
        source, target = found or (None, None)
        name = f"{_language(source)} to {_language(target)}" if source and target else ""
        return [{"source": source, "target": target, "name": name, "tags": []}]
    return [
        {
            "source": None,
            "target": target,
            "name": f"to {_language(target)}",
            "tags": model.tokenizers.tag_ids(languages.tags_into(target)),
        }
        for target in languages.targets
    ]


def _language(code: str) -> str:
    return known_languages().get(code, code)


def _about(model: PageModel, languages: Sequence[Mapping[str, Any]]) -> str:
    parameters = sum(weight.data.size for weight in model.weights.values())
    parts = [languages[0]["name"] if len(languages) == 1 else "", f"{parameters / 1e6:.1f} million parameters"]
    return ", ".join(part for part in parts if part)


def _notice(model: PageModel) -> str:
    """Return the license and the source of the training data, as HTML."""
    data = model.recipe.data
    parts = [
        f"Training data: {data.attribution}." if data.attribution else "",
        f"License: {data.license}." if data.license else "",
        "Made with regard export --to web.",
    ]
    return html.escape(" ".join(part for part in parts if part))


# Tokenizers


def _tokenizers(codec: Tokenizers) -> dict[str, Any]:
    """Return the data of both tokenizers. A joint one is there once."""
    source = _tokenizer(codec.source, "source")
    return {"source": source} if codec.joint else {"source": source, "target": _tokenizer(codec.target, "target")}


def _tokenizer(tokenizer: Tokenizer, side: str) -> dict[str, Any]:
    if isinstance(tokenizer, TaggedTokenizer):
        return {**_tokenizer(tokenizer.text, side), "tags": list(tokenizer.tags)}
    if isinstance(tokenizer, SymbolTokenizer):
        return {"kind": tokenizer.kind, "symbols": tokenizer.tokens(range(EOS + 1, tokenizer.size))}
    if isinstance(tokenizer, SubwordTokenizer):
        return _subwords(tokenizer.model)
    if isinstance(tokenizer, ListedSubwords):
        return {**_subwords(tokenizer.model), "symbols": tokenizer.symbols}
    raise ConfigError(
        f"the {side} tokenizer is of the kind {tokenizer.kind!r}, which a page does not have; only models with "
        "tokenizer.kind=bpe, unigram, sentencepiece, char or word become a page"
    )


def _subwords(content: bytes) -> dict[str, Any]:
    file = read_sentencepiece(content)
    fields = file._asdict()
    names = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces", "whitespace_as_suffix")
    normalizer = {"charsmap": base64.b64encode(file.charsmap).decode(), **{name: fields[name] for name in names}}
    return {
        "kind": file.kind,
        "pieces": file.pieces,
        "scores": [float(f"{score:.9g}") for score in file.scores],  # enough digits to be the same float32
        "types": "".join(map(str, file.types)),
        "byte_fallback": file.byte_fallback,
        "unknown_surface": file.unknown_surface,
        "normalizer": normalizer,
    }
