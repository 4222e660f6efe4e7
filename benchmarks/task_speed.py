"""Compare the training speed of a task recipe with that of a plain PyTorch program of the same model on padded batches.

python benchmarks/task_speed.py runs --peer tagger --device cuda --out benchmarks/results/task-tagger-h200.json

Both train on the same examples in the same precision, in turn, in one process. We get batches as `regard train` makes
them: on a GPU, packed batches and a CUDA graph. The peer (`tasks/PEER.py`) is eager PyTorch; it gets the examples sorted by
length.
"""

import argparse
import importlib
import os
import statistics
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from harness import DISTURBED, Message, finish, say
from machine import machine, machine_seconds, memory, process_seconds
from regard import kernels
from regard.config import Recipe
from regard.data.batch import Batch
from regard.data.batch_sampler import Position, with_added
from regard.data.budget import cut_to_budget
from regard.data.columns import Columns
from regard.nn.device import autocast, pick_precision
from regard.recipe_files import load_recipe, recipe_folder
from regard.tasks import task_of
from regard.tasks.recipe_checks import resolve
from regard.tasks.setup import choose_budget, fresh_model, make_loaders
from regard.text.bitext import anchor, data_folders, named_folder
from regard.training.cuda_graph import STEPS_BEFORE, CudaGraphStep
from regard.training.data_parallel import DistributedModel
from regard.training.step import make_optimizer, training_step
from regard.training.world import World

RATE = 1e-4
SAME_SIZE = 0.02  # the models may differ by this share of their parameters


class Ours:
    """The recipe's model with the batches and the step that `regard train` has."""

    def __init__(self, recipe: Recipe, folders: list[Path], device: torch.device) -> None:
        world = World(device=device)
        task = task_of(recipe)
        corpus = task.read(folders)
        self.codec = task.fit(corpus.train)
        self.sizes = task.sizes(self.codec)
        self.model = fresh_model(recipe, self.sizes, added=max(task.added)).to(device)
        dataset = task.dataset(corpus.train, self.codec)
        recipe = choose_budget(task, self.codec, dataset, self.model, world, lambda event: None)
        self.recipe, self.task = recipe, task_of(recipe)
        extras = task.extras(self.model, dataset)
        dataset = extras(dataset) if isinstance(dataset, Columns) else dataset
        epochs = task.epochs(corpus.train, dataset, self.codec)
        counts = corpus.train.counts
        loaders = make_loaders(self.task, counts, dataset, epochs, self.model, world, lambda event: say(str(event)))
        self.loader = loaders[0]
        # The peer has Adam, so the recipe's optimizer does not matter here.
        self.config = msgspec.structs.replace(recipe.train, optimizer="adam")
        self.precision = pick_precision(recipe.train.precision, device)
        self.distributed = DistributedModel(self.model, smoothing=self.config.label_smoothing, world=world)
        self.optimizer = make_optimizer(self.model, self.config)
        self.model.train()
        self.captured: CudaGraphStep | None = None
        self.steps, self.device = 0, device

    def examples(self, steps: int) -> list[tuple[Columns, Any]]:
        """Return the examples of the first batches of training."""
        return [(columns, rows) for columns, rows, _ in islice(self.loader.own(Position(), rank=0, ranks=1), steps)]

    def batches(self, steps: int) -> list[Any]:
        """Return the first batches of training, on the device."""
        made = [batch for batch, _ in islice(self.loader.batches(Position()), steps)]
        if isinstance(made[0], Batch):
            return [batch.to(self.device) for batch in made]
        return [type(batch)(batch.row.to(self.device), batch.shape, batch.num_tokens) for batch in made]

    def step(self, batch: Any) -> Tensor:
        self.model.noise.seed(0, self.steps)
        self.steps += 1
        if isinstance(batch, Batch):
            return training_step(
                self.distributed, self.optimizer, [batch], self.config, rate=RATE, precision=self.precision
            )
        if self.captured is None:
            self.captured = CudaGraphStep(
                self.distributed, self.optimizer, self.config, precision=self.precision, note=say
            )
        return self.captured([batch], rate=RATE)

    def warm_up(self, batches: list[Any]) -> None:
        """Take the steps after which every shape is captured."""
        for batch in batches * (STEPS_BEFORE + 1 if self.packed else 1):
            self.step(batch)

    @property
    def packed(self) -> bool:
        return type(self.loader).__name__ == "PackedLoader"


class Peer:
    """A plain PyTorch program: eager, padded, fused Adam."""

    def __init__(self, name: str, ours: Ours) -> None:
        module = importlib.import_module(f"tasks.{name}")
        self.device, self.precision, self.config = ours.device, ours.precision, ours.config
        self.padded: Callable[[Batch], tuple[Tensor, ...]] = module.padded
        self.model: nn.Module = module.plain_model(ours.recipe, ours.sizes).to(self.device).train()
        betas, eps = self.config.betas, self.config.eps
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE, betas=betas, eps=eps, fused=True)

    def batches(self, examples: list[tuple[Columns, Any]], ours: Ours) -> list[tuple[tuple[Tensor, ...], int]]:
        """Return the same examples, sorted by length and cut to the same budget, each with its number of labels."""
        columns = examples[0][0]
        assert all(other is columns for other, _ in examples), "the examples of these --steps are not all in memory"
        rows = np.concatenate([chosen for _, chosen in examples])
        lengths = with_added(columns.lengths_of(rows), ours.task.added)
        cut = cut_to_budget(np.lexsort(lengths), lengths, ours.loader.budget)
        made = [ours.task.collate(columns, rows[chosen]) for chosen in cut]
        return [(tuple(one.to(self.device) for one in self.padded(batch)), batch.num_tokens) for batch in made]

    def step(self, batch: tuple[tuple[Tensor, ...], int]) -> Tensor:
        given, labels = batch
        with autocast(self.device, self.precision):
            loss: Tensor = self.model(*given) / labels
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def timed(step: Callable[[Any], Tensor], batches: list[Any], device: torch.device) -> Message:
    """Return the seconds that a round of steps takes, and the share of the machine that others used meanwhile."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    busy, own = machine_seconds(), process_seconds(os.getpid())
    wait()
    began = time.perf_counter()
    results = [step(batch) for batch in batches]
    wait()
    seconds = time.perf_counter() - began
    assert all(torch.isfinite(one).all() for one in results), "a loss is not finite"
    others = (machine_seconds() - busy) - (process_seconds(os.getpid()) - own)
    return {"seconds": seconds, "others": round(max(0.0, others) / seconds / (os.cpu_count() or 1), 3)}


def compare(ours: Ours, peer: Peer, *, steps: int, rounds: int) -> Message:
    """Return the labels per second of both, measured in turn."""
    # Those of one epoch, so that no example is there twice.
    steps = min(steps, len(ours.loader.plan(0)[1]))
    examples = ours.examples(steps)
    own, plain = ours.batches(steps), peer.batches(examples, ours)
    labels = sum(batch.num_tokens for batch in own)
    assert labels == sum(count for _, count in plain), "both must train on the same labels"
    ours.warm_up(own)
    for batch in plain:
        peer.step(batch)
    answers: dict[str, list[Message]] = {"ours": [], "plain": []}
    for number in range(1, rounds + 1):
        # Collated anew: what the model derives from a batch is part of a step.
        own = ours.batches(steps)
        answers["ours"].append(timed(ours.step, own, ours.device))
        answers["plain"].append(timed(peer.step, plain, ours.device))
        speeds = {name: labels / made[-1]["seconds"] for name, made in answers.items()}
        say(f"round {number}: " + ", ".join(f"{name} {speed:,.0f} labels/s" for name, speed in speeds.items()))
    medians = {name: statistics.median(labels / one["seconds"] for one in made) for name, made in answers.items()}
    return {
        "labels": labels,
        "steps": {"ours": len(own), "plain": len(plain)},
        "labels_per_second": {name: round(speed, 1) for name, speed in medians.items()},
        "rounds": {name: [round(labels / one["seconds"], 1) for one in made] for name, made in answers.items()},
        "ours_over_plain": round(medians["ours"] / medians["plain"], 3),
        "quiet": all(one["others"] <= DISTURBED for made in answers.values() for one in made),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="a built-in recipe, or a file")
    parser.add_argument("overrides", nargs="*", help="such as train.tokens=8192")
    parser.add_argument("--peer", required=True, help="a module of benchmarks/tasks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", help="folder of the recipe's text")
    parser.add_argument("--steps", type=int, default=20, help="batches of a round")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each, taken in turn")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    given = parser.parse_args()
    torch.manual_seed(0)
    if given.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
        # cuDNN's attention can return NaN gradients under a mask (pytorch #196678), so neither uses it.
        torch.backends.cuda.enable_cudnn_sdp(False)
    device = torch.device(given.device)
    recipe, folders = load_recipe(given.recipe, given.overrides), data_folders(given.data, recipe_folder(given.recipe))
    recipe = resolve(msgspec.structs.replace(recipe, data=anchor(recipe.data, folders, named=named_folder(given.data))))
    with kernels.allowed(recipe.train.kernels):
        ours = Ours(recipe, folders, device)
        peer = Peer(given.peer, ours)
        sizes = {"ours": ours.model.num_parameters(), "plain": sum(one.numel() for one in peer.model.parameters())}
        if abs(sizes["ours"] / sizes["plain"] - 1) > SAME_SIZE:
            raise SystemExit(f"the models differ by more than {SAME_SIZE:.0%} in size: {sizes}")
        result = compare(ours, peer, steps=given.steps, rounds=given.rounds)
    described = {"recipe": given.recipe, "overrides": given.overrides, "peer": given.peer, "device": str(device)}
    setup = {"precision": str(ours.precision).removeprefix("torch."), "packed": ours.packed, "parameters": sizes}
    result = {**described, **setup, **result, **memory(), "machine": machine(), "failed": {}}
    finish(result, given.out)


if __name__ == "__main__":
    main()
