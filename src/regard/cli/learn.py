"""regard learn"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from regard.cli import exercises
from regard.cli.terminal import print_message

app = typer.Typer(help="Learn attention: the paper section by section, with a model in the page.")


@app.callback(invoke_without_command=True)
def learn(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write static files to this folder, and do not serve them.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port on this machine; 0 is a free one.", min=0, max=65535)] = 8008,
    lang: Annotated[str, typer.Option(help="The language that is shown first: en, zh or both.")] = "en",
) -> None:
    """Build the pages of the paper, the guides and the reference, and serve them on this machine.

    Examples:

      regard learn

      regard learn --lang both

      regard learn --out site
    """
    if context.invoked_subcommand is not None:
        return
    from regard.learn.serving import make_server
    from regard.learn.site import build

    if out is not None:
        site = build(out, lang=lang)
        print_message(f"wrote {len(site.pages)} pages to {out}; open {out / 'index.html'}")
        return
    with tempfile.TemporaryDirectory(prefix="regard-learn-") as folder, make_server(Path(folder), port) as server:
        print_message("building the pages ...")
        build(Path(folder), lang=lang)
        print_message(f"http://127.0.0.1:{server.server_address[1]}/ (Ctrl-C ends)")
        server.serve_forever()


for command in (exercises.start, exercises.check, exercises.notebook):
    app.command()(command)
