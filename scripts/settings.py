"""Write docs/settings.md: every key of every table of a recipe, from the structs that read it and their comments.

    .venv/bin/python scripts/settings.py

A field's meaning is the comment on its line, or the comment above it.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from regard.config import (
    AugmentConfig,
    Bitext,
    DataConfig,
    EvaluateConfig,
    Recipe,
    SearchOptions,
    Struct,
    TokenizerConfig,
    TokenizerSide,
    TrainConfig,
)
from regard.metrics import METRICS
from regard.models import MODELS
from regard.text.generators import GENERATORS, NoOptions
from regard.toml import dump_toml

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """# Every setting of a recipe
This page is made from the code by `scripts/settings.py`. A recipe is a TOML file; [guide.md](guide.md) explains how to
write one. Any key can be set on the command line by its dotted path, as in `train.steps=500`. `regard train RECIPE --show`
prints all keys of a recipe with their values. A key without a default is required; an unset one is left out.
"""
NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "unset", Any: "any value"}


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    parts += section("Top level", Recipe, "Keys above the first table, and the tables.")
    parts += section("[data]", DataConfig)
    parts += section("Text: data.train, data.valid, data.test.NAME", Bitext)
    parts += section("[data.augment]", AugmentConfig)
    parts += section("[tokenizer]", TokenizerConfig)
    parts += section("[tokenizer.source] and [tokenizer.target]", TokenizerSide)
    parts += section("[train]", TrainConfig)
    parts += section("[decode]", SearchOptions)
    parts += section("[evaluate]", EvaluateConfig)
    parts += metrics()
    parts.append("\n## [model]\nThe keys depend on `model.kind`, which is required.")
    for kind in MODELS.names():
        family = MODELS.get(kind, where="kind")
        parts += section(f"kind = {kind!r}".replace("'", '"'), family.config, f"For {family.task}.", level="###")
        for name, preset in family.presets.items():
            keys = dump_toml(dict(preset)).replace("\n", ", ") or "the defaults"
            parts.append(f'- `preset = "{name}"`: {f"`{keys}`" if preset else keys}')
    parts.append('\n## Options of built-in corpora\n`data.train = { generate = "NAME/train", options = { ... } }`')
    for name, generator in GENERATORS.items():
        if generator.options is not NoOptions:
            parts += section(name, generator.options, level="###")
    plain = [f"`{name}`" for name, generator in GENERATORS.items() if generator.options is NoOptions]
    parts.append(f"\nWithout options: {', '.join(plain)}.")
    return "\n".join(parts) + "\n"


def section(title: str, struct: type[Struct], more: str = "", *, level: str = "##") -> list[str]:
    """Return the heading and the table of one struct."""
    meanings = comments(struct)
    about = " ".join(filter(None, [more, first_sentence(struct)]))
    lines = [f"\n{level} {title}\n{about}\n", "| key | type | default | meaning |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(struct):
        if field.name not in struct.per_call:
            kind, meaning = kind_of(field.type), meanings.get(field.name, "")
            lines.append(
                f"| `{field.encode_name}` | {kind} | {default(field)} | {meaning.replace('|', chr(92) + '|')} |"
            )
    return lines


def metrics() -> list[str]:
    """Return the heading and the table of metrics."""
    lines = ["\n## Metrics"]
    lines += ["Names for `train.metric`, `evaluate.metrics`, and the `metric` of a study. Outputs decide which fit.\n"]
    lines += ["| name | score | better | outputs |", "|---|---|---|---|"]
    for one in (METRICS.get(name, where="metric") for name in METRICS.names()):
        if one.function is None:
            continue
        unit, better = f" ({one.unit})" if one.unit else "", "higher" if one.higher_is_better else "lower"
        more = "; only where `evaluate.metrics` names it" if one.on_demand else ""
        lines.append(f"| `{one.name}` | {one.label}{unit} | {better} | {', '.join(one.compares)}{more} |")
    lines.append(
        "\nThree others are computed from probabilities, and lower is better: `loss`, of the dev set, for `train.metric`; "
        "`perplexity` for the `metric` of a study, and for `train.metric` of a language model; `word_perplexity` for both, "
        "of a language model."
    )
    return lines


def first_sentence(struct: type[Struct]) -> str:
    text = " ".join((struct.__doc__ or "").split())
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


def kind_of(kind: Any) -> str:
    """Return a type in words."""
    if kind in NAMES:
        return NAMES[kind]
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{value!r}`".replace("'", '"') for value in inside)
    if origin in (Union, types.UnionType):
        return " or ".join(kind_of(one) for one in inside if one is not type(None))
    if origin is tuple and inside[-1:] == (...,):
        return f"list of {kind_of(inside[0])}"
    if origin is tuple:
        return f"[{', '.join(kind_of(one) for one in inside)}]"
    return "table"


def default(field: Any) -> str:
    """Return the default of a field as TOML."""
    value = getattr(field.default, "value", field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT:
        return ""
    if value is None:
        return "unset"
    if isinstance(value, Mapping | Struct):
        return "defaults" if isinstance(value, Struct) else "empty"
    return "`" + dump_toml({"x": value}).removeprefix("x = ") + "`"


def comments(struct: type[Struct]) -> dict[str, str]:
    """Return the comment of each field, those of its bases included."""
    found: dict[str, str] = {}
    for one in reversed(struct.__mro__):
        if not issubclass(one, Struct) or one is Struct:
            continue
        lines = inspect.getsource(one).splitlines()
        body = ast.parse("\n".join(lines)).body[0]
        assert isinstance(body, ast.ClassDef)
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comment = comment_of(lines, node)
                if comment:
                    found[node.target.id] = comment
    return found


def comment_of(lines: list[str], node: ast.AnnAssign) -> str:
    """Return what stands behind a statement, within it, or in the lines above it."""
    assert node.end_lineno is not None
    own = [re.search(r"#\s+(.*)$", line) for line in lines[node.lineno - 1 : node.end_lineno]]
    inside = [match.group(1) for match in own if match]
    above: list[str] = []
    at = node.lineno - 2
    while lines[at].strip().startswith("# "):
        above.insert(0, lines[at].strip().removeprefix("# "))
        at -= 1
    return " ".join(inside or above)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
