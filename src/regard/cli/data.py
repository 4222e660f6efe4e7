"""regard data prepare, regard data check"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from regard.cli.terminal import command_name, console, format_duration, print_message, printable
from regard.errors import ConfigError
from regard.messages import counted
from regard.recipe_files import load_recipe, recipe_folder

if TYPE_CHECKING:
    from regard.data.pair_store import PairStore
    from regard.preprocess.prepare import PrepareProgress

LINE_SECONDS = 10.0  # between two lines of progress without a terminal

app = typer.Typer(help="Corpora larger than memory: convert text to ids on disk.", no_args_is_help=True)


@app.command()
def prepare(
    recipe: Annotated[str, typer.Argument(help="The name of an included recipe, or a .toml file.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that replace those of the recipe.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the store. Default: data.train.store.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
) -> None:
    """Convert the training text of a recipe to ids on disk; resume if the folder holds an unfinished store.

    A corpus that fits into memory does not need this: regard train reads it as text.

    Examples:

      regard data prepare my.toml --out ids

      regard train my.toml data.train.store=ids --out runs/mine

      # from standard input
      zcat *.gz | regard data prepare my.toml 'data.train={pairs="-"}' --out ids

    Of several corpora, [[data.train]], each becomes a store: ids/0, ids/1 and so on, or the folder that its `store` names.

    Reads the text that data.train names and trains the tokenizer of the recipe. Uses all cores; the memory does not grow
    with the text. Ctrl-C, SIGTERM, SIGHUP or a crash lose at most the shard being written. The same command resumes;
    standard input must then be sent again from its beginning. With data.on_error=skip, text that cannot be used is left out
    and listed in left-out.tsv of the store (docs/corpora.md).
    """
    # Warnings are about training, and `regard train` prints them.
    resolved = load_recipe(recipe, overrides or [], warn=lambda text: None)
    corpora = resolved.data.corpora
    several = len(corpora) > 1
    if out is None and any(one.store is None for one in corpora):
        raise ConfigError("name the folder for the ids, for example: --out ids")
    places = [Path(one.store or "") if out is None else out / str(number) for number, one in enumerate(corpora)]
    places = [out] if out is not None and not several else places
    from regard.preprocess.prepare import prepare as prepare_store
    from regard.text.bitext import data_folders
    from regard.text.text_report import LEFT_OUT, summary_sentences

    with console.status("starting ...") as status:

        def update(text: str) -> None:
            status.update(escape(printable(text)))

        show = update if console.is_terminal else _rate_limited(print_message)
        stores: list[PairStore] = []
        for number, place in enumerate(places):
            store = prepare_store(
                resolved,
                place,
                folders=data_folders(data, recipe_folder(recipe)),
                report=lambda progress: show(describe(progress)),
                first=stores[0] if stores else None,
                number=number,
            )
            stores.append(store)
    keys = [f"data.train.{number}.store" if several else "data.train.store" for number in range(len(places))]
    named = " ".join(f"{key}={shlex.quote(str(place))}" for key, place in zip(keys, places, strict=True))
    for place, store in zip(places, stores, strict=True):
        info = store.info
        for sentence in summary_sentences(info.left_out, info.mended, listed=str(place / LEFT_OUT)):
            print_message(sentence)
        hint = f"   try: {command_name()} train {shlex.quote(recipe)} {named}" if store is stores[-1] else ""
        print_message(
            f"{place}: {counted(info.pairs, 'pair')}, {info.source_tokens:,} source and "
            f"{counted(info.target_tokens, 'target token')} in {counted(len(info.shards), 'shard')}{hint}"
        )


@app.command()
def check(store: Annotated[Path, typer.Argument(help="The folder of a store.", show_default=False)]) -> None:
    """Read every file of a store and compare it with the hash in its manifest.

    Exit status: 0 if the store is intact, 1 if a file is damaged.

    Examples:

      regard data check ids
    """
    from regard.data.pair_store import PairStore
    from regard.preprocess.prepare import store_problems

    opened = PairStore(store)
    found = list(store_problems(opened))
    for problem in found:
        print_message(problem)
    if found:
        raise typer.Exit(1)
    print_message(f"{store} is intact: {counted(len(opened), 'pair')} in {counted(len(opened.info.shards), 'shard')}")


def describe(progress: PrepareProgress) -> str:
    """Return one line: how much is done, how fast, and the time left."""
    pairs = counted(progress.pairs, "pair")
    if progress.total:
        pairs = f"{progress.pairs:,} of {counted(progress.total, 'pair')}"
    line = f"{progress.doing}: {pairs}" if progress.pairs else f"{progress.doing} ..."
    done = progress.pairs - progress.before
    if progress.seconds and done:
        rate = done / progress.seconds
        line += f", {rate:,.0f} pairs/s"
        if progress.total:
            line += f", {format_duration((progress.total - progress.pairs) / rate)} left"
    return line


def _rate_limited(show: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that shows at most one text every LINE_SECONDS, for logs and pipes."""
    last = 0.0

    def maybe(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            show(text)

    return maybe
