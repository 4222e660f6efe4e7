"""The validation of a model during training, for any task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.data.batch_sampler import dev_batches
from regard.data.columns import Columns
from regard.errors import ConfigError, DataError
from regard.explain.trace import UNIFORM
from regard.messages import counted
from regard.metrics import METRICS, PROBABILITIES, applicable_metrics, left_out_metrics, score_all
from regard.models.base import Model
from regard.nn.device import autocast, pick_precision
from regard.run.folder import Codec
from regard.tasks.base import Task, dev_loss
from regard.tasks.setup import keep_long, note_left_out
from regard.text.corpus import Pair
from regard.training.events import Example, Listener, Noted, Validation
from regard.training.trainer import Validate
from regard.training.world import World

EXAMPLES_SHOWN = 5
UNIFORM_NOTE = (
    "all heads give all tokens of the source nearly the same weight, so the model has hardly learned to attend to it; "
    "try more steps, a different learning rate or a longer warm-up"
)
POST_NORM = "; for post-norm also model.sublayer_gain=0.5 or model.norm_order=pre"


def make_validator(
    task: Task[Any],
    examples: list[Pair],
    codec: Codec,
    model: Model,
    world: World,
    extras: Callable[[Columns], Columns],
    listen: Listener,
) -> Validate:
    """Return a function that scores a model: its loss over all dev examples, the other metrics over the first few.

    Each process takes its share of the examples; all of them get all scores.
    """
    recipe, device, mine = task.recipe, world.device, slice(world.rank, None, world.size)
    has_outputs = task.compares != PROBABILITIES
    shown = examples[: recipe.train.validate_pairs]
    inputs, references = [pair.source for pair in shown], [pair.target for pair in shown]
    if has_outputs:
        computed = applicable_metrics(references, recipe.evaluate, compares=task.compares)
        for sentence in left_out_metrics(references, recipe.evaluate, compares=task.compares):
            listen(Noted(0, sentence))
        for metric in computed:
            # Refuses a metric that cannot be computed here, because its package is missing or a reference is malformed.
            metric.score(references[:1], references[:1], inputs[:1], recipe.evaluate)
        if recipe.train.metric not in ("loss", *(metric.name for metric in computed)):
            why_not = METRICS.get(recipe.train.metric, where="train.metric").why_not(references, recipe.evaluate)
            raise ConfigError(
                f"train.metric is {recipe.train.metric!r}, but in the dev set {why_not}; "
                f"choose another one: {', '.join(['loss', *(metric.name for metric in computed)])}"
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
    note_left_out(task, columns, "the dev loss", listen)
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
        warnings = (f"all dev outputs are empty ({len(outputs):,}): the model outputs nothing yet",) if empty else ()
        uniform = details.get("attention", {}).get("entropy", 0.0) >= UNIFORM
        advice = POST_NORM if recipe.model.get("norm_order") == "post" else ""
        final = (f"{UNIFORM_NOTE}{advice}",) if uniform else ()
        # Sorted by tags, so that examples of all of them are shown.
        chosen = sorted(found, key=lambda one: one.tags)[:: -(-len(found) // EXAMPLES_SHOWN)]
        described = tuple(replace(one, source=" ".join([*one.tags, task.describe_input(one.source)])) for one in chosen)
        return Validation(metrics, described, details, warnings, final)

    return validate
