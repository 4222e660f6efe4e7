"""The scores of a trained cell on the dev set and the test sets: all metrics, perplexity, outputs and their hashes."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from regard import kernels
from regard.data.batch_sampler import dev_batches
from regard.decoding.options import describe_search
from regard.loading import load
from regard.metrics import PROBABILITIES, score_all
from regard.models.base import Model
from regard.nn.device import autocast, pick_precision
from regard.recipe_files import recipe_folder
from regard.run.folder import RunFolder
from regard.storage.folder import Folder
from regard.study.cells import OUTPUTS, outputs_name
from regard.study.records import SetScores
from regard.study.test_sets import read_sets
from regard.tasks.base import Task, dev_loss
from regard.text.bitext import data_folders, pairs_fingerprint
from regard.text.pair import Pair
from regard.torch_loading import load_model, task_of_run

PERPLEXITY = "perplexity"


def score_cell(
    run: RunFolder, folder: Folder, recipe_name: str, data: str | None, *, only: Collection[str] | None = None
) -> list[SetScores]:
    """Score the final weights of a run on its dev set and its test sets, and write the outputs into the cell's folder.

    `recipe_name` is the name or the file of the recipe, next to which its data may be; `only` names some of the sets.
    """
    task = task_of_run(run)
    sets = read_sets(task, data_folders(data, recipe_folder(recipe_name)))
    device = task.recipe.train.device
    predictor = load(run.path, device=device, warn=lambda text: None)
    codec = task.load_codec(run.codec_folder())
    model = load_model(run.path, device=device)
    outputs_folder = (folder / OUTPUTS).make()
    found = []
    for name in [name for name in sets if only is None or name in only]:
        with kernels.allowed(task.recipe.train.kernels):
            perplexity = perplexity_of(model, task, codec, sets[name])
        found.append(_score(name, task, predictor, sets[name], perplexity, outputs_folder))
    return found


def perplexity_of(model: Model, task: Task[Any], codec: Any, examples: Sequence[Pair]) -> float | None:
    """Return the perplexity per label of the references; None for a model that needs more columns than the text gives."""
    if model.extras:
        return None
    recipe, device = task.recipe, next(model.parameters()).device
    columns = task.encode(examples, codec)
    batches = dev_batches(
        columns, task.collate, added=task.added, budget=recipe.train.budget, max_length=recipe.data.max_length
    )
    with autocast(device, pick_precision(recipe.train.precision, device)):
        loss, labels = dev_loss(model, batches, device)
    return _finite(math.exp(min(loss / max(labels, 1), 700))) if math.isfinite(loss) else None


def _score(
    name: str,
    task: Task[Any],
    predictor: Any,
    examples: Sequence[Pair],
    perplexity: float | None,
    folder: Folder,
) -> SetScores:
    recipe, digest = task.recipe, ""
    if task.compares == PROBABILITIES:
        scores = task.evaluate(predictor, examples, warn=lambda text: None)
    else:
        # A line break would be read as two outputs.
        outputs = [re.sub(r"[\r\n]", " ", text) for text in task.outputs(predictor, examples)]
        content = "".join(f"{text}\n" for text in outputs).encode()
        folder.save_bytes(outputs_name(name), content)
        digest = hashlib.sha256(content).hexdigest()
        inputs, references = [pair.source for pair in examples], [pair.target for pair in examples]
        scores = score_all(outputs, references, inputs, recipe.evaluate, compares=task.compares)
    return SetScores(
        name=name,
        pairs=len(examples),
        sha256=str(pairs_fingerprint(examples)["sha256"]),
        search=describe_search(recipe.decode) if task.searches else "",
        scores={PERPLEXITY: perplexity, **{score.name: _finite(score.value) for score in scores}},
        signatures={score.name: score.signature for score in scores},
        outputs_sha256=digest,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
