"""`regard export --to`: a model as a folder of another engine, with a certificate that the engine agrees with us."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

import regard
from regard.config import SearchOptions
from regard.errors import ConfigError, require, require_installed
from regard.exchange import to_ctranslate2, to_huggingface, to_onnx
from regard.exchange.certificate import (
    BOUNDS,
    FORM,
    Bounds,
    Certificate,
    Line,
    Measured,
    failures,
    record_files,
    write_certificate,
)
from regard.exchange.comparing import BEAMS, EngineRequest, Ours, Theirs, ask_engine, compare, our_outputs
from regard.exchange.held_out import HeldOut, held_out_lines
from regard.exchange.portable import END, Portable, load_portable
from regard.messages import counted, warn_caller
from regard.models.base import TextSeq2Seq
from regard.storage.folder import Folder
from regard.text.symbols import UNK
from regard.torch_loading import load_model

Tell = Callable[[str], None]  # receives a sentence about what is being done


class Target(NamedTuple):
    """An engine that models are exported to."""

    refuse: Callable[[Portable, str], None]  # raises ConfigError for what it cannot express
    write: Callable[[Portable, Folder, str], None]
    require: Callable[[], object]  # raises MissingExtra if a package that exporting needs is missing


def _require_huggingface() -> None:
    require_installed("transformers", extra="huggingface")


def _require_ctranslate2() -> object:
    return require("ctranslate2", extra="ctranslate2")


def _require_onnx() -> object:
    return require("onnx", extra="onnx"), require("onnxruntime", extra="onnx")


TARGETS = {
    "ctranslate2": Target(to_ctranslate2.refuse, to_ctranslate2.write, _require_ctranslate2),
    "huggingface": Target(to_huggingface.refuse, to_huggingface.write, _require_huggingface),
    "onnx": Target(to_onnx.refuse, to_onnx.write, _require_onnx),
}


def export_model(
    run: Path | str,
    out: Path | str,
    *,
    to: str,
    weights: str = "float32",
    data: Path | str | None = None,
    lines: Path | str | None = None,
    bounds: Bounds | None = None,
    tell: Tell = lambda text: None,
    warn: Callable[[str], None] = warn_caller,
) -> Certificate:
    """Write a run's model as a folder of another engine, and return its certificate.

    `to` is one of `TARGETS`. Held-out lines are those of the file `lines`, of the recipe's first test set below `data`, or
    our own. What the engine cannot express is refused by name, and so are differences beyond `bounds`; then nothing is
    written.
    """
    if to not in TARGETS:
        raise ConfigError(f"--to is {to!r}; a model is exported to {', '.join(TARGETS)}")
    target, path = TARGETS[to], Path(out)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ConfigError(f"{path} is there already, and not an empty folder; name another one with --out")
    model = load_portable(run)
    target.refuse(model, weights)
    target.require()
    held_out = held_out_lines(model, data=data, lines=lines, warn=warn)
    with _new_folder(path) as folder:
        tell(f"writing {path} for {to}, {weights}")
        target.write(model, folder, weights)
        tell(f"translating {counted(len(held_out.sources), 'line')} ({held_out.origin}) with regard and with {to}")
        certificate = _certify(run, model, folder, held_out, to=to, weights=weights, bounds=bounds or BOUNDS[weights])
        found = failures(certificate.measured, certificate.bounds)
        if found:
            raise ConfigError(f"{to} does not agree with us: {'; '.join(found)}; nothing was written")
        write_certificate(folder, certificate)
    return certificate


@contextmanager
def _new_folder(path: Path) -> Iterator[Folder]:
    """Yield an empty folder that gets its name at the end, and is removed if anything fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield Folder(temporary)
        temporary.chmod(0o755)
        if path.exists():
            path.rmdir()
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _certify(
    run: Path | str, model: Portable, folder: Folder, held_out: HeldOut, *, to: str, weights: str, bounds: Bounds
) -> Certificate:
    """Return the certificate of the files in a folder."""
    encoded = model.tokenizers.source.encode_all(held_out.sources)
    most = min(model.options.max_source, model.num_positions - model.options.max_extra - 2)
    kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= max(1, most)]
    if not kept:
        raise ConfigError(f"no held-out line has between 1 and {most} tokens; give others with --lines")
    sources = [encoded[number] for number in kept]
    limit = min(max(map(len, sources)) + model.options.max_extra, model.num_positions - 2)
    beams = _beam_options(model, to)
    plain = load_model(run, device="cpu")
    assert isinstance(plain, TextSeq2Seq)
    ours = our_outputs(plain, plain.for_inference(), sources, limit=limit, beams=beams)
    symbols = {side: model.symbols(side) for side in ("source", "target")}
    lines = [
        Line(
            source=held_out.sources[number],
            reference=held_out.references[number] if held_out.references else None,
            output=model.tokenizers.target.decode(ours.greedy[at]),
            tokens=[symbols["target"][id] for id in ours.greedy[at]],
            scores=[round(score, 7) for score in ours.scores[at]],
        )
        for at, number in enumerate(kept)
    ]
    request = EngineRequest(
        engine=to,
        weights=weights,
        folder=str(folder.path),
        lines=[line.source for line in lines],
        targets=[line.tokens for line in lines],
        symbols=symbols["target"],
        start=model.start,
        end=END,
        limit=limit,
        threads=torch.get_num_threads(),
        beam=1 if beams is None else beams.beam,
        penalty=0.0 if beams is None else beams.length_penalty,
        logits=len(ours.logits) if to != "ctranslate2" else 0,
    )
    theirs = ask_engine(request)
    _refuse_other_tokens(lines, sources, theirs, symbols["source"])
    return Certificate(
        form=FORM,
        model=model.name,
        target=to,
        weights=weights,
        start=model.start,
        versions={"regard": regard.__version__, **theirs.versions},
        threads=request.threads,
        lines_from=held_out.origin,
        limit=limit,
        symbols=symbols["target"],
        bounds=bounds,
        measured=_measure(model, lines, ours, theirs, request, symbols["target"]),
        files=record_files(folder),
        lines=lines,
    )


def _beam_options(model: Portable, to: str) -> SearchOptions | None:
    """Return a search whose length penalty is that of the engines, n^alpha, and which ends when theirs do."""
    options = model.options
    if options.beam == 1 or to not in BEAMS:
        return None
    return SearchOptions(
        beam=options.beam,
        length_penalty=options.length_penalty,
        length_penalty_kind="power",
        early_stopping=to == "ctranslate2",
    )


def _refuse_other_tokens(lines: list[Line], ours: list[list[int]], theirs: Theirs, symbols: list[str]) -> None:
    """Raise ConfigError if the engine's tokenizer splits a line in another way."""
    ids = {symbol: id for id, symbol in enumerate(symbols)}
    for line, own, other in zip(lines, ours, theirs.sources, strict=True):
        if own != [ids.get(symbol, UNK) for symbol in other]:
            raise ConfigError(f"the tokenizer of the export splits {line.source[:80]!r} in another way than ours")


def _measure(
    model: Portable, lines: list[Line], ours: Ours, theirs: Theirs, request: EngineRequest, symbols: list[str]
) -> Measured:
    beams = [[symbols[id] for id in ids] for ids in ours.beams]
    return compare(
        lines,
        theirs,
        limit=request.limit,
        evaluate=model.recipe.evaluate,
        logits=ours.logits[: request.logits],
        beams=beams,
        beam=request.beam,
        seconds=ours.seconds,
    )
