"""regard export"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from regard.cli.terminal import print_message


class Weights(StrEnum):
    """How weights are stored."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


class Engine(StrEnum):
    """Where the model will run."""

    regard = "regard"
    ctranslate2 = "ctranslate2"
    huggingface = "huggingface"
    onnx = "onnx"
    web = "web"


def export(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a checkpoint of it, or a pretrained model: de-en, en-de, zh-en.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder to write; with --to web, the HTML file.", show_default=False)
    ],
    to: Annotated[
        Engine,
        typer.Option(
            help="Where the model will run: in this library, in another engine (with a certificate), or in a browser (web), "
            "as one HTML file."
        ),
    ] = Engine.regard,
    weights: Annotated[
        Weights,
        typer.Option(
            help="How weights are stored. This library converts them to float32 when it loads them. "
            "A page always has int8."
        ),
    ] = Weights.float32,
    data: Annotated[
        Path | None,
        typer.Option(help="With another engine: the folder of the recipe's test set, which the certificate is about."),
    ] = None,
    lines: Annotated[
        Path | None,
        typer.Option(help="In place of the test set: a file with one sentence per line, or sentence, tab, reference."),
    ] = None,
    identical: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="With another engine: the smallest share of identical translations that is accepted; "
            "docs/export.md has the default of each kind of weights.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a model into a folder that can be given away: for this library, or for another engine; or as one HTML file.

    For this library that is a copy of what using the model needs: weights, tokenizer or labels, recipe and card.

    For another engine, held-out lines are translated in that engine, in a process that cannot import regard, and compared
    with ours: logits, log-probabilities of tokens, and translations. The folder gets certificate.json and certificate.md. If
    the engine differs by more than the certificate's bounds, or cannot express the model, nothing is written. docs/export.md
    has a table of what each engine can express.

    The HTML file (--to web) holds the engine, the model and its tokenizer. It opens from disk in a browser, offline.

    Examples:

      regard export runs/mine --out mine

      # a file of a quarter of the size
      regard export runs/mine --out mine-small --weights int8

      # writes config.json, model.bin, SentencePiece files
      regard export de-en --to ctranslate2 --weights int8 --out de-en-ct2

      # for MarianMTModel and MarianTokenizer
      regard export de-en --to huggingface --out de-en-hf

      # writes encoder.onnx, decoder.onnx, translate.py
      regard export runs/mine --to onnx --out mine-onnx --lines test.tsv

      # compare again, on any machine
      regard verify mine-onnx

      # a page; open it in a browser
      regard export de-en --to web --out de-en.html
    """
    if to == Engine.web:
        if data is not None or lines is not None or identical is not None:
            raise typer.BadParameter(
                "--data, --lines and --identical are for certificates, which an HTML page does not have"
            )
        from regard.exchange.to_web import export_page

        page = export_page(run, out, tell=print_message)
        print_message(f"{page}: {page.stat().st_size / 1e6:.1f} MB; open it in a browser")
        return
    if to != Engine.regard:
        from regard.cli.verify import print_measured
        from regard.exchange.certificate import BOUNDS
        from regard.exchange.exporting import export_model

        bounds = BOUNDS[weights.value]
        certificate = export_model(
            run,
            out,
            to=to.value,
            weights=weights.value,
            data=data,
            lines=lines,
            bounds=bounds if identical is None else msgspec.structs.replace(bounds, identical=identical),
            tell=print_message,
            warn=print_message,
        )
        print_measured(certificate.measured, certificate.bounds)
        print_message(
            f"{out}: certified; certificate.md has the details, and regard verify {out} repeats the comparison"
        )
        return
    if data is not None or lines is not None or identical is not None:
        raise typer.BadParameter("--data, --lines and --identical are for certificates; name an engine with --to")
    from regard import api
    from regard.cli.hints import command_that_predicts

    folder = api.export(run, out, weights=weights.value)
    size = folder.folder.size() / 1e6
    command = command_that_predicts(folder.recipe(), folder.path)
    print_message(f"{folder}: {size:.1f} MB; use it like any run, as in: {command}")
