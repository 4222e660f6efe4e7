"""The models that a server has, by name, and the languages they are for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from regard import api
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Ready, Translator
from regard.errors import ConfigError
from regard.run.folder import RunFolder
from regard.run.shipped import find_run, shipped_models
from regard.serve.engine import Lane
from regard.serve.sentences import Cut, cut
from regard.serve.worker import Worker

_PAIR = re.compile(r"(?:^|[^a-z])([a-z]{2})-([a-z]{2})$")
MOST_LANES = 16


@cache
def known_languages() -> dict[str, str]:
    """Names of languages by their codes of two letters."""
    from babel import Locale

    return {code: name for code, name in Locale("en").languages.items() if len(code) == 2}


@dataclass(frozen=True)
class Served:
    """A run that is being served."""

    name: str
    folder: RunFolder
    translator: Translator
    languages: tuple[str, str] | None  # source and target, where they are known
    card: dict[str, Any] = field(default_factory=dict)

    def cut(self, text: str) -> Cut:
        """The text's sentences, each short enough for the model."""
        most, encode = self.translator.longest_source, self.translator.tokenizers.source.encode
        return cut(text, fits=lambda sentence: len(sentence) <= most or len(encode(sentence)) <= most)

    def describe(self) -> dict[str, Any]:
        recipe = self.folder.recipe()
        return {
            "name": self.name,
            "source": self.languages[0] if self.languages else None,
            "target": self.languages[1] if self.languages else None,
            "kind": recipe.model["kind"],
            "parameters": self.translator.model.num_parameters(),
            "at_once": self.translator.model.at_once,
            "beam": recipe.decode.beam,
            "card": self.card,
        }


def load_all(
    runs: list[Path], *, device: str, int8: bool, say: Callable[[str], None] = lambda text: None
) -> dict[str, Served]:
    """The runs, or the models in the box where none are named; the first one is the one used unless another is named."""
    found: dict[str, Served] = {}
    for run in runs or list(map(Path, shipped_models())):
        folder = find_run(run)
        name = folder.path.resolve().name
        if name in found:
            raise ConfigError(f"two runs are called {name!r}; rename the folder of one")
        say(f"loading {name} ...")
        translator = api.load(run, device=device, int8=int8)
        found[name] = Served(name, folder, translator, languages_of(name, folder), folder.card())
    if not found:
        raise ConfigError("there is no model to serve; name a run folder")
    return found


def lanes_for(models: dict[str, Served], *, device: str, int8: bool) -> tuple[list[Lane], list[Worker]]:
    """Who translates: on a CPU a process for each core, which are given too, to be ended; else this process."""
    cores = min(torch.get_num_threads(), MOST_LANES)
    here = next(iter(models.values())).translator.model
    if cores > 1 and next(here.parameters()).device.type == "cpu":
        runs = {name: served.folder.path for name, served in models.items()}
        workers = [Worker(runs, device=device, int8=int8, threads=1) for _ in range(cores)]
        return [worker.translate for worker in workers], workers

    def translate(model: str, sentences: list[str], options: SearchOptions) -> Iterator[Ready]:
        return models[model].translator.each(sentences, options=options)

    return [translate], []


def languages_of(name: str, folder: RunFolder) -> tuple[str, str] | None:
    """By how its training files end (train.de, train.en.gz), or by the run's name (de-en, news-de-en)."""
    data = folder.recipe().data.train
    endings = [str(path or "").removesuffix(".gz").rpartition(".")[2] for path in (data.source, data.target)]
    for source, target in (endings, _PAIR.findall(name)[-1] if _PAIR.search(name) else ("", "")):
        if source != target and {source, target} <= known_languages().keys():
            return source, target
    return None
