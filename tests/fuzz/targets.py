"""Everything that a command or the library does with an untrusted folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import typer
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse

import regard
from regard import api
from regard.cli.card import card as card_command
from regard.cli.doctor import doctor as doctor_command
from regard.cli.export import Weights
from regard.cli.export import export as export_command
from regard.cli.look import look as look_command
from regard.cli.report import report as report_command
from regard.cluster.corpus import translate_corpus
from regard.config import SearchOptions
from regard.data.batch import ADDED, collate_pairs
from regard.data.batch_sampler import Loader, Position
from regard.data.pair_store import PairStore
from regard.distilling import distill
from regard.preprocess.prepare import prepare, store_problems
from regard.recipe_files import load_recipe
from regard.run.folder import RunFolder
from regard.serve.models import load_all
from regard.serve.schema import ModelInfo
from regard.text.tokenizer_pair import load_tokenizers
from tests.fuzz.odd_values import MARKUP
from tests.fuzz.ray_stub import without_ray

MAX_BATCHES = 40
OPTIONS = SearchOptions(beam=2, max_extra=4, iterations=2)


@dataclass(frozen=True)
class Place:
    """The folder under test, the folder for results, and trusted files of the user."""

    run: Path
    out: Path
    data: Path  # text and recipes
    bases: Path  # valid folders


class MarkupNotEscaped(Exception):
    """A page contains unescaped markup from the folder."""


def _refuse_markup(page: str) -> None:
    if MARKUP in page:
        raise MarkupNotEscaped(MARKUP)


def open_run(place: Place) -> str:
    run = RunFolder(place.run)
    output = []
    for read in (
        run.recipe,
        lambda: load_tokenizers(run.codec_folder()),
        run.corpus,
        run.read_log,
        run.problems,
        run.latest,
        run.steps,
    ):
        try:
            output.append(repr(read()))
        except regard.RegardError as error:
            output.append(str(error))
    return "\n".join(output)


def translate(place: Place) -> str:
    predictor = regard.load(place.run, device="cpu")
    return "\n".join(predictor.predict(["c a b", "haus ist \ud7ff\x00"]))


def report(place: Place) -> str:
    report_command([place.run])
    page = place.run / "report.html"
    if not page.is_symlink():
        _refuse_markup(page.read_text(encoding="utf-8"))
    return ""


def card(place: Place) -> str:
    card_command(place.run, evaluate=False, device="cpu")
    return ""


def export(place: Place) -> str:
    export_command(place.run, place.out, Weights.float32)
    return ""


def export_int8(place: Place) -> str:
    export_command(place.run, place.out, Weights.int8)
    return ""


def serve(place: Place) -> str:
    found = load_all([place.run], int8=False)
    models = [ModelInfo(**served.describe()) for served in found.values()]
    return JSONResponse(jsonable_encoder(models)).body.decode()  # like the response of /v1/models


def doctor(place: Place) -> str:
    try:
        doctor_command(place.run)
    except typer.Exit:
        return ""
    return ""


def look(place: Place) -> str:
    look_command(place.run, "c a b", out=place.out, device="cpu", alternatives=1)
    _refuse_markup(place.out.read_text(encoding="utf-8"))
    return ""


def resume(place: Place) -> str:
    api.train(str(place.data / "bpe.toml"), out=place.run, data=place.data)
    return ""


def teach(place: Place) -> str:
    source, reference = place.data / "valid.de", place.data / "valid.en"
    distill(place.run, place.out, source=source, reference=reference, device="cpu")
    return ""


def distill_into(place: Place) -> str:
    source, reference = place.data / "valid.de", place.data / "valid.en"
    distill(place.bases / "char", place.run, source=source, reference=reference, device="cpu")
    return ""


def open_store(place: Place) -> str:
    recipe = load_recipe(str(place.data / "bpe.toml"))
    store = PairStore(place.run)
    output = "\n".join(store_problems(store))
    tokenizers = store.tokenizers(recipe.tokenizer)
    encoded = store.encoded(tokenizers)
    output += repr(encoded.upto(256))
    loader = Loader(lambda epoch: encoded, collate_pairs, added=ADDED, budget=64, max_length=256, seed=1)
    for batch, position in islice(loader.batches(Position()), MAX_BATCHES):
        assert batch.num_tokens > 0, batch
        if position.epoch:
            break
    return output


def train_on_store(place: Place) -> str:
    changes = [f"data.train.store={str(place.run)!r}", "train.steps=1"]
    api.train(str(place.data / "on-store.toml"), out=place.out, data=place.data, overrides=changes)
    return ""


def prepare_store(place: Place) -> str:
    prepare(load_recipe(str(place.data / "bpe.toml")), place.run, folders=[place.data])
    return ""


def ray(place: Place) -> str:
    with without_ray():
        translate_corpus(place.bases / "char", str(place.data / "valid.de"), place.run, shard_lines=2, device="cpu")
    return ""


FOLDER_TARGETS: dict[str, Callable[[Place], str]] = {
    "open": open_run,
    "translate": translate,
    "report": report,
    "card": card,
    "export": export,
    "export-int8": export_int8,
    "serve": serve,
    "doctor": doctor,
    "look": look,
    "resume": resume,
    "teach": teach,
    "distill": distill_into,
    "store": open_store,
    "store-train": train_on_store,
    "prepare": prepare_store,
    "ray": ray,
}
