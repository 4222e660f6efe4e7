"""What training needs before its first step, for any task: codec, model, batches, and a token budget that fits."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch

from regard import kernels
from regard.config import Recipe
from regard.config.mixing import stage_begins, used_after
from regard.data.batch_sampler import Loader, too_long
from regard.data.batch_structure import UnknownSize, check_structure, structure_of
from regard.data.columns import Columns, Dataset
from regard.data.mixing import Mixture
from regard.data.packing import PackedLoader
from regard.errors import ConfigError
from regard.messages import counted
from regard.models import build_model
from regard.models.base import Model
from regard.nn.device import autocast, pick_precision
from regard.run.folder import Codec
from regard.storage.folder import Folder
from regard.tasks.base import Task
from regard.training.events import Listener, Noted
from regard.training.memory_check import check_memory, largest_budget, longest_sentences, rectangles
from regard.training.world import World

WORTH_SCORING = 200  # steps of a run that is not only tried out


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


def note_left_out(task: Task[Any], dataset: Dataset, what: str, listen: Listener) -> None:
    """Note how many examples are too long for training, or for the dev loss."""
    most = task.recipe.data.max_length
    left_out = len(dataset) - dataset.upto(most).examples
    if left_out:
        those = f"{left_out:,} of {counted(len(dataset), 'example')}"
        more = f"more than {counted(most, 'token')} on a side"
        listen(Noted(0, f"{what} leaves out {those} with {more}; {keep_long(task)}"))


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
    if not dataset.upto(most).examples:
        raise too_long(most)
    note_left_out(task, dataset, "training", listen)
    task.check(dataset, model, listen)
    _note_late_scores(recipe, listen)
    obstacle = why_not_packed(task, dataset, model, world)
    if obstacle and next(model.parameters()).is_cuda:
        listen(Noted(0, f"batches hold examples of similar length, without a CUDA graph, because {obstacle}"))
    corpora, loaders = recipe.data.corpora, {}
    for begin in stage_begins(corpora, recipe.train.steps):
        pairs = zip(corpora, used_after(corpora, begin), strict=True)
        weights = [(1.0 if one.weight is None else one.weight) if used else None for one, used in pairs]
        mixture = Mixture(counts, weights, seed=recipe.train.seed)
        loaders[begin] = _make_loader(task, mixture_epochs(mixture, epochs), mixture.epoch(dataset, 0), model, obstacle)
    return loaders


def _note_late_scores(recipe: Recipe, listen: Listener) -> None:
    """Note that a run, unless it is very short, ends before its dev set is scored for the first time."""
    train = recipe.train
    every = train.validate_every or train.checkpoint_every
    if recipe.data.dev_sets and WORTH_SCORING <= train.steps < every:
        listen(
            Noted(
                0,
                f"the dev set is scored every {every:,} steps, and training has {train.steps:,}: no scores before the end; "
                f"to see some, set train.validate_every={max(1, train.steps // 10)}",
            )
        )


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
        return "training computes in float32"
    if not model.static_shapes:
        return "this family, model.attention or the width of the heads does not suit our kernels"
    if model.similar_lengths and (world.size > 1 or not config.graph or config.accumulate > 1):
        return (
            "packing helps this model family only with a CUDA graph, which needs one process, train.graph=true and "
            "train.accumulate=1"
        )
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
