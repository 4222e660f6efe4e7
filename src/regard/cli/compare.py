"""regard compare"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.paths import refuse_to_replace
from regard.cli.terminal import print_message, print_warning, printable


def compare(
    systems: Annotated[
        list[Path],
        typer.Argument(
            metavar="SYSTEM",
            help="Run folders, checkpoints of them, pretrained models (de-en, en-de, zh-en), or files with one translation "
            "per line. The first one is the baseline.",
            show_default=False,
        ),
    ],
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="References, one per line; repeatable. Default: the test sets of the first run.", show_default=False
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(help="Sources, one per line. Runs need them; files can do without.", show_default=False),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="One file of sources and references: .tsv, .csv, .jsonl, .tmx, .po or .parquet.", show_default=False
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Target language, for a multilingual model.", show_default=False),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data files. Default: REGARD_DATA.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    sentences: Annotated[int, typer.Option(help="Sentences that differ most, in each direction.")] = 5,
    beam: Annotated[int | None, typer.Option(help="Beam size of runs. Default: that of their recipe.")] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="How BLEU splits words: 13a, none, intl, char, zh, ja-mecab, ko-mecab. Default: as the first run; else 13a."
        ),
    ] = None,
    lowercase: Annotated[
        bool | None, typer.Option("--lowercase/--case", help="BLEU and chrF ignore case. Default: as the first run.")
    ] = None,
    comet: Annotated[
        Path | None,
        typer.Option(help="A checkpoint of COMET on disk, scored too; needs its package.", show_default=False),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(
            help="Training text in the language of the references, one sentence per line: adds recall and F1 of words by "
            "how often they occur in it.",
            show_default=False,
        ),
    ] = None,
    resamples: Annotated[int, typer.Option(help="Number of bootstrap resamples.")] = 1_000,
    trials: Annotated[int, typer.Option(help="Number of randomization trials.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Random seed of the bootstrap and of approximate randomization.")] = 12345,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Compare translation systems on the same sentences, the first one being the baseline.

    Prints BLEU, chrF and TER with 95 % intervals, p-values of paired bootstrap resampling and of approximate randomization,
    scores by length, and the sentences that differ most. Scores, intervals and p-values are those of sacreBLEU.

    Examples:

      # on the test sets of their recipe
      regard compare runs/small runs/large --data ~/data

      regard compare runs/mine en-de --source test.en --reference test.de

      # outputs of any system
      regard compare theirs.txt ours.txt --reference test.de

      regard compare theirs.txt runs/mine --pairs test.tsv --html comparison.html

      # are rare words translated?
      regard compare runs/small runs/large --pairs test.tsv --training train.de

      regard compare a.txt b.txt c.txt --reference ref1 --reference ref2 --json
    """
    from regard.comparing.compare import compare as run_compare
    from regard.config import SearchOptions

    if html is not None:
        refuse_to_replace(html, "html", option="--html")
    done = run_compare(
        *systems,
        source=source,
        reference=reference,
        pairs=pairs,
        to=to,
        data=data,
        options=None if beam is None else SearchOptions().replace(beam=beam),
        device=device,
        tokenize=tokenize,
        lowercase=lowercase,
        comet=comet,
        training=training,
        sentences=sentences,
        seed=seed,
        resamples=resamples,
        trials=trials,
        warn=print_warning,
        tell=print_message,
    )
    print(done.as_json() if as_json else printable(done.as_text()))
    if html is not None:
        html.write_text(done.as_page(), encoding="utf-8")
        print_message(f"wrote {html}")
