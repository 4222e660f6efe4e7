"""regard itself, by the functions that `regard train` and `regard translate` call."""

import time

import torch

from regard.config import TrainConfig
from regard.data.loader import Batch, make_batch
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.search import search
from regard.models import build_model
from regard.training.step import make_optimizer, read, training_step
from systems.padded import configure_torch, draw_weights, synchronize
from workload import Sentences, Setup

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Ours:
    def prepare(self, setup: Setup, job: str) -> int:
        configure_torch(setup)
        self.setup = setup
        table = {
            "kind": "transformer",
            "width": setup.width,
            "num_layers": setup.layers,
            "num_heads": setup.heads,
            "hidden": setup.hidden,
            "dropout": setup.dropout,
        }
        self.model = build_model(table, source_size=setup.vocabulary, target_size=setup.vocabulary)
        draw_weights(self.model)
        self.model.to(setup.device)
        if job == "train":
            self.model.train()
            self.config = TrainConfig(label_smoothing=setup.smoothing, clip_norm=setup.clip)
            self.optimizer = make_optimizer(self.model, self.config)
            self.steps = 0
        else:
            self.model.to(DTYPES[setup.precision]).eval()
        return self.model.num_parameters()

    def collate(self, batches: list[Sentences]) -> list[Batch]:
        return [make_batch(batch.sources, batch.targets, self.setup.device) for batch in batches]

    def step(self, batch: Batch) -> float:
        """Mean loss over the target tokens, as the peers report it."""
        self.model.noise.seed(self.setup.seed, self.steps)
        self.steps += 1
        (result,) = read(
            [
                training_step(
                    self.model,
                    self.optimizer,
                    [batch],
                    self.config,
                    rate=self.setup.lr,
                    precision=DTYPES[self.setup.precision],
                )
            ]
        )
        return result.loss / result.tokens

    def train_round(self, batches: list[Batch]) -> tuple[float, float]:
        synchronize(self.setup.device)
        began = time.perf_counter()
        losses = [self.step(batch) for batch in batches]
        synchronize(self.setup.device)
        seconds = time.perf_counter() - began
        return seconds, sum(losses) / len(losses)

    def decode_round(self, batches: list[Batch], beam: int) -> tuple[float, list[list[list[int]]]]:
        length = self.setup.output
        options = SearchOptions(beam=beam, min_length=length, max_length=length, max_extra=length, scores=False)
        synchronize(self.setup.device)
        began = time.perf_counter()
        outputs = [search(self.model, batch.source, options=options) for batch in batches]
        synchronize(self.setup.device)
        seconds = time.perf_counter() - began
        return seconds, [[hypotheses[0].ids for hypotheses in output] for output in outputs]
