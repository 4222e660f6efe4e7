"""Tasks by name. A model family names the task it is for; a recipe may state another one that the family can do."""

from __future__ import annotations

from typing import Any

from regard.config import Recipe
from regard.errors import ConfigError
from regard.models import MODELS, model_config
from regard.registry import Registry
from regard.tasks.base import Task
from regard.tasks.binary import BinarySequencesTask
from regard.tasks.captioning import CaptioningTask
from regard.tasks.classification import ClassificationTask
from regard.tasks.language_modelling import LanguageModellingTask
from regard.tasks.masked_lm import MaskedLmTask
from regard.tasks.parsing import ParsingTask
from regard.tasks.pointing import PointingTask
from regard.tasks.questions import QuestionAnsweringTask
from regard.tasks.tagging import TaggingTask
from regard.tasks.translation import TranslationTask

TASKS: Registry[type[Task[Any]]] = Registry("task")


def register_task(task: type[Task[Any]], *, replace: bool = False) -> None:
    """Let model families name this task."""
    TASKS.register(task.name, task, replace=replace)


for one in (
    *(TranslationTask, TaggingTask, ClassificationTask, PointingTask, ParsingTask, CaptioningTask),
    *(QuestionAnsweringTask, MaskedLmTask, LanguageModellingTask, BinarySequencesTask),
):
    register_task(one)


def task_of(recipe: Recipe) -> Task[Any]:
    """Return the task of a recipe: the one that its model family names, or that it states itself if the family can do it."""
    kind, _ = model_config(recipe.model)
    family = MODELS.get(kind, where="model.kind")
    if recipe.task is None:
        return TASKS.get(family.task, where=f"the task of the model {kind}")(recipe)
    task = TASKS.get(recipe.task, where="task")
    if family.task not in (task.name, task.uses_families_of):
        raise ConfigError(f"task is {recipe.task!r}, but model.kind={kind} is for {family.task}; change one of them")
    return task(recipe)
