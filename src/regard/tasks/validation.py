"""Scoring a model on the dev set, for any task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from regard.data.batch import Batch
from regard.data.columns import Columns
from regard.data.loader import in_order
from regard.evaluation.metrics import score_all
from regard.models.base import Model
from regard.nn.device import autocast, pick_precision
from regard.tasks.base import Codec, Task
from regard.text.corpus import Pair
from regard.training.events import Example, Validation
from regard.training.trainer import Validate
from regard.training.world import World

EXAMPLES_SHOWN = 5


def make_validator(
    task: Task[Any], examples: list[Pair], codec: Codec, world: World, extras: Callable[[Columns], Columns]
) -> Validate:
    """Return a function that scores a model: its loss over all dev examples, the other metrics over the first few.

    Each process takes its share of the examples; all of them get all scores.
    """
    recipe, device, mine = task.recipe, world.device, slice(world.rank, None, world.size)
    # Refuses a metric that cannot be computed here.
    reference = examples[0].target
    score_all([reference], [reference], recipe.evaluate, compares=task.compares)
    columns = extras(task.encode(examples, codec))
    budget, most = recipe.train.budget, recipe.data.max_length
    batches = in_order(columns, task.collate, added=task.added, budget=budget, max_length=most)[mine]
    shown = examples[: recipe.train.validate_pairs]
    inputs, references = [pair.source for pair in shown], [pair.target for pair in shown]
    precision = pick_precision(recipe.train.precision, device)

    def validate(model: Model) -> Validation:
        with autocast(device, precision):
            loss, tokens = world.sum(*dev_loss(model, batches, device))
            own = task.predictor(model, codec, greedy=True).predict(inputs[mine])
        metrics = {"loss": loss / max(tokens, 1)}
        outputs = [""] * len(inputs)
        for rank, theirs in enumerate(world.gather(own)):
            outputs[rank :: world.size] = theirs
        scores = score_all(outputs, references, recipe.evaluate, compares=task.compares)
        metrics |= {score.name: score.value for score in scores}
        found = [Example(*three) for three in zip(inputs, outputs, references, strict=True)]
        with autocast(device, precision):
            details = task.details(model, codec, found)
        empty = bool(outputs) and not any(output.strip() for output in outputs)
        warnings = (f"all {len(outputs):,} dev outputs are empty: the model writes nothing yet",) if empty else ()
        return Validation(metrics, tuple(found[:: -(-len(found) // EXAMPLES_SHOWN)]), details, warnings)

    return validate


@torch.inference_mode()
def dev_loss(model: Model, batches: Sequence[Batch], device: torch.device) -> tuple[float, int]:
    """Return the summed loss in nats, unsmoothed, and the number of labels: exp of their ratio is the perplexity."""
    total, tokens = 0.0, 0
    for batch in batches:
        total, tokens = total + model(batch.to(device)).item(), tokens + batch.num_tokens
    return total, tokens
