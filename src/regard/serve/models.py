"""The models that a server has, by name, and the languages they are for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard import api
from regard.decoding.translator import Translator
from regard.errors import ConfigError
from regard.run.folder import RunFolder
from regard.run.shipped import find_run, shipped_models
from regard.serve.engine import Engine
from regard.serve.limits import Limits
from regard.serve.sentences import Cut, cut

_PAIR = re.compile(r"(?:^|[^a-z])([a-z]{2,3})-([a-z]{2,3})$")
LANGUAGES = {
    "cs": "Czech", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian", "ja": "Japanese",
    "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "zh": "Chinese",
}  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A run that is being served."""

    name: str
    folder: RunFolder
    translator: Translator
    engine: Engine
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
    runs: list[Path], *, device: str, limits: Limits, say: Callable[[str], None] = lambda text: None
) -> dict[str, Served]:
    """The runs, or the models in the box where none are named; the first one is the one used unless another is named."""
    found: dict[str, Served] = {}
    for run in runs or list(map(Path, shipped_models())):
        folder = find_run(run)
        name = folder.path.resolve().name
        if name in found:
            raise ConfigError(f"two runs are called {name!r}; rename the folder of one")
        say(f"loading {name} ...")
        translator = api.load(run, device=device)
        card = folder.path / "card.json"
        served = Served(
            name, folder, translator, Engine(translator, limits), languages_of(name, folder), _read_card(card)
        )
        found[name] = served
    if not found:
        raise ConfigError("there is no model to serve; name a run folder")
    return found


def languages_of(name: str, folder: RunFolder) -> tuple[str, str] | None:
    """By the run's name (de-en, news-de-en), or by how its training files end (train.de, train.en.gz)."""
    if pair := _PAIR.search(name):
        return pair[1], pair[2]
    data = folder.recipe().data.train
    endings = [_ending(path) for path in (getattr(data, "source", None), getattr(data, "target", None))]
    return (endings[0], endings[1]) if endings[0] and endings[1] and endings[0] != endings[1] else None


def _ending(path: Any) -> str:
    last = str(path or "").removesuffix(".gz").rpartition(".")[2]
    return last if re.fullmatch(r"[a-z]{2,3}", last) else ""


def _read_card(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return card
