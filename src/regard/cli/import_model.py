"""regard import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import print_message


def import_model(
    folder: Annotated[Path, typer.Argument(help="The folder of a model of another toolkit.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The run folder to write. Default: runs/NAME of the folder.")
    ] = None,
) -> None:
    """Make a run of a model from another toolkit. It then translates, adapts, explains, serves and exports like any other.

    The toolkit is recognized by the files of the folder:

      Hugging Face Marian (as OPUS-MT)
        config.json, model.safetensors or pytorch_model.bin, vocab.json,
        source.spm, target.spm

      CTranslate2
        config.json, model.bin, vocabularies; source.spm, target.spm, if any

      Marian
        one .npz, its vocabulary (.yml or .spm), decoder.yml

      fairseq
        a .pt file, dict.LANGUAGE.txt of both languages;
        sentencepiece.bpe.model, if there is one

      OpenNMT-py
        one .pt file of version 3; sentencepiece.model, if there is one

    Nothing in the files is executed. What a model needs and this library cannot express is refused by name, before anything
    is written. docs/import.md has a table of what is read.

    Examples:

      # writes runs/opus-mt-en-de
      regard import opus-mt-en-de

      echo "Where is the station?" | regard translate runs/opus-mt-en-de
    """
    from regard.cli.hints import command_that_predicts
    from regard.exchange.importing import import_model as read

    run = read(folder, out, tell=print_message)
    print_message(f"{run}: use it like any run, as in: {command_that_predicts(run.recipe(), run.path)}")
