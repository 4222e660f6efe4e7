"""Verbs in Python: train, card, export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from regard import kernels
from regard.config import Recipe
from regard.data.columns import Columns
from regard.errors import ConfigError, DataError
from regard.evaluating import evaluate
from regard.explain.report import write_report
from regard.messages import warn_caller
from regard.metrics import deciding_metric
from regard.nn.device import pick_device, pick_precision, use_device, use_threads
from regard.progress import ProgressLines
from regard.recipe_files import differences, load_recipe, recipe_folder, refuse_no_list, warn_of_long_warmup
from regard.run.card import make_card, write_card
from regard.run.finding import find_run
from regard.run.folder import (
    ADAPTATION_JSON,
    ADAPTATION_PAGE,
    CALIBRATION,
    CARD_JSON,
    CARD_PAGE,
    INIT,
    SHORTLIST,
    RunFolder,
)
from regard.run.tensor_file import WeightKind
from regard.tasks import task_of
from regard.tasks.corpus import note_known_examples
from regard.tasks.initialize import (
    begin_with,
    describe_tokenizer,
    find_initial_run,
    fit_codec,
    new_parameters,
    with_tokenizer,
)
from regard.tasks.recipe_checks import refuse_other_recipe, resolve
from regard.tasks.setup import choose_budget, fresh_model, make_loaders, share_codec, try_one_example
from regard.tasks.validation import make_validator
from regard.text.bitext import anchor, data_folders, named_folder, without_folders
from regard.text.text_report import LEFT_OUT
from regard.torch_loading import checked_weights, task_of_run
from regard.training.events import Command, Event, Listener, Noted, Saved, Started, Validated, log_entry
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
    listen: Listener | None = None,
    stop: Callable[[], bool] = lambda: False,
    accept: Sequence[str] = (),
    warn: Callable[[str], None] = warn_caller,
) -> TrainResult:
    """Train a recipe into a run folder, or resume the unfinished run in it.

    A run resumes with the settings it was started with; those named in `accept` may change. With `accept=["train.steps"]` a
    finished run continues from its last checkpoint to a larger number of steps. Progress is printed to stderr,
    one line per event. A function given as `listen` receives the events (`regard.training.events`) instead; `lambda event:
    None` is silent. `warn` receives one sentence about each setting that is valid but probably not meant. `stop` is called
    after every step; True saves and stops.
    """
    refuse_no_list("overrides", overrides, example="train.steps=500")
    refuse_no_list("accept", accept, example="train.steps")
    listen = ProgressLines() if listen is None else listen
    own_folder, command = None, None
    warnings: list[str] = []  # given only if the names in the recipe are known
    if isinstance(recipe, str):
        command = Command(recipe, tuple(overrides), None if out is None else str(out))
        own_folder = recipe_folder(recipe)
        recipe = load_recipe(recipe, overrides, warn=warnings.append)
    else:
        warn_of_long_warmup(recipe, warnings.append)
    folders = data_folders(data, own_folder)
    recipe = resolve(msgspec.structs.replace(recipe, data=anchor(recipe.data, folders, named=named_folder(data))))
    for warning in warnings:
        warn(warning)
    run = RunFolder(out or Path("runs") / recipe.name)
    if run.exists:
        if recipe.train.tokens == "auto":  # chosen when the run was begun
            train = msgspec.structs.replace(recipe.train, tokens=run.recipe().train.tokens)
            recipe = msgspec.structs.replace(recipe, train=train)
        if recipe.train.init is not None and recipe.train.init_tokenizer == "same":
            recipe = with_tokenizer(recipe, run.recipe().tokenizer)
        if run.is_export and differences(run.recipe(), recipe):
            raise ConfigError(
                f"{run} is an export, which cannot be trained further; name another folder with --out (in Python: out=), "
                f"and train.init={run} to begin with its weights"
            )
        refuse_other_recipe(run, recipe, accept)
    run.refuse_foreign_files()
    if run.finished and not _continues(run, recipe, accept):
        listen(Noted(0, f"{run} is already finished; to train again, name another folder with --out (in Python: out=)"))
        return TrainResult(run, finished=True, trained=False)
    device = use_device(pick_device(own_device(recipe.train.device)))
    use_threads(recipe.train.threads)
    with kernels.allowed(recipe.train.kernels), join(device) as world:
        return _train(run, recipe, folders, listen, stop, world, changed=bool(accept), command=command)


def _continues(run: RunFolder, recipe: Recipe, accept: Sequence[str]) -> bool:
    """Return whether a finished run is to be trained for more steps."""
    if "train.steps" not in accept or recipe.train.steps <= run.recipe().train.steps:
        return False
    if not run.steps():
        raise ConfigError(
            f"{run} has no checkpoint to continue from; to train again, name another folder with --out (in Python: out=)"
        )
    return True


def _train(
    run: RunFolder,
    recipe: Recipe,
    folders: list[Path],
    listen: Listener,
    stop: Callable[[], bool],
    world: World,
    *,
    changed: bool,
    command: Command | None,
) -> TrainResult:
    """Train a resolved recipe that has passed all checks. `command` is None for a recipe made in Python."""
    begun = world.gather(run.exists)[0]

    def hear(event: Event) -> None:
        if not world.writes:
            return
        try:
            if logs:
                run.log(log_entry(event))
            if logs and isinstance(event, Started) and event.step == 0:
                # The trainer removes what was logged before it began.
                for note in read:
                    run.log(log_entry(note))
            if logs and isinstance(event, Validated | Saved):
                write_report(run)
        except OSError as error:
            if recipe.train.disk_full == "stop":
                raise disk_error(error, max(run.steps(), default=None)) from error
        listen(event)

    logs = False  # nothing is written before everything is known to fit
    read: list[Noted] = []  # what reading the text left out or mended
    task = task_of(recipe)
    corpus = task.read(folders)
    hear(Noted(0, corpus.summary))
    read = [Noted(0, text) for text in corpus.report.sentences(listed=str(run.path / LEFT_OUT))]
    read += [Noted(0, text) for text in [note_known_examples(recipe, corpus)] if text]
    for event in read:
        hear(event)
    if begun and {name: run.corpus().get(name) for name in corpus.fingerprint()} != corpus.fingerprint():
        raise DataError(f"the text has changed since {run} was begun; put it back, or name another folder with --out")
    # A run with a checkpoint needs the one it began with no more; one that was killed before its first checkpoint does.
    has_checkpoint = recipe.train.init is not None and world.gather(run.latest()[0] is not None)[0]
    initial = None if has_checkpoint else find_initial_run(recipe)
    if begun and initial is not None and initial.digest != run.corpus()[INIT]["sha256"]:
        raise DataError(
            f"{initial.folder} has changed since {run} began with it; put it back, or train into another folder"
        )
    fitted = fit_codec(task, corpus.train, initial) if world.writes and not begun else None
    codec = task.load_codec(run.codec_folder()) if begun else share_codec(task, fitted, world)
    if initial is not None:
        described = describe_tokenizer(recipe, initial, codec)
        if described.tokenizer != recipe.tokenizer:
            tokenizer = f"the tokenizer is that of {initial.folder}, whatever [tokenizer] says"
            hear(Noted(0, f"{tokenizer}; train.init_tokenizer=new trains another one"))
        recipe, task = described, task_of(described)
    model = fresh_model(recipe, task.sizes(codec), added=max(task.added)).to(world.device)
    beginning = begin_with(model, task, codec, initial) if initial is not None else None
    new = beginning.new if beginning is not None else new_parameters(run) if begun else ()
    dataset = task.dataset(corpus.train, codec)
    recipe = choose_budget(task, codec, dataset, model, world, hear)
    task = task_of(recipe)
    extras = task.extras(model, dataset)
    dataset = extras(dataset) if isinstance(dataset, Columns) else dataset
    epochs = task.epochs(corpus.train, dataset, codec)
    loaders = make_loaders(task, corpus.train.counts, dataset, epochs, model, world, hear)
    validate = make_validator(task, corpus.valid, codec, model, world, extras, hear) if corpus.valid else None
    try_one_example(task, codec, model.eval(), world.device, pick_precision(recipe.train.precision, world.device))
    metric = deciding_metric(recipe.train.metric, compares=task.compares, names=recipe.evaluate.metrics)
    trainer = Trainer(
        model,
        loaders,
        recipe.train,
        run,
        world=world,
        validate=validate,
        higher_is_better=metric.higher_is_better,
        listen=hear,
        stop=stop,
        new=new,
    )
    if world.any(stop()):
        return TrainResult(run, finished=False, trained=True)
    with run.locked() if world.writes else nullcontext():
        if world.writes:
            if run.exists != begun:
                raise ConfigError(f"another process has begun {run} meanwhile; give the command again")
            if not begun:  # all that can be refused has been: only now is anything written
                init = {INIT: initial.fingerprint(new)} if initial is not None else {}
                listed = {LEFT_OUT: b"".join(corpus.report.blocks()).decode()} if corpus.report.total else {}
                run.create(recipe, codec, {**corpus.describe(), **init}, listed)
            elif changed:
                run.reopen()
                run.change_recipe(recipe)
        world.wait()  # for the folder to be there
        logs = True
        if command is not None:
            hear(command)
        if beginning is not None:
            hear(Noted(0, beginning.text))
        finished = trainer.fit()
        if world.writes:
            write_report(run)
        return TrainResult(run, finished=finished, trained=True)


def card(
    run: Path | str,
    *,
    data: Path | str | None = None,
    evaluated: bool = True,
    notes: Sequence[str] = (),
    device: str = "auto",
    warn: Callable[[str], None] = warn_caller,
) -> Path:
    """Write a run's card, with its test scores unless `evaluated` is False, and return its path.

    `notes` say what else a reader should know, such as what was tried.
    """
    refuse_no_list("notes", notes, example="A rate of 0.01 diverged.")
    folder = RunFolder(run).require()
    results = []
    if evaluated and folder.recipe().data.test:
        results = [msgspec.to_builtins(one) for one in evaluate(run, data=data, device=device, warn=warn)]
    task = task_of_run(folder)
    checkpoint, name = checked_weights(folder, task, task.load_codec(folder.codec_folder()))
    write_card(folder, make_card(folder, checkpoint, name, results, notes))
    return folder.path / "card.md"


def export(run: Path | str, out: Path | str, *, weights: WeightKind = "float32", cards: bool = True) -> RunFolder:
    """Copy what prediction needs, and the card, to a new folder. Weights may be stored in fewer bytes."""
    source, target = find_run(run), RunFolder(out)
    if target.path.exists() and not (target.path.is_dir() and target.is_unfinished_export()):
        raise ConfigError(f"{target} is there already, and not an empty folder; name another one with --out")
    task = task_of_run(source)
    codec = task.load_codec(source.codec_folder())
    checkpoint, _ = checked_weights(source, task, codec)
    # All are about the final weights.
    about = (CARD_JSON, CARD_PAGE, ADAPTATION_JSON, ADAPTATION_PAGE)
    used = (CALIBRATION, SHORTLIST)
    names = () if source.checkpoint is not None else (*used, *about) if cards else used
    extras = {name: text for name in names if (text := source.read_extra(name)) is not None}
    target.finish(checkpoint, kind=weights)
    target.create(without_folders(source.recipe()), codec, source.corpus(), extras)
    target.sweep()
    return target
