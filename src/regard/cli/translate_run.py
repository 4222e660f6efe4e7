"""What `regard translate` does, once its arguments are known."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.cli.paths import note_unfinished
from regard.cli.terminal import Terminated, print_message, print_warning
from regard.cli.translated_lines import Lines, OutputFile, file_digest
from regard.config import SearchPrecision
from regard.errors import ConfigError
from regard.loading import EngineChoice, load_translator
from regard.run.finding import find_run


def translate_run(
    run: Path,
    file: str,
    search: Mapping[str, Any],
    *,
    output: Path | None = None,
    to: str | None = None,
    tag: str | None = None,
    pivot: str | None = None,
    glossary: Path | None = None,
    rescorer: Path | None = None,
    reverse: Path | None = None,
    ensemble: Sequence[Path] = (),
    device: str = "auto",
    engine: EngineChoice = "auto",
    int8: bool = False,
    precision: SearchPrecision = "auto",
    threads: int = 0,
    json_input: bool = False,
    as_json: bool = False,
) -> None:
    """Translate the lines of a file, or of standard input ("-"), to a file or to standard output.

    `search` are options of search; those that are None are the recipe's.
    """
    # An n-best list counts its lines from 0, as that of Moses does, and so do warnings about it.
    moses = search["nbest"] > 1 and not as_json
    warn = _warn_of_list if moses else print_warning
    translator = (
        load_translator(
            run,
            "translate",
            device=device,
            warn=warn,
            rescorer=rescorer,
            reverse=reverse,
            ensemble=ensemble,
            int8=int8,
            engine=engine,
            threads=threads,
            precision=precision,
        )
        .into(to, tag=tag, pivot=pivot)
        .with_glossary(glossary)
    )
    note_unfinished([run, *ensemble])
    options = translator.options.replace(**search)
    lines = Lines(translator, options, file, json_input=json_input, as_json=as_json, first=0 if moses else 1, warn=warn)
    if output is None:
        lines.translate(sys.stdout)
        return
    if file == "-" or moses:
        raise ConfigError("an OUTPUT file needs an INPUT file (not standard input); with --nbest it also needs --json")
    given = {name: value for name, value in search.items() if value is not None}
    named = {"run": run, "rescorer": rescorer, "reverse": reverse}
    named |= {f"ensemble {place}": one for place, one in enumerate(ensemble, start=2)}
    models = {name: find_run(one).weights_digest() for name, one in named.items() if one is not None}
    files = {"input": file_digest(file), **({"glossary": file_digest(str(glossary))} if glossary else {})}
    more = {"to": to, "pivot": pivot, "tag": tag, "int8": int8, "json": as_json, "json_input": json_input}
    # Engines and precisions round another way, so that a line may have another translation.
    target = OutputFile(output, {**models, **files, **given, **more, "engine": engine, "precision": precision})
    stream, done = target.begin()
    with stream:
        try:
            lines.translate(stream, skip=done)
        except (KeyboardInterrupt, Terminated):
            print_message(f"translations are kept in {target.part}; the same command continues")
            raise
    target.finish()


def _warn_of_list(text: str) -> None:
    print_warning(f"{text} (counted from 0, as in the list)")
