"""Common calls of `regard translate` without the library that parses and explains all others, which takes longer to import.

A call that is not understood here, or not well-formed, is left to `regard.cli.commands`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FLAGS = {"--int8": "int8", "--json": "as_json"}
NUMBERS = {"--beam": "beam", "--nbest": "nbest", "--threads": "threads"}
WORDS = {"--to": "to", "--device": "device", "--engine": "engine"}
ENGINES = ("auto", "engine", "torch")


class QuickCall(NamedTuple):
    """The arguments of `regard translate` that are understood here."""

    run: Path
    file: str = "-"
    beam: int | None = None
    nbest: int = 1
    threads: int = 0
    to: str | None = None
    device: str = "auto"
    engine: Any = "auto"
    int8: bool = False
    as_json: bool = False


def parse_quickly(words: Sequence[str]) -> QuickCall | None:
    """Return the arguments of a call, the name of the command first; None: it is not one of these calls."""
    if not words or words[0] != "translate":
        return None
    places: list[str] = []
    options: dict[str, Any] = {}
    rest = list(words[1:])
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in FLAGS and not equals:
            options[FLAGS[name]] = True
        elif name in NUMBERS or name in WORDS:
            if not equals:
                if not rest:
                    return None
                value = rest.pop(0)
            if name in NUMBERS and not (value.isascii() and value.isdecimal()):
                return None
            options[(NUMBERS | WORDS)[name]] = int(value) if name in NUMBERS else value
        elif name.startswith("-") or not name:
            return None
        else:
            places.append(name + equals + value)
    if not 1 <= len(places) <= 2 or options.get("engine", "auto") not in ENGINES:
        return None
    return QuickCall(Path(places[0]), places[1] if len(places) == 2 else "-", **options)


def run_quickly(words: Sequence[str]) -> bool:
    """Run a call of `regard translate` if it is understood here, and return whether it was."""
    call = parse_quickly(words)
    if call is None:
        return False
    from regard.cli.translate_run import translate_run

    translate_run(
        call.run,
        call.file,
        {"beam": call.beam, "nbest": call.nbest, "token_scores": call.as_json or None},
        to=call.to,
        device=call.device,
        engine=call.engine,
        int8=call.int8,
        threads=call.threads,
        as_json=call.as_json,
    )
    return True
