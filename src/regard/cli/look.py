"""regard look"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.engine_option import EngineOption
from regard.cli.paths import note_unfinished, refuse_to_replace
from regard.cli.terminal import print_message, print_warning

KINDS = "encoder, decoder, encoder-decoder"


def look(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run folder, finished or training, a checkpoint of it, or a pretrained model: de-en, en-de, zh-en.",
            show_default=False,
        ),
    ] = None,
    sentence: Annotated[str | None, typer.Argument(help="The input text.", show_default=False)] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Target language, for a multilingual model.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write. Default: look.html.")] = None,
    svg: Annotated[bool, typer.Option("--svg", help="Draw one layer as an SVG picture for a paper.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Draw one layer as a PNG picture.")] = False,
    attention: Annotated[str | None, typer.Option(help=f"With --svg or --png: {KINDS}.")] = None,
    layer: Annotated[int | None, typer.Option(help="With --svg or --png: layer, from 1. Default: the last.")] = None,
    head: Annotated[
        list[int] | None, typer.Option(help="With --svg or --png: head, from 1; repeatable. Default: the mean.")
    ] = None,
    word: Annotated[str | None, typer.Option(help="With --svg or --png: only the attention of this word.")] = None,
    heatmap: Annotated[
        bool, typer.Option("--heatmap", help="With --svg or --png: a heatmap instead of lines.")
    ] = False,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy. Default: that of the recipe.")] = None,
    alternatives: Annotated[int, typer.Option(help="Alternative tokens per position.", min=0, max=20)] = 3,
    temperature: Annotated[
        float | None, typer.Option(help="A language model draws its output; 1 is its own distribution.", min=0)
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="A language model draws from this many tokens.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the output of a language model.", min=0)] = 1,
    products: Annotated[
        bool, typer.Option("--products", help="Also write queries and keys, to see their product number by number.")
    ] = False,
    positions: Annotated[bool, typer.Option("--positions", help="Draw the position encodings of the paper.")] = False,
    schedule: Annotated[bool, typer.Option("--schedule", help="Draw the learning rate of the paper.")] = False,
    mask: Annotated[bool, typer.Option("--mask", help="Draw attention masks.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    engine: EngineOption = "auto",
) -> None:
    """Show how a model computes one output: attention of every layer and head, token probabilities, alternatives.

    Writes one HTML file that opens in any browser without a network or a server.

    Examples:

      regard look en-de "The dog did not cross the street because it was tired."

      regard look runs/dates "samedi 14 novembre 2026" --out dates.html

      # one head as a picture
      regard look en-de "I like it." --attention encoder --head 3 --word it --png

      regard look --positions --png
    """
    ending = "svg" if svg else "png" if png else "html"
    if svg and png:
        raise typer.BadParameter("choose --svg or --png")
    drawn = [name for name, wanted in (("positions", positions), ("schedule", schedule), ("mask", mask)) if wanted]
    if drawn:
        if run is not None or len(drawn) > 1:
            raise typer.BadParameter(
                "--positions, --schedule and --mask cannot be combined with each other or with a run"
            )
        _draw_paper_figure(drawn[0], out or Path(f"{drawn[0]}.{'svg' if svg else 'png'}"))
        return
    if run is None or sentence is None:
        raise typer.BadParameter('give a run and a sentence, as in: regard look en-de "Where is the station?"')
    if ending == "html" and (attention or layer or head or word or heatmap):
        raise typer.BadParameter(
            "--attention, --layer, --head, --word and --heatmap need --svg or --png; the HTML page contains everything"
        )
    if products and (ending != "html" or engine == "engine"):
        raise typer.BadParameter(
            "--products is for the HTML page, and PyTorch records them: leave out --svg, --png, --engine"
        )
    path = out or Path(f"look.{ending}")
    refuse_to_replace(path, ending)
    wrote = "replaced" if path.exists() else "wrote"
    from regard.explain.figures import FigureOptions, draw
    from regard.explain.report import as_page
    from regard.looking import look as trace_of

    shown = alternatives if ending == "html" else 0
    sample = None
    if temperature is not None or top_k is not None:
        # Not above: it imports torch.
        from regard.decoding.sampling import SampleOptions

        sample = SampleOptions(temperature=1.0 if temperature is None else temperature, top_k=top_k, seed=seed)
    trace = trace_of(
        run,
        sentence,
        beam=beam,
        alternatives=shown,
        device=device,
        sample=sample,
        to=to,
        engine="torch" if products else engine,
        tell=lambda text: print_message(f"{text} ..."),
        warn=print_warning,
    )
    note_unfinished([run])
    if ending == "html":
        path.write_text(as_page(trace, products=products), encoding="utf-8")
    else:
        options = FigureOptions(name=attention, layer=layer, heads=tuple(head or ()), word=word, heatmap=heatmap)
        draw(trace, path, options, warn=print_warning)
    print(trace.target.text)
    print_message(f"{wrote} {path}")


def _draw_paper_figure(name: str, path: Path) -> None:
    refuse_to_replace(path, path.suffix.removeprefix(".") if path.suffix in (".svg", ".png") else "png")
    from regard.explain.paper_figures import draw_masks, draw_positions, draw_schedule

    if name == "positions":
        draw_positions(path)
    elif name == "schedule":
        draw_schedule(path)
    else:
        draw_masks(path)
    print_message(f"wrote {path}")
