"""The verbs in Python: train, load, evaluate, card, export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from regard import kernels
from regard.assembly import (
    chosen_budget,
    fresh_model,
    fresh_tokenizers,
    learn_to_align,
    load_corpus,
    log_event,
    make_loader,
    make_validator,
    refuse_other_recipe,
    resolve,
    tokenizers_for_all,
    try_one_pair,
)
from regard.config import Recipe
from regard.decoding.cuda_graph_model import with_cuda_graphs
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.rescorer import Rescorer
from regard.decoding.translator import Translator
from regard.errors import ConfigError, DataError
from regard.evaluation.metrics import Score, deciding_metric, score_all
from regard.explain.report import write_report
from regard.models import build_model
from regard.models.base import Seq2Seq
from regard.nn.device import pick_device, pick_precision, use_device, use_threads
from regard.nn.int8 import refuse_without_int8
from regard.recipe_files import find_recipe, load_recipe
from regard.run.card import make_card, write_card
from regard.run.checkpoint import load_weights
from regard.run.folder import CARD_JSON, CARD_PAGE, RunFolder
from regard.run.pretrained import find_run
from regard.run.quantize import WeightKind
from regard.text.bitext import anchor, data_folders, load_bitext, named_folder, refuse_outside, without_folders
from regard.text.corpus import read_pairs
from regard.training.events import Event, Listener, Noted, Saved, Validated
from regard.training.saver import disk_error
from regard.training.trainer import Trainer
from regard.training.world import World, join, own_device


@dataclass(frozen=True)
class TrainResult:
    """How a call of `train` ended."""

    run: RunFolder
    finished: bool
    trained: bool  # False: the run had been finished before


def train(
    recipe: str | Recipe,
    *,
    out: Path | str | None = None,
    overrides: Sequence[str] = (),
    data: Path | str | None = None,
    listen: Listener = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
    accept: Sequence[str] = (),
) -> TrainResult:
    """Trains a recipe into a run folder, or goes on with the unfinished run that the folder holds.

    A run goes on with the settings it was begun with; those named in `accept` may differ from now on.
    """
    beside = None
    if isinstance(recipe, str):
        beside = find_recipe(recipe).parent
        recipe = load_recipe(recipe, overrides)
    folders = data_folders(data, beside)
    recipe = resolve(msgspec.structs.replace(recipe, data=anchor(recipe.data, folders, named=named_folder(data))))
    run = RunFolder(out or Path("runs") / recipe.name)
    if run.exists:
        if recipe.train.tokens == "auto":  # chosen when the run was begun
            train = msgspec.structs.replace(recipe.train, tokens=run.recipe().train.tokens)
            recipe = msgspec.structs.replace(recipe, train=train)
        refuse_other_recipe(run, recipe, accept)
    if run.finished:
        return TrainResult(run, finished=True, trained=False)
    device = use_device(pick_device(own_device(recipe.train.device)))
    use_threads(recipe.train.threads)
    with kernels.allowed(recipe.train.kernels), join(device) as world:
        return _train(run, recipe, folders, listen, stop, world, changed=bool(accept))


def _train(
    run: RunFolder,
    recipe: Recipe,
    folders: list[Path],
    listen: Listener,
    stop: Callable[[], bool],
    world: World,
    *,
    changed: bool,
) -> TrainResult:
    """Trains a resolved recipe that is not refused."""
    begun = world.gather(run.exists)[0]

    def hear(event: Event) -> None:
        if not world.writes:
            return
        try:
            if logs:
                log_event(run, event)
            if logs and isinstance(event, Validated | Saved):
                write_report(run)
        except OSError as error:
            if recipe.train.disk_full == "stop":
                raise disk_error(error, max(run.steps(), default=None)) from error
        listen(event)

    logs = False  # nothing is written before everything is known to fit
    corpus = load_corpus(recipe, folders)
    hear(Noted(0, corpus.summary))
    if begun and run.corpus() != corpus.fingerprint():
        raise DataError(f"the text has changed since {run} was begun; put it back, or name another folder with --out")
    fresh = fresh_tokenizers(recipe, corpus.train) if world.writes and not begun else None
    tokenizers = run.tokenizers() if begun else tokenizers_for_all(fresh, world)
    model = fresh_model(recipe, tokenizers).to(world.device)
    ids = corpus.train.encoded(tokenizers)
    recipe = chosen_budget(recipe, ids, model, world, hear)
    aligner = learn_to_align(recipe, ids, model)
    ids = ids if aligner is None else aligner.add_to(ids)
    loader = make_loader(recipe, corpus.train, ids, tokenizers, model, world, hear)
    validate = make_validator(recipe, corpus.valid, tokenizers, world, aligner) if corpus.valid else None
    try_one_pair(model.eval(), world.device, pick_precision(recipe.train.precision, world.device))
    trainer = Trainer(
        model,
        loader,
        recipe.train,
        run,
        world=world,
        validate=validate,
        higher_is_better=deciding_metric(recipe.train.metric).higher_is_better,
        listen=hear,
        stop=stop,
    )
    if world.any(stop()):
        return TrainResult(run, finished=False, trained=True)
    with run.locked() if world.writes else nullcontext():
        if world.writes:
            if run.exists != begun:
                raise ConfigError(f"another process has begun {run} meanwhile; give the command again")
            if not begun:  # all that can be refused has been: only now is anything written
                run.create(recipe, tokenizers, corpus.fingerprint())
            elif changed:
                run.change_recipe(recipe)
        world.wait()  # for the folder to be there
        logs = True
        finished = trainer.fit()
        if world.writes:
            write_report(run)
        return TrainResult(run, finished=finished, trained=True)


def load(
    run: Path | str,
    *,
    device: str = "auto",
    warn: Callable[[str], None] = lambda text: None,
    rescorer: Path | str | None = None,
    int8: bool = False,
) -> Translator:
    """A run's model, ready to translate: the final weights, or the newest checkpoint while it is still training.

    `rescorer` is another run, whose model chooses among the candidates of a beam. `int8` multiplies large matrices as
    8-bit integers: faster on a CPU, and nearly the same translations.
    """
    where, folder = pick_device(device), find_run(run)
    if int8:
        refuse_without_int8(where)
    recipe, tokenizers = folder.recipe(), folder.tokenizers()
    checkpoint, name = folder.weights()  # first: they say whether the model is as large as the recipe makes it
    model = build_model(recipe.model, source_size=tokenizers.source.size, target_size=tokenizers.target.size)
    load_weights(model, checkpoint.weights, origin=f"{folder}/{name}")
    model.to(use_device(where)).eval()
    if not model.prepare_for_inference(int8=int8) and int8:
        warn("no matrix of this model is so large that 8-bit integers are faster; it computes in float32")
    chooses = None if rescorer is None else _load_rescorer(rescorer, device)
    searched = with_cuda_graphs(model) if isinstance(model, Seq2Seq) else model
    return Translator(searched, tokenizers, recipe.decode, warn=warn, rescorer=chooses)


def _load_rescorer(run: Path | str, device: str) -> Rescorer:
    teacher = load(run, device=device)
    if not isinstance(teacher.model, Seq2Seq):
        raise ConfigError(f"{run} writes all tokens at once; only a model that writes token by token can rescore")
    return Rescorer(teacher.model, teacher.tokenizers, teacher.config.length_penalty, teacher.config.tokens)


@dataclass(frozen=True)
class Evaluation:
    """Scores of one test set."""

    name: str
    num_pairs: int
    scores: list[Score]


def evaluate(
    run: Path | str,
    *,
    source: Path | str | None = None,
    reference: Path | str | None = None,
    data: Path | str | None = None,
    options: SearchOptions | None = None,
    device: str = "auto",
    warn: Callable[[str], None] = lambda text: None,
    rescorer: Path | str | None = None,
    int8: bool = False,
) -> list[Evaluation]:
    """Scores of a run on its recipe's test sets, or on the files given."""
    translator, recipe = load(run, device=device, warn=warn, rescorer=rescorer, int8=int8), find_run(run).recipe()
    if (source is None) != (reference is None):
        raise ConfigError("give both --source and --reference, or neither to use the recipe's test sets")
    if source is not None and reference is not None:
        sets = {Path(source).name: read_pairs(Path(source), Path(reference))}
    else:
        folders = data_folders(data, None)
        for bitext in recipe.data.test.values():
            refuse_outside(bitext, folders, recipe_of=str(run))
        sets = {name: load_bitext(bitext, folders=folders) for name, bitext in recipe.data.test.items()}
    if not sets:
        raise DataError("the recipe names no test set; give --source and --reference")
    results = []
    for name, pairs in sets.items():
        outputs = translator.translate([pair.source for pair in pairs], options=options)
        scores = score_all(outputs, [pair.target for pair in pairs], recipe.evaluate)
        results.append(Evaluation(name, len(pairs), scores))
    return results


def card(run: Path | str, *, data: Path | str | None = None, evaluated: bool = True, device: str = "auto") -> Path:
    """Writes a run's card, with its scores on the recipe's test sets unless told not to; where it is."""
    folder = RunFolder(run).require()
    results = []
    if evaluated and folder.recipe().data.test:
        options = folder.recipe().decode
        search = f"beam {options.beam}, length penalty {options.length_penalty:g}" if options.beam > 1 else "greedy"
        found = evaluate(run, data=data, device=device)
        results = [{**msgspec.to_builtins(one), "search": search} for one in found]
    write_card(folder, make_card(folder, results))
    return folder.path / "card.md"


def export(run: Path | str, out: Path | str, *, weights: WeightKind = "float32", cards: bool = True) -> RunFolder:
    """A copy of a run that holds what translating needs, and its card; its weights may be stored in fewer bytes."""
    source, target = find_run(run), RunFolder(out)
    if target.path.exists() and not (target.path.is_dir() and target.is_unfinished_export()):
        raise ConfigError(f"{target} is there already, and not an empty folder; name another one with --out")
    checkpoint, _ = source.weights()
    names = (CARD_JSON, CARD_PAGE) if cards else ()
    extras = {name: text for name in names if (text := source.read_extra(name)) is not None}
    target.finish(checkpoint, kind=weights)
    target.create(without_folders(source.recipe()), source.tokenizers(), source.corpus(), extras)
    target.sweep()
    return target
