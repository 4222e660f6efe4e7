"""All commands of `regard`, one file per command."""

from __future__ import annotations

from typing import Annotated

import typer

import regard
from regard.cli import (
    ablate,
    adapt,
    align,
    bench,
    calibrate,
    card,
    compare,
    data,
    demo,
    distill,
    doctor,
    evaluate,
    export,
    import_model,
    learn,
    look,
    probe,
    report,
    score,
    serve,
    study,
    train,
    translate,
    tune,
    verify,
)

app = typer.Typer(
    name="regard",
    help="Sequence-to-sequence with attention: train, translate, evaluate, explain and serve.\n\nStart with:  regard demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Declare the options that stand before a command; callbacks of the options do the work."""


for module in (
    demo,
    train,
    translate,
    align,
    evaluate,
    compare,
    score,
    calibrate,
    card,
    look,
    report,
    serve,
    adapt,
    distill,
    ablate,
    tune,
    export,
    verify,
    doctor,
):
    app.command(cls=getattr(module, "CommandClass", None))(getattr(module, module.__name__.rsplit(".", 1)[-1]))
app.command("import")(import_model.import_model)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.add_typer(learn.app, name="learn")
app.add_typer(probe.app, name="probe")
app.add_typer(study.app, name="study")
