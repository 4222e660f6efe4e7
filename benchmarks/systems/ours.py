"""regard itself, by the functions that `regard train` and `regard translate` call."""

import os
import sys
import time
from functools import partial
from typing import Any

# As in our commands; torch reads it when it is imported.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")

import numpy as np
import torch

from regard.config import SearchOptions, TrainConfig
from regard.data.batch import Batch, collate_pairs, make_batch
from regard.data.columns import Column, Columns, pair_columns
from regard.data.packed_rows import PackedBatch, pack
from regard.data.packed_shapes import SPARE_SIMILAR, PackedShape, pair_shape, round_lengths
from regard.data.packing import fill
from regard.decoding.search import search_all
from regard.models import build_model
from regard.torch_loading import prepare_for_search
from regard.training.cuda_graph import STEPS_BEFORE, CudaGraphStep
from regard.training.data_parallel import DistributedModel
from regard.training.step import make_optimizer, read, training_step
from regard.training.world import World
from systems.padded import configure_torch, draw_weights, synchronize
from workload import Sentences, Setup

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


WINDOW = 8  # of restricted attention


def table_of(setup: Setup, family: str) -> dict[str, Any]:
    """The recipe's [model] table."""
    width, common = setup.width, {"width": setup.width, "dropout": setup.dropout}
    if family == "rnn":
        shape = {"hidden": 2 * width, "num_layers": min(setup.layers, 2), "cell": "lstm", "attention": "general"}
        return {"kind": "rnn", **common, **shape, "input_feeding": False, "tie": "all"}
    if family == "convs2s":
        layers = [(width, 3)] * setup.layers
        return {"kind": "convs2s", **common, "encoder": layers, "decoder": layers, "tie": "all"}
    shape = {"num_layers": setup.layers, "num_heads": setup.heads, "hidden": setup.hidden}
    window = {"window": WINDOW} if family == "window" else {}
    return {"kind": "transformer", **common, **shape, **window}


class Ours:
    def __init__(self, *, family: str = "transformer") -> None:
        self.family = family

    def prepare(self, setup: Setup, job: str) -> int:
        configure_torch(setup)
        self.setup, self.job = setup, job
        table = table_of(setup, self.family)
        self.model = build_model(table, source_size=setup.vocabulary, target_size=setup.vocabulary)
        draw_weights(self.model)
        self.model.to(setup.device)
        if job == "train":
            self.model.train()
            self.config = TrainConfig(label_smoothing=setup.smoothing, clip_norm=setup.clip)
            self.optimizer = make_optimizer(self.model, self.config)
            self.distributed = DistributedModel(
                self.model, smoothing=setup.smoothing, world=World(device=torch.device(setup.device))
            )
            self.recorded: CudaGraphStep | None = None
            self.steps = 0
        else:
            on_gpu = setup.device.startswith("cuda")
            self.model = self.model if on_gpu else self.model.to(DTYPES[setup.precision])
            precision = {"fp32": "float32", "bf16": "bfloat16"}[setup.precision] if on_gpu else "auto"
            self.model = prepare_for_search(self.model, precision)
        return self.model.num_parameters()

    def collate(self, batches: list[Sentences]) -> list[Any]:
        if not self.packs:
            return [make_batch(batch.sources, batch.targets, self.setup.device) for batch in batches]
        # The same sentences in the same number of steps, packed as in `regard train`.
        sides = pair_columns(
            Column.from_lists([ids for batch in batches for ids in batch.sources]),
            Column.from_lists([ids for batch in batches for ids in batch.targets]),
        )
        lay = self.alike if self.model.similar_lengths else self.pack
        packed = []
        for shape, pairs in lay(sides, len(batches)):
            batch = pack(collate_pairs(sides, pairs), shape)
            packed.append(PackedBatch(batch.row.to(self.setup.device), shape, batch.num_tokens))
        return packed

    def pack(self, sides: Columns, steps: int) -> list[tuple[PackedShape, Any]]:
        """Return all sentences in `steps` batches of the smallest shape that holds them."""
        source, target = sides["source"].lengths + 1, sides["target"].lengths + 1
        for spare in np.arange(1.001, 1.05, 0.001):
            tokens = [-(-int(side.sum() * spare / steps) // 64) * 64 for side in (source, target)]
            shape = pair_shape(*tokens, 2 * len(source) // steps, self.setup.longest + 1)
            full, left = fill([source, target], shape, np.random.default_rng(self.setup.seed))
            if len(full) == steps - 1 and len(left):
                return [(shape, pairs) for pairs in [*full, left]]
        raise AssertionError("the sentences do not fit")

    def alike(self, sides: Columns, steps: int) -> list[tuple[PackedShape, Any]]:
        """Return all sentences in `steps` batches of sentences of similar length, each with its own shape.

        These shapes have about as much padding as those of the loader, which serve many batches each.
        """
        source, target = sides["source"].lengths + 1, sides["target"].lengths + 1
        order = np.argsort(np.maximum(source, target), kind="stable")
        tokens = target[order].cumsum()
        found = []
        for pairs in np.split(order, np.searchsorted(tokens, tokens[-1] * np.arange(1, steps) / steps)):
            longest = max(source[pairs].max(), target[pairs].max())
            rounded = next((end + 1 for end in round_lengths(self.setup.longest) if end + 1 >= longest), longest)
            sizes = [-(-int(side[pairs].sum() + 1) // 64) * 64 for side in (source, target)]
            found.append((pair_shape(*sizes, int(SPARE_SIMILAR * len(pairs)) + 9, int(rounded)), pairs))
        return found

    @property
    def packs(self) -> bool:
        """Return whether batches are packed and the step is recorded, as in `regard train` on a GPU."""
        fits = self.model.static_shapes and self.setup.device.startswith("cuda") and self.setup.precision == "bf16"
        return self.job == "train" and fits

    def step(self, batch: Any) -> torch.Tensor:
        self.model.noise.seed(self.setup.seed, self.steps)
        self.steps += 1
        if isinstance(batch, PackedBatch):
            if self.recorded is None:
                self.recorded = CudaGraphStep(
                    self.distributed,
                    self.optimizer,
                    self.config,
                    precision=torch.bfloat16,
                    note=lambda text: print(text, file=sys.stderr),
                )
            return self.recorded([batch], rate=self.setup.lr)
        return training_step(
            self.distributed,
            self.optimizer,
            [batch],
            self.config,
            rate=self.setup.lr,
            precision=DTYPES[self.setup.precision],
        )

    def train_round(self, batches: list[Any]) -> tuple[float, float]:
        # The first round is not timed, so every shape is recorded in it.
        if self.steps == 0 and self.packs:
            for batch in batches * STEPS_BEFORE:
                self.step(batch)
        synchronize(self.setup.device)
        began = time.perf_counter()
        costs = read([self.step(batch) for batch in batches])
        synchronize(self.setup.device)
        seconds = time.perf_counter() - began
        return seconds, sum(cost.loss / cost.tokens for cost in costs) / len(costs)

    def step_times(self, batch: Batch, beam: int) -> dict[str, float]:
        """Return the seconds of a step, and the bytes that it moves at least and per second at most.

        A step reads the weights of the decoder and of the output layer once, the keys and values of all sources and of half
        of the outputs, and writes and reads the logits.
        """
        seconds = {}
        for length in (2, self.setup.output):
            options = SearchOptions(beam=beam, min_length=length, max_length=length, max_extra=length)
            rounds = []
            for _ in range(6):
                synchronize(self.setup.device)
                began = time.perf_counter()
                list(search_all(self.model, [lambda: batch.source], options=options))
                synchronize(self.setup.device)
                rounds.append(time.perf_counter() - began)
            seconds[length] = sorted(rounds)[1]
        setup, rows, entry = self.setup, beam * self.setup.sentences, DTYPES[self.setup.precision].itemsize
        square = setup.width**2
        weights = setup.layers * (6 * square + 2 * setup.width * setup.hidden) + setup.width * setup.vocabulary
        tokens = batch.source.layout.total + rows * setup.output / 2
        moved = entry * (weights + 2 * setup.layers * setup.width * tokens) + 2 * 4 * rows * setup.vocabulary
        return {
            "seconds": (seconds[setup.output] - seconds[2]) / (setup.output - 2),
            "bytes": moved,
            "operations": 2.0 * rows * weights,
            "bytes_per_second": _copy_speed(self.setup.device),
        }

    def decode_round(self, batches: list[Batch], beam: int) -> tuple[float, list[list[list[int]]]]:
        length = self.setup.output
        options = SearchOptions(beam=beam, min_length=length, max_length=length, max_extra=length, scores=False)
        synchronize(self.setup.device)
        began = time.perf_counter()
        outputs: list[dict[int, list[int]]] = [{} for _ in batches]
        sources = [partial(getattr, batch, "source") for batch in batches]
        for number, found in search_all(self.model, sources, options=options):
            outputs[number] |= {sentence: best[0].ids for sentence, best in found}
        synchronize(self.setup.device)
        seconds = time.perf_counter() - began
        return seconds, [[ids for _, ids in sorted(output.items())] for output in outputs]


def _copy_speed(device: str) -> float:
    """Return the bytes per second that a large copy reads and writes."""
    source = torch.randn(2**28, device=device)
    target = torch.empty_like(source)
    rounds = []
    for _ in range(5):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(10):
            target.copy_(source)
        synchronize(device)
        rounds.append(time.perf_counter() - began)
    return 10 * 2 * source.numel() * source.element_size() / min(rounds)
