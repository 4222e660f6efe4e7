"""regard data prepare, regard data check"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from regard.cli.clock import clock
from regard.cli.say import console, own_name, say
from regard.cli.streams import printable
from regard.errors import ConfigError
from regard.recipe_files import find_recipe, load_recipe

if TYPE_CHECKING:
    from regard.preprocess.prepare import PrepareProgress

SECONDS_A_LINE = 10.0  # between lines of progress where there is no terminal

app = typer.Typer(help="Corpora larger than memory: text to ids on disk.", no_args_is_help=True)


@app.command()
def prepare(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or a .toml file.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings laid over the recipe.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The store's folder; data.train.store if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where data files are; or set REGARD_DATA.")] = None,
) -> None:
    """Turn a recipe's training text into ids on disk; go on where it stopped if the folder holds an unfinished store.

    A small corpus needs none of this: regard train reads it as text.

    Examples:

      regard data prepare my.toml --out ids

      regard train my.toml data.train.store=ids --out runs/mine

      zcat web.*.tsv.gz | regard data prepare my.toml 'data.train={pairs="-"}' --out ids      a stream

    It takes the text that data.train names and the tokenizer table, and all cores; memory stays the same for any size.
    Ctrl-C, SIGTERM, SIGHUP or a crash loses at most the shard being written; the same command resumes (a stream is fed
    again from its beginning).
    """
    resolved = load_recipe(recipe, overrides or [])
    place = out or (Path(resolved.data.train.store) if resolved.data.train.store else None)
    if place is None:
        raise ConfigError("name the folder that the ids go to: --out ids")
    from regard.preprocess import prepare as preparing
    from regard.text.bitext import data_folders

    with console.status("getting ready ...") as status:
        tell = (lambda text: status.update(escape(printable(text)))) if console.is_terminal else _slowly(say)
        store = preparing.prepare(
            resolved,
            place,
            folders=data_folders(data, find_recipe(recipe).parent),
            report=lambda progress: tell(describe(progress)),
        )
    info = store.info
    say(
        f"{place}: {info.pairs:,} pairs, {info.source_tokens:,} source and {info.target_tokens:,} target tokens "
        f"in {len(info.shards)} shards   try: {own_name()} train {shlex.quote(recipe)} data.train.store={place}"
    )


@app.command()
def check(store: Annotated[Path, typer.Argument(help="The folder of a store.", show_default=False)]) -> None:
    """Read a whole store and say whether every byte is as it was written.

    Examples:

      regard data check ids
    """
    from regard.data.pair_store import PairStore
    from regard.preprocess.check import problems

    opened = PairStore(store)
    found = list(problems(opened))
    for problem in found:
        say(problem)
    if found:
        raise typer.Exit(1)
    say(f"{store} is whole: {len(opened):,} pairs in {len(opened.info.shards)} shards")


def describe(progress: PrepareProgress) -> str:
    """One line: what is done, how fast, how long it will still take."""
    total = f" of {progress.total:,}" if progress.total else ""
    line = f"{progress.doing}: {progress.pairs:,}{total} pairs" if progress.pairs else f"{progress.doing} ..."
    done = progress.pairs - progress.before
    if progress.seconds and done:
        rate = done / progress.seconds
        line += f", {rate:,.0f} pairs/s"
        if progress.total:
            line += f", {clock((progress.total - progress.pairs) / rate)} left"
    return line


def _slowly(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tells the first thing of every few seconds, for logs and pipes."""
    told = 0.0

    def maybe(text: str) -> None:
        nonlocal told
        if time.monotonic() - told >= SECONDS_A_LINE:
            told = time.monotonic()
            tell(text)

    return maybe
