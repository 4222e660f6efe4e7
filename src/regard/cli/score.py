"""regard score"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.engine_option import EngineOption
from regard.cli.paths import note_unfinished
from regard.cli.terminal import print_message, print_warning, printable
from regard.errors import DataError
from regard.messages import counted

if TYPE_CHECKING:
    from regard.config import SearchOptions
    from regard.decoding.translator import Translator


def score(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, finished or training, a checkpoint of it, or a pretrained model: de-en, en-de, zh-en.",
            show_default=False,
        ),
    ],
    source: Annotated[Path | None, typer.Option(help="Texts, one per line.", show_default=False)] = None,
    target: Annotated[
        Path | None, typer.Option(help="Translations of --source to score, line by line.", show_default=False)
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="One file of texts and translations: .tsv, .csv, .jsonl, .tmx, .po or .parquet.", show_default=False
        ),
    ] = None,
    contrast: Annotated[
        Path | None,
        typer.Option(
            help="A file with the columns source, right, wrong, and maybe category: .tsv, .csv or .jsonl.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Target language, for a multilingual model.", show_default=False),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(help="0 gives the plain log-probability. Default: that of the recipe.", show_default=False),
    ] = None,
    protect: Annotated[
        bool | None,
        typer.Option(
            "--protect/--no-protect",
            help="Whether numbers, URLs and other protected spans are placeholders, as in translation. "
            "Default: if the model has placeholders.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Print the log-probability of each token too.")] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="With --json: calibrated probabilities of words and sentences.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line, with tokens.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    int8: Annotated[
        bool, typer.Option("--int8", help="Multiply 8-bit integers: faster on a CPU, nearly the same scores.")
    ] = False,
    engine: EngineOption = "auto",
) -> None:
    """Score given translations: one number per line, the log-probability divided by the length penalty. Higher is better.

    The number is the score that `regard translate --nbest` prints for the same translation. With --contrast, print how
    often the model prefers the right one of two translations, with 95 % intervals, in all and for each category.

    Examples:

      regard score en-de --source test.en --target test.de

      # prints: score, then each token with its log-probability
      regard score en-de --pairs test.tsv --tokens

      regard score en-de --pairs test.tsv --json --confidence

      # columns: source, right, wrong, category
      regard score en-de --contrast negation.tsv

      # the worst translations
      paste <(regard score en-de --pairs test.tsv) test.tsv | sort -n | head
    """
    given = [pairs is not None, contrast is not None, source is not None or target is not None]
    if sum(given) != 1 or (source is None) != (target is None):
        raise typer.BadParameter("give --source and --target, or --pairs, or --contrast")
    if confidence and not as_json:
        raise typer.BadParameter("--confidence needs --json")
    if contrast is not None and (tokens or confidence):
        raise typer.BadParameter("--contrast compares sentences; leave out --tokens and --confidence")
    from regard import loading
    from regard.config import SearchOptions

    translator = loading.load_translator(
        run, "score", device=device, warn=print_warning, int8=int8, precision="float32", engine=engine
    ).into(to)
    note_unfinished([run])
    options = SearchOptions().replace(length_penalty=length_penalty, protect=protect, confidence=confidence)
    if contrast is not None:
        _print_contrast(translator, contrast, options, as_json)
        return
    _print_scores(translator, _read(run, source, target, pairs, to), options, tokens=tokens, as_json=as_json)


def _read(
    run: Path, source: Path | None, target: Path | None, pairs: Path | None, to: str | None
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of texts. Lines of two files may be blank, so that one score is printed for each."""
    from regard.run.finding import find_run
    from regard.text.corpus import read_pairs
    from regard.text.languages import languages_of
    from regard.text.lines import stream_lines

    if pairs is not None:
        data = find_run(run).recipe().data
        known = [found for found in data.language_pairs if found[1] == to]
        yield from read_pairs(pairs, languages=known[0] if known else languages_of(data, run.name))
        return
    assert source is not None and target is not None
    try:
        yield from zip(stream_lines(source), stream_lines(target), strict=True)
    except ValueError as error:
        raise DataError(f"{source} and {target} have different numbers of lines; they are read line by line") from error


def _print_scores(
    translator: Translator, pairs: Iterator[tuple[str, str]], options: SearchOptions, *, tokens: bool, as_json: bool
) -> None:
    from regard.decoding.translation import as_json as described
    from regard.decoding.translator import READ_AHEAD

    number, total, count = 0, 0.0, 0
    while some := list(islice(pairs, READ_AHEAD)):
        sources, targets = [source for source, _ in some], [target for _, target in some]
        scored = translator.score(sources, targets, options=options, first=number + 1)
        for (source, _), one in zip(some, scored, strict=True):
            number += 1
            total, count = total + sum(token.score for token in one.tokens or ()), count + len(one.tokens or ())
            if as_json:
                print(json.dumps({"source": source, **described(one)}, ensure_ascii=False))
            else:
                listed = [f"{token.text} {token.score:.4f}" for token in one.tokens or ()] if tokens else []
                print("\t".join([f"{one.score:.4f}", *listed]))
    if count:
        numbers = f"{counted(number, 'pair')}, {counted(count, 'token')} with EOS"
        print_message(f"{numbers}: perplexity {math.exp(min(700.0, -total / count)):.2f}")


def _print_contrast(translator: Translator, path: Path, options: SearchOptions, as_json: bool) -> None:
    from regard.contrasting import accuracies, contrast
    from regard.text.contrastive_pairs import read_contrastive_pairs

    preferences = contrast(translator, read_contrastive_pairs(path), options=options)
    if as_json:
        for one in preferences:
            scores = {"scores": {"right": one.right, "wrong": one.wrong}, "correct": one.correct}
            print(json.dumps({**one.pair._asdict(), **scores}, ensure_ascii=False))
        return
    results = accuracies(preferences)
    width = max(len("all"), *(len(printable(result.category)) for result in results))
    for result in results:
        low, high = result.interval
        share = f"{result.accuracy:7.2%}   95 % interval {low:.2%} to {high:.2%}"
        count = f"{result.correct:,} of {counted(result.total, 'pair')}"
        print(f"{printable(result.category) or 'all':{width}} {share}   {count}")
