"""regard evaluate"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from regard.cli.engine_option import EngineOption
from regard.cli.paths import note_unfinished
from regard.cli.terminal import print_warning, printable
from regard.messages import counted


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, finished or training, a checkpoint of it, or a pretrained model: de-en, en-de, zh-en.",
            show_default=False,
        ),
    ],
    source: Annotated[Path | None, typer.Option(help="Inputs, one per line. Default: the recipe's test sets.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Reference outputs for --source, line by line.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="One file of inputs and references: .tsv, .csv, .jsonl, .tmx, .po or .parquet.", show_default=False
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Target language, for a multilingual model; only test sets in this language are scored.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size. Default: that of the recipe.")] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Iterations of mask-predict. Default: that of the recipe.")
    ] = None,
    rescorer: Annotated[
        Path | None,
        typer.Option(
            "--rescorer", "--judge", help="A run whose model rescores the hypotheses of the beam.", show_default=False
        ),
    ] = None,
    reverse: Annotated[
        Path | None,
        typer.Option(
            help="A run of the opposite direction, which helps to choose among the hypotheses of the beam.",
            show_default=False,
        ),
    ] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another run with the same vocabulary, searched together with RUN; may be given again.",
            show_default=False,
        ),
    ] = None,
    mbr: Annotated[
        Literal["chrf", "bleu"] | None,
        typer.Option(
            help="Of the hypotheses of the beam, take the one that agrees most with all of them.", show_default=False
        ),
    ] = None,
    coverage_penalty: Annotated[
        float | None,
        typer.Option(help="beta of Wu et al. 2016: prefer hypotheses that attend to all of the input; 0: off."),
    ] = None,
    shortlist: Annotated[
        int | None,
        typer.Option(
            help="Likely translations of each token that may be output; see regard align.", show_default=False
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    int8: Annotated[
        bool, typer.Option("--int8", help="Multiply 8-bit integers: faster on a CPU, nearly the same output.")
    ] = False,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Precision of search on a GPU. auto: bfloat16 if possible."),
    ] = "auto",
    engine: EngineOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a run on test sets with the metrics of its task: for translation BLEU and chrF with sacreBLEU signatures,
    exact match and token error rate; for labels accuracy and span F1.

    Examples:

      regard evaluate runs/dates

      regard evaluate runs/multi30k-en-de --data ~/data --beam 5

      regard evaluate runs/mine --source my.test.de --reference my.test.en --json

      regard evaluate runs/mine --pairs my.test.tsv

      regard evaluate runs/seed1 --ensemble runs/seed2 --ensemble runs/seed3

      # a model of several languages
      regard evaluate runs/multi30k-many --data ~/data --to fr
    """
    from regard import evaluating
    from regard.config import SearchOptions
    from regard.metrics.base import label_of

    search: dict[str, Any] = {
        "beam": beam, "iterations": iterations, "mbr": mbr, "coverage_penalty": coverage_penalty, "shortlist": shortlist,
    }  # fmt: skip
    given = any(value is not None for value in search.values())
    options = SearchOptions().replace(**search) if given else None
    results = evaluating.evaluate(
        run,
        source=source,
        reference=reference,
        pairs=pairs,
        to=to,
        data=data,
        options=options,
        device=device,
        warn=print_warning,
        rescorer=rescorer,
        reverse=reverse,
        ensemble=ensemble or (),
        int8=int8,
        precision=precision,
        engine=engine,
    )
    note_unfinished([run, *(ensemble or ())])
    if as_json:
        print(json.dumps([asdict(result) for result in results], ensure_ascii=False))
        return
    for result in results:
        details = ", ".join(filter(None, [counted(result.num_pairs, "example"), result.search]))
        print(f"{printable(result.name)} ({details})")
        labels = [label_of(score.name) for score in result.scores]
        width = max(8, *map(len, labels))
        for label, score in zip(labels, result.scores, strict=True):
            print(f"  {label:{width}} {score.value:7.2f}   {score.signature}")
