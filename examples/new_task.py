"""A new task in one file: predict a number from a sequence, here the sum of a row of digits.

What you learn: what a task has to say about itself. `SumTask` turns examples into columns and columns into batches, and puts
a trained model to use; `Regressor` turns a batch into a loss. Once both are registered, `regard.train`, `evaluate`, `card`
and `report` work as for translation: checkpoints, resuming, validation and the log need no further code.

    python examples/new_task.py        trains it on files in a temporary folder, in seconds

Shapes: N tokens, B sequences, D width.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.errors import DataError

NUMBERS = "numbers"  # the kind of the outputs, by which metrics are chosen


# The model


class RegressorConfig(regard.Struct, frozen=True):
    """The keys of the recipe's `[model]` table."""

    width: int = 32
    num_heads: int = 4
    hidden: int = 64


class Regressor(regard.Model):
    """One attention layer, a number per token, and their sum."""

    def __init__(self, config: RegressorConfig | None = None, *, num_symbols: int, **options: int) -> None:
        config = regard.make_config(RegressorConfig, config, options)
        super().__init__()
        self.width = config.width
        self.embedding = nn.Embedding(num_symbols, config.width)
        self.layer = regard.nn.TransformerEncoderLayer(
            config.width, config.num_heads, config.hidden, dropout=0.0, norm_order="pre"
        )
        self.output = nn.Linear(config.width, 1)

    def predict(self, source: regard.Ragged) -> Tensor:
        """Return a number per sequence: [B]."""
        encoded = self.layer(regard.Ragged(self.embedding(source.values), source.layout))
        numbers_N: Tensor = self.output(encoded.values)[:, 0]
        return numbers_N.new_zeros(source.layout.num_sentences).index_add(0, source.layout.sentences, numbers_N)

    def forward(self, batch: regard.Batch, *, smoothing: float = 0.0) -> Tensor:
        return F.mse_loss(self.predict(batch.source), batch.labels.values, reduction="sum")


# The task


class NoCodec:
    """Digits are numbers already, so nothing is learned from the text and nothing is saved."""

    def save(self, folder: regard.Folder) -> None:
        pass


class SumTask(regard.Task[NoCodec]):
    """An example is a line of digits and a line with one number."""

    name = "sum"
    added = (0,)  # `collate` adds no tokens to the only column that limits a batch
    compares = NUMBERS
    searches = False

    def fit(self, train: regard.TrainingData) -> NoCodec:
        return NoCodec()

    def load_codec(self, folder: regard.Folder) -> NoCodec:
        return NoCodec()

    def sizes(self, codec: NoCodec) -> dict[str, int]:
        return {"num_symbols": 10}

    def encode(self, examples: Sequence[regard.Pair], codec: NoCodec) -> regard.Columns:
        digits = regard.Column.from_lists([digits_of(pair.source) for pair in examples])
        sums = regard.Column.from_arrays([np.array([pair.target], dtype=np.float32) for pair in examples])
        return regard.Columns({"digits": digits, "sum": sums}, sized=("digits",))

    def collate(self, columns: regard.Columns, rows: regard.Indices) -> regard.Batch:
        # There is no decoder, so no target; each sequence has one label.
        return regard.Batch(
            regard.gather_rows(columns["digits"], rows), None, regard.gather_rows(columns["sum"], rows), len(rows)
        )

    def probe(self, codec: NoCodec, length: int, count: int) -> regard.Batch:
        source = regard.Ragged.from_lists([[0] * length] * count)
        return regard.Batch(source, None, regard.Ragged(torch.zeros(count), regard.Layout([1] * count)), count)

    def predictor(
        self, model: regard.Model, codec: NoCodec, *, greedy: bool = False, warn: Callable[[str], None] = print
    ) -> SumPredictor:
        assert isinstance(model, Regressor)
        return SumPredictor(model)


class SumPredictor:
    """The model in use: lines of digits in, lines with a number out."""

    def __init__(self, model: Regressor) -> None:
        self.model = model

    @torch.inference_mode()
    def predict(self, inputs: Sequence[str], *, options: regard.SearchOptions | None = None) -> list[str]:
        device = next(self.model.parameters()).device
        source = regard.Ragged.from_lists([digits_of(text) for text in inputs], device)
        return [f"{number:.2f}" for number in self.model.predict(source).tolist()]


def digits_of(text: str) -> list[int]:
    """Return the digits of a line. A user's mistake is explained in one sentence."""
    digits = text.split()
    if not all(len(digit) == 1 and digit in "0123456789" for digit in digits):
        raise DataError(f"{text[:80]!r} is not a row of digits; separate them by spaces, as in 3 1 4")
    return [int(digit) for digit in digits]


def mean_error(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: regard.EvaluateConfig
) -> tuple[float, str]:
    """Return the mean absolute error, and how it is computed."""
    errors = [abs(float(output) - float(reference)) for output, reference in zip(outputs, references, strict=True)]
    return sum(errors) / len(errors), "mean absolute error"


def register() -> None:
    """Add the metric, the task and the model. A plug-in package names such a function in its entry point."""
    regard.register_metric(
        regard.Metric("error", mean_error, higher_is_better=False, label="mean error", decimals=2, compares=(NUMBERS,))
    )
    regard.register_task(SumTask)
    regard.register_model("regressor", regard.Family(RegressorConfig, Regressor, task="sum"))


# A run


RECIPE = """
[data]
train = { pairs = "train.tsv" }
valid = { pairs = "valid.tsv" }
test = { test = { pairs = "test.tsv" } }

[model]
kind = "regressor"

[train]
steps = 300
tokens = 512
schedule = "wsd"
lr = 1e-2
warmup_steps = 20
clip_norm = 1.0
metric = "error"
validate_every = 100
checkpoint_every = 100
"""


def write_rows(path: Path, count: int, seed: int) -> None:
    """Write rows of digits and their sums."""
    generator = random.Random(seed)
    rows = [generator.choices(range(10), k=generator.randint(2, 8)) for _ in range(count)]
    path.write_text("".join(f"{' '.join(map(str, row))}\t{sum(row)}\n" for row in rows))


def main() -> float:
    register()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, (split, count) in enumerate({"train": 4000, "valid": 200, "test": 200}.items()):
            write_rows(folder / f"{split}.tsv", count, seed)
        (folder / "sums.toml").write_text(RECIPE)
        regard.train(str(folder / "sums.toml"), out=folder / "run", data=folder)
        (result,) = regard.evaluate(folder / "run", data=folder)
        card = regard.card(folder / "run", data=folder)
        print(card.read_text().splitlines()[0], "has a card")
        print("3 1 4 1 5 ->", regard.load(folder / "run").predict(["3 1 4 1 5"])[0])
    error = next(score.value for score in result.scores if score.name == "error")
    print(f"mean error on {result.num_pairs} new rows: {error:.2f}")
    return error


if __name__ == "__main__":
    main()
