"""Tasks by name. A model family names the task it is for."""

from __future__ import annotations

from typing import Any

from regard.config import Recipe
from regard.errors import ConfigError
from regard.models import MODELS, model_config
from regard.registry import Registry
from regard.tasks.base import Task
from regard.tasks.labels import ClassificationTask, TaggingTask
from regard.tasks.language_modelling import LanguageModellingTask
from regard.tasks.pointing import PointingTask
from regard.tasks.translation import TranslationTask

TASKS: Registry[type[Task[Any]]] = Registry("task")


def register_task(task: type[Task[Any]], *, replace: bool = False) -> None:
    """Let model families name this task."""
    TASKS.register(task.name, task, replace=replace)


for one in (TranslationTask, TaggingTask, ClassificationTask, PointingTask, LanguageModellingTask):
    register_task(one)


def task_of(recipe: Recipe) -> Task[Any]:
    """Return the task of a recipe, which its model family names."""
    kind, _ = model_config(recipe.model)
    family = MODELS.get(kind, where="model.kind")
    if recipe.task not in (None, family.task):
        raise ConfigError(f"task is {recipe.task!r}, but model.kind={kind} is for {family.task}; change one of them")
    return TASKS.get(family.task, where=f"the task of the model {kind}")(recipe)
