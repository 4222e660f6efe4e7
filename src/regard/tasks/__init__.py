"""Tasks by name. A model family names the task it is for."""

from __future__ import annotations

from typing import Any

from regard.config import Recipe
from regard.models import MODELS, model_config
from regard.tasks.base import Task
from regard.tasks.translation import Translation

TASKS: dict[str, type[Task[Any]]] = {task.name: task for task in (Translation,)}


def task_of(recipe: Recipe) -> Task[Any]:
    """Return the task of a recipe, which its model family names."""
    kind, _ = model_config(recipe.model)
    return TASKS[MODELS[kind].task](recipe)
