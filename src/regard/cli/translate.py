"""regard translate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from regard.cli.engine_option import EngineOption
from regard.errors import ConfigError

OUTPUT_OPTIONS = ("--out", "--output", "-o")  # of other commands


class CommandClass(TyperCommand):
    """The command, which answers an option for the output file with the form that fits."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = args[: args.index("--")] if "--" in args else args
        for name in (word.partition("=")[0] for word in options):
            if name in OUTPUT_OPTIONS:
                raise typer.BadParameter(f"there is no {name}: name the output file after the input: RUN INPUT OUTPUT")
        return super().parse_args(ctx, args)


def refuse_without_ray(**given: object) -> None:
    """Raise ConfigError if an option is given that has an effect only with --ray."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"--{name.replace('_', '-')} needs --ray")


def translate(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder, finished or training, a checkpoint of it, or a pretrained model: de-en, en-de, zh-en.",
            show_default=False,
        ),
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="[INPUT]",
            help="Text to translate, one sentence per line, plain, gzip, xz or zstd. Default: standard input.",
            show_default=False,
        ),
    ] = "-",
    output: Annotated[
        Path | None,
        typer.Argument(
            help="A file for the translations; if interrupted, the same command continues. With --ray: a folder of shards.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Target language, for a multilingual model.", show_default=False),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(help="Translate into this language first, and from there into --to.", show_default=False),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(help="A tag of the recipe (data.train.tag) in front of each line.", show_default=False),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy. Default: that of the recipe.")] = None,
    nbest: Annotated[
        int,
        typer.Option(help="Translations per line, as a list in which lines count from 0, as in Moses."),
    ] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="alpha of Wu et al. 2016; 0 prefers short output. Default: that of the recipe.")
    ] = None,
    max_extra: Annotated[
        int | None, typer.Option(help="Maximum of output tokens minus input tokens. Default: that of the recipe.")
    ] = None,
    early_stopping: Annotated[
        Literal["true", "false", "never"] | None,
        typer.Option(
            help="When beam search stops. true: `beam` hypotheses are finished; false: no unfinished hypothesis scores "
            "higher at its current length; never: none can score higher at any length.",
            show_default=False,
        ),
    ] = None,
    beam_groups: Annotated[
        int | None, typer.Option(help="Diverse beam search: groups of beams that avoid each other's tokens.")
    ] = None,
    diversity_penalty: Annotated[
        float | None,
        typer.Option(help="With --beam-groups: penalty for each token that an earlier group took.", show_default=False),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw --beam samples per line in place of searching.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature, which divides the logits; 0: the likeliest token.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from this many likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the likeliest tokens up to this probability.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Sample from tokens of at least this probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of sampling.")] = None,
    mbr: Annotated[
        Literal["chrf", "bleu"] | None,
        typer.Option(
            help="Of the --beam hypotheses or samples, take the one that agrees most with all of them.",
            show_default=False,
        ),
    ] = None,
    coverage_penalty: Annotated[
        float | None,
        typer.Option(help="beta of Wu et al. 2016: prefer hypotheses that attend to all of the input; 0: off."),
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        typer.Option(help="Forbid any n-gram of this length from occurring twice.", show_default=False),
    ] = None,
    max_repeats: Annotated[
        int | None,
        typer.Option(help="Maximum number of consecutive repetitions of a token sequence.", show_default=False),
    ] = None,
    shortlist: Annotated[
        int | None,
        typer.Option(
            help="Restrict the output to this many likely translations of each source token, plus frequent tokens; "
            "faster. See regard align.",
            show_default=False,
        ),
    ] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(help="Terms and their translations: .csv, .tsv, .tbx; needs a beam.", show_default=False),
    ] = None,
    json_input: Annotated[
        bool,
        typer.Option(
            "--json-input", help='Lines such as {"text": "...", "prefix": "...", "phrases": [...], "keep": []}.'
        ),
    ] = False,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="With --json: calibrated probabilities of words and sentences.")
    ] = False,
    as_json_lines: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per input line, with scores of all tokens.")
    ] = False,
    iterations: Annotated[
        int | None, typer.Option(help="Iterations of mask-predict. Default: that of the recipe.")
    ] = None,
    protect: Annotated[
        bool | None,
        typer.Option(
            "--protect/--no-protect",
            help="Keep URLs, e-mail addresses, numbers, variables, tags, code and emoji as they are, and report lost ones. "
            "Default: if the model has placeholders.",
            show_default=False,
        ),
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
    reverse_weight: Annotated[
        float | None, typer.Option(help="Weight of the --reverse score. Default: that of the recipe.")
    ] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another run with the same vocabulary, searched together with RUN; may be given again.",
            show_default=False,
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
    threads: Annotated[int, typer.Option(help="CPU threads. 0: one per core; with --ray, 1 per worker.")] = 0,
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Translate files, a folder or a pattern, text or Parquet, with workers on Ray."),
    ] = False,
    workers: Annotated[int | None, typer.Option(help="With --ray: workers. Default: one per GPU, or per CPU.")] = None,
    shard_lines: Annotated[int | None, typer.Option(help="With --ray: lines per shard. Default: 8192.")] = None,
    column: Annotated[str | None, typer.Option(help="With --ray: the column of Parquet files. Default: text.")] = None,
) -> None:
    """Translate text line by line: line N of the output is the translation of line N. Empty lines stay empty.

    Lines from a pipe are translated as they arrive. On a file, progress is shown unless the output goes to a terminal.

    Examples:

      echo "Wo ist der Bahnhof?" | regard translate de-en

      echo "samedi 14 novembre 2026" | regard translate runs/dates

      regard translate runs/multi30k-en-de test.en.gz --beam 5 > test.de

      # faster on a CPU
      regard translate runs/multi30k-en-de test.en --int8

      # prints: line, from 0 ||| translation ||| score
      regard translate runs/multi30k-en-de test.en --nbest 4

      # writes a file; the same command continues it
      regard translate en-de book.en book.de

      # terms are translated as the glossary says
      regard translate en-de test.en --glossary terms.csv

      regard translate en-de test.en --sample --beam 5 --nbest 5 --json

      regard translate en-de test.en --beam 64 --sample --epsilon 0.02 --mbr chrf

      regard translate en-de test.en --beam 16 --reverse de-en

      regard translate runs/a test.en --ensemble runs/b --ensemble runs/c

      # a model of several languages (docs/mixing.md)
      regard translate runs/multi30k-many test.en --to fr

      regard translate runs/multi30k-many test.de --to fr --pivot en

      # writes out/part-00000.txt ...; a second call resumes
      regard translate de-en news.de.gz out --ray

      regard translate de-en 'news/*.parquet' out --ray --column body --workers 8
    """
    search: dict[str, Any] = {
        "beam": beam, "nbest": nbest, "length_penalty": length_penalty, "max_extra": max_extra, "iterations": iterations,
        "early_stopping": {"true": True, "false": False}.get(str(early_stopping), early_stopping),
        "beam_groups": beam_groups, "diversity_penalty": diversity_penalty, "sample": sample or None,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "epsilon": epsilon, "seed": seed,
        "mbr": mbr, "coverage_penalty": coverage_penalty, "reverse_weight": reverse_weight,
        "no_repeat_ngram": no_repeat_ngram, "max_repeats": max_repeats, "protect": protect,
        "shortlist": shortlist,
        "token_scores": as_json_lines or None, "confidence": confidence or None,
    }  # fmt: skip
    if confidence and not as_json_lines:
        raise typer.BadParameter("--confidence needs --json")
    if reverse_weight is not None and reverse is None:
        raise typer.BadParameter("--reverse-weight needs --reverse")
    own = {"workers": workers, "shard_lines": shard_lines, "column": column}
    if ray:
        refused = {
            "--rescorer": rescorer, "--int8": int8, "--tag": tag, "--pivot": pivot, "--glossary": glossary,
            "--json": as_json_lines, "--json-input": json_input, "--reverse": reverse, "--ensemble": ensemble,
            "--precision": precision != "auto",
        }  # fmt: skip
        for name, value in refused.items():
            if value:
                raise typer.BadParameter(f"{name} cannot be combined with --ray")
        from regard.cli.ray import translate_with_ray

        translate_with_ray(run, file, output, search, device=device, threads=threads, to=to, **own)
        return
    refuse_without_ray(**own)
    from regard.cli.translate_run import translate_run

    translate_run(
        run,
        file,
        search,
        output=output,
        to=to,
        tag=tag,
        pivot=pivot,
        glossary=glossary,
        rescorer=rescorer,
        reverse=reverse,
        ensemble=ensemble or (),
        device=device,
        engine=engine,
        int8=int8,
        precision=precision,
        threads=threads,
        json_input=json_input,
        as_json=as_json_lines,
    )
