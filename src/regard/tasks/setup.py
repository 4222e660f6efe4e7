"""What training needs before its first step, for any task: model, batches, a budget that fits, validation, refusals."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch

from regard import kernels
from regard.config import Bitext, DataConfig, Recipe
from regard.config.mixing import stage_begins, used_after
from regard.data.batch_sampler import Loader, dev_batches, too_long
from regard.data.batch_structure import UnknownSize, check_structure, structure_of
from regard.data.columns import Columns, Dataset
from regard.data.mixing import Mixture
from regard.data.packing import PackedLoader
from regard.errors import ConfigError, DataError, did_you_mean
from regard.messages import counted
from regard.metrics import PROBABILITIES, applicable_metrics, deciding_metric, score_all
from regard.models import MODELS, build_model, model_config
from regard.models.base import Model
from regard.nn.device import autocast, pick_precision
from regard.recipe_files import differences
from regard.run.folder import Codec, RunFolder
from regard.storage.folder import Folder
from regard.tasks import task_of
from regard.tasks.base import Task, dev_loss
from regard.text.corpus import Pair
from regard.text.tokenizer import refuse_unknown_kinds
from regard.toml import to_table
from regard.training.events import Example, Listener, Noted, Validation
from regard.training.memory_check import check_memory, largest_budget, longest_sentences, rectangles
from regard.training.trainer import Validate
from regard.training.world import World

EXAMPLES_SHOWN = 5


def make_validator(
    task: Task[Any],
    examples: list[Pair],
    codec: Codec,
    model: Model,
    world: World,
    extras: Callable[[Columns], Columns],
) -> Validate:
    """Return a function that scores a model: its loss over all dev examples, the other metrics over the first few.

    Each process takes its share of the examples; all of them get all scores.
    """
    recipe, device, mine = task.recipe, world.device, slice(world.rank, None, world.size)
    has_outputs = task.compares != PROBABILITIES
    shown = examples[: recipe.train.validate_pairs]
    inputs, references = [pair.source for pair in shown], [pair.target for pair in shown]
    if has_outputs:
        computed = applicable_metrics(references, compares=task.compares, names=recipe.evaluate.metrics)
        for metric in computed:
            # Refuses a metric that cannot be computed here, because its package is missing or a reference is malformed.
            metric.score(references[:1], references[:1], inputs[:1], recipe.evaluate)
        if recipe.train.metric not in ("loss", *(metric.name for metric in computed)):
            raise ConfigError(
                f"train.metric is {recipe.train.metric!r}, which cannot be computed with the dev references; "
                "set train.metric=loss"
            )
    columns = extras(task.encode(examples, codec))
    try:
        task.check(columns, model, lambda event: None)
    except DataError as error:
        raise DataError(f"in the dev set, {error}") from error
    budget, most = recipe.train.budget, recipe.data.max_length
    batches = dev_batches(columns, task.collate, added=task.added, budget=budget, max_length=most)
    if not batches:
        raise DataError(f"every dev example has more than {counted(most, 'token')} on a side; {keep_long(task)}")
    batches = batches[mine]
    precision = pick_precision(recipe.train.precision, device)

    def validate(model: Model) -> Validation:
        with autocast(device, precision):
            loss, tokens = world.sum(*dev_loss(model, batches, device))
        metrics = {"loss": loss / max(tokens, 1)}
        if not has_outputs:
            metrics |= {score.name: score.value for score in task.loss_scores(loss, int(tokens), examples, codec)}
            return Validation(metrics, ())
        with autocast(device, precision):
            own = task.outputs(task.predictor(model, codec, greedy=True), shown[mine])
        outputs = [""] * len(inputs)
        for rank, theirs in enumerate(world.gather(own)):
            outputs[rank :: world.size] = theirs
        scores = score_all(outputs, references, inputs, recipe.evaluate, compares=task.compares)
        metrics |= {score.name: score.value for score in scores}
        tags = [pair.tags for pair in shown]
        found = [Example(*four) for four in zip(inputs, outputs, references, tags, strict=True)]
        with autocast(device, precision):
            details = task.details(model, codec, found)
        empty = bool(outputs) and not any(output.strip() for output in outputs)
        warnings = (f"all dev outputs are empty ({len(outputs):,}): the model writes nothing yet",) if empty else ()
        # Sorted by tags, so that examples of all of them are shown.
        chosen = sorted(found, key=lambda one: one.tags)[:: -(-len(found) // EXAMPLES_SHOWN)]
        described = tuple(replace(one, source=" ".join([*one.tags, task.describe_input(one.source)])) for one in chosen)
        return Validation(metrics, described, details, warnings)

    return validate


# Settings of the machine and of the display, and where files are looked for: a run may resume with others.
NOT_THE_RUN = (
    *("train.threads", "train.device", "train.parallel", "train.log_every", "train.tensorboard", "train.keep"),
    *("data.folders", "data.origin"),
)

# Settings that `--accept` may change in a run that has begun: none that its weights, optimizer or order of batches follow
# from.
MAY_CHANGE = (
    *("train.steps", "train.lr", "train.schedule", "train.warmup_steps", "train.decay", "train.weight_decay"),
    *("train.accumulate", "train.label_smoothing", "train.clip_norm", "train.max_bad_steps", "train.average"),
    *("train.final", "train.metric"),
    *("train.patience", "train.validate_every", "train.validate_pairs", "train.checkpoint_every", "train.disk_full"),
    *("train.stall_seconds", "train.kernels", "train.graph", "train.precision", "data.test", "decode", "evaluate"),
)


def resolve(recipe: Recipe) -> Recipe:
    """Return the recipe with its model's preset spelled out, so that the run folder says everything.

    Names that are not registered are refused here.
    """
    _, config = model_config(recipe.model)
    refuse_unknown_kinds(recipe.tokenizer)
    sides = recipe.tokenizer.source is not None or recipe.tokenizer.target is not None
    if sides and getattr(config, "tie", None) == "all":
        # The model would notice only if the vocabularies differ in size.
        raise ConfigError("model.tie is 'all', but each side has a tokenizer of its own; set model.tie=target")
    if recipe.data.tags and not task_of(recipe).reads_tags:
        raise ConfigError(
            f"data.train has the tag {recipe.data.tags[0]!r}, but {task_of(recipe).name} reads no tags; leave it out"
        )
    if recipe.data.augment is not None and not task_of(recipe).augments:
        raise ConfigError(f"data.augment is for translation, not for {task_of(recipe).name}; leave it out")
    deciding_metric(recipe.train.metric, compares=task_of(recipe).compares, names=recipe.evaluate.metrics)
    for (table, name), without in _ignored_options(recipe).items():
        given, default = (getattr(getattr(one, table), name) for one in (recipe, DEFAULTS))
        if given not in (default, without):
            raise ConfigError(
                f"{table}.{name} is {given}, but a {task_of(recipe).name} recipe with model.kind={recipe.model['kind']} "
                "ignores it; leave it out"
            )
    return _with_all_options(recipe)


DEFAULTS = Recipe(name="defaults", data=DataConfig(train=Bitext(pairs="-")), model={})


def _ignored_options(recipe: Recipe) -> dict[tuple[str, str], Any]:
    """Return table and name of each option that has no effect here, and a value that may be given all the same."""
    kind, config = model_config(recipe.model)
    ignored = {("decode", name): getattr(DEFAULTS.decode, name) for name in task_of(recipe).ignored_options}
    family = MODELS.get(kind, where="model.kind")
    # The loss of a conditional random field is not smoothed.
    if not getattr(family.build, "smooths_labels", True) or getattr(config, "crf", False):
        ignored["train", "label_smoothing"] = 0.0
    return ignored


def _with_all_options(recipe: Recipe) -> Recipe:
    """Return the recipe with every option of its model, also those that were added since it was written."""
    kind, config = model_config(recipe.model)
    return msgspec.structs.replace(recipe, model={"kind": kind, **to_table(config)})


def _without_ignored(recipe: Recipe) -> Recipe:
    """Return the recipe with one value for each option that has no effect, whatever it was."""
    for (table, name), without in _ignored_options(recipe).items():
        changed = msgspec.structs.replace(getattr(recipe, table), **{name: without})
        recipe = msgspec.structs.replace(recipe, **{table: changed})
    return recipe


def refuse_other_recipe(run: RunFolder, recipe: Recipe, accept: Sequence[str]) -> None:
    """Raise ConfigError if a run was begun with settings that differ from the recipe's, `accept` excepted."""
    for key in accept:
        if not key.startswith(MAY_CHANGE):
            raise ConfigError(f"{key} cannot change in a run that has begun; {did_you_mean(key, MAY_CHANGE)}")

    def is_meant(change: str) -> bool:
        key = change.partition(":")[0]
        return any(key == meant or key.startswith(f"{meant}.") for meant in (*NOT_THE_RUN, *accept))

    before, now = _without_ignored(_with_all_options(run.recipe())), _without_ignored(recipe)
    changed = [change for change in differences(before, now) if not is_meant(change)]
    if changed:
        raise ConfigError(
            f"{run} holds a run of another recipe ({'; '.join(changed[:5])}); name another folder with --out, "
            "give the settings it was started with, or pass --accept KEY for each intended change"
        )


def share_codec(task: Task[Any], codec: Codec | None, world: World) -> Codec:
    """Return the codec of the first process, which alone has fitted one."""
    with TemporaryDirectory() as name:
        folder = Folder(name)
        if codec is not None and world.size > 1:
            codec.save(folder)
        files = {file: base64.b64encode(folder.load_bytes(file)).decode() for file in folder.names()}
        received = world.gather(files)[0]
        if codec is not None:
            return codec
        for file, content in received.items():
            folder.save_bytes(file, base64.b64decode(content))
        loaded: Codec = task.load_codec(folder)
        return loaded


def fresh_model(recipe: Recipe, sizes: dict[str, int], *, added: int = 1) -> Model:
    """Return a model whose first weights follow from the seed, without touching the global generator.

    `added` tokens of a sequence, such as EOS, must fit behind those of the text.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(recipe.train.seed)
        model = build_model(recipe.model, **sizes)
    if model.max_length is not None and recipe.data.max_length + added > model.max_length:
        fits = model.max_length - added
        end = " and EOS" if added else ""
        raise ConfigError(
            f"the model takes at most {counted(fits, 'token')}{end}; set data.max_length={fits}, or more model.max_positions"
        )
    return model


def keep_long(task: Task[Any]) -> str:
    """Return how to keep examples that are too long."""
    most = task.recipe.data.max_length
    cut = ", or cut them with data.cut_source=true or data.cut_target=true" if task.cuts else ""
    return f"to keep them, raise data.max_length (now {most:,}){cut}"


def make_loaders(
    task: Task[Any],
    counts: Sequence[int],
    dataset: Dataset,
    epochs: Callable[[int], Dataset],
    model: Model,
    world: World,
    listen: Listener,
) -> dict[int, Loader | PackedLoader]:
    """Return the batches of each stage of training, by the number of steps that are taken before it.

    `dataset` are the examples of all corpora as they are without sampling, `epochs` those of each epoch; `counts` are the
    numbers of examples of the corpora.
    """
    recipe, most = task.recipe, task.recipe.data.max_length
    left_out = len(dataset) - dataset.upto(most).examples
    if left_out == len(dataset):
        raise too_long(most)
    if left_out:
        those = f"{left_out:,} of {counted(len(dataset), 'example')}"
        more = f"more than {counted(most, 'token')} on a side"
        listen(Noted(0, f"training leaves out {those} with {more}; {keep_long(task)}"))
    task.check(dataset, model, listen)
    obstacle = why_not_packed(task, dataset, model, world)
    if obstacle and next(model.parameters()).is_cuda:
        listen(Noted(0, f"batches hold sentences of similar length, without a CUDA graph, because {obstacle}"))
    corpora, loaders = recipe.data.corpora, {}
    for begin in stage_begins(corpora, recipe.train.steps):
        pairs = zip(corpora, used_after(corpora, begin), strict=True)
        weights = [(1.0 if one.weight is None else one.weight) if used else None for one, used in pairs]
        mixture = Mixture(counts, weights, seed=recipe.train.seed)
        loaders[begin] = _make_loader(task, mixture_epochs(mixture, epochs), mixture.epoch(dataset, 0), model, obstacle)
    return loaders


def mixture_epochs(mixture: Mixture, epochs: Callable[[int], Dataset]) -> Callable[[int], Dataset]:
    """Return a function from the number of an epoch to the examples that are drawn for it."""
    if mixture.is_all:
        return epochs

    @lru_cache(maxsize=1)
    def draw(epoch: int) -> Dataset:
        return mixture.epoch(epochs(epoch), epoch)

    return draw


def _make_loader(
    task: Task[Any], epochs: Callable[[int], Dataset], dataset: Dataset, model: Model, obstacle: str
) -> Loader | PackedLoader:
    """Return packed batches where nothing is an obstacle to them, batches of examples of similar length elsewhere."""
    recipe, most = task.recipe, task.recipe.data.max_length
    left_out = len(dataset) - dataset.upto(most).examples
    if left_out == len(dataset):
        raise too_long(most)
    budget, seed = recipe.train.budget, recipe.train.seed
    if obstacle:
        return Loader(
            epochs, task.collate, added=task.added, budget=budget, max_length=most, seed=seed, left_out=left_out
        )
    return PackedLoader(
        epochs,
        task.collate,
        added=task.added,
        budget=budget,
        max_length=most,
        seed=seed,
        similar_lengths=model.similar_lengths,
        left_out=left_out,
    )


def why_not_packed(task: Task[Any], dataset: Dataset, model: Model, world: World) -> str:
    """Return what keeps batches from being packed for our kernels; an empty text if nothing does."""
    weight, config = next(model.parameters()), task.recipe.train
    if not weight.is_cuda:
        return "there is no GPU"
    if not config.kernels:
        return "train.kernels is false"
    if not kernels.usable(weight):
        return "Triton is not installed"
    if not model.packs_float32 and pick_precision(config.precision, weight.device) == torch.float32:
        return "products are in float32"
    if not model.static_shapes:
        return "this family, model.attention or the width of the heads does not suit our kernels"
    if model.similar_lengths and (world.size > 1 or not config.graph or config.accumulate > 1):
        return "this family gains by packing only in a CUDA graph: one process, train.graph, no train.accumulate"
    try:
        most = task.recipe.data.max_length
        structure = structure_of(dataset, task.collate, added=task.added, max_length=most)
        if isinstance(dataset, Columns):
            # A store holds the ids of sequence pairs, which all have one structure.
            check_structure(structure, dataset, task.collate, max_length=most)
    except UnknownSize as error:
        return str(error)
    return ""


def choose_budget(
    task: Task[Any], codec: Codec, dataset: Dataset, model: Model, world: World, listen: Listener
) -> Recipe:
    """Return the recipe with a token budget that fits every process: the one it names, or the largest that fits."""
    recipe, probe = task.recipe, partial(task.probe, codec)
    precision, totals = pick_precision(recipe.train.precision, world.device), dataset.upto(recipe.data.max_length)
    added = max(task.added)
    batch_of = longest_sentences(totals.longest, probe, added=added)
    most = max(totals.tokens) + added * totals.examples
    if model.similar_lengths and not why_not_packed(task, dataset, model, world):
        # Rectangles are equally large for a small corpus.
        structure = structure_of(dataset, task.collate, added=task.added, max_length=recipe.data.max_length)
        batch_of, most = rectangles(dataset, structure, recipe.data.max_length, probe), sys.maxsize
    if recipe.train.tokens != "auto":
        check_memory(model, min(recipe.train.tokens, most), batch_of, precision=precision)
        return recipe
    budget = min(world.gather(largest_budget(model, batch_of, precision=precision)))
    listen(Noted(0, f"train.tokens=auto: {budget:,} tokens per batch fit into memory"))
    return msgspec.structs.replace(recipe, train=msgspec.structs.replace(recipe.train, tokens=budget))


def try_one_example(task: Task[Any], codec: Codec, model: Model, device: torch.device, precision: torch.dtype) -> None:
    """Run a made-up example through the model, so that what cannot run on this machine fails before a folder exists."""
    with torch.inference_mode(), autocast(device, precision):
        model(task.probe(codec, 1, 1).to(device))
