"""The models that a server has, by name, and the languages they are for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from regard import api
from regard.decoding.hypotheses import SearchOptions
from regard.decoding.translator import Translator
from regard.errors import ConfigError
from regard.nn.int8 import refuse_without_int8
from regard.run.folder import RunFolder
from regard.run.pretrained import find_run, pretrained_models
from regard.serve.limits import sentence_cost
from regard.serve.sentences import Cut, cut
from regard.serve.work import Sentence

_PAIR = re.compile(r"(?:^|[^a-z])([a-z]{2})-([a-z]{2})$")
MOST_WORKERS = 16
LONGEST_PIECE = (
    16  # characters of a token, or a few more: a text with as many times more characters than tokens is too long
)


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

    def count_tokens(self, text: str) -> int:
        return len(self.translator.tokenizers.source.encode(text))

    def cut(self, text: str, most_tokens: int) -> Cut:
        """The text's sentences, each with at most so many tokens, and short enough for the model."""
        most = min(most_tokens, self.translator.longest_source)
        return cut(
            text, fits=lambda sentence: len(sentence) <= LONGEST_PIECE * most and self.count_tokens(sentence) <= most
        )

    def priced(self, text: str, options: SearchOptions) -> Sentence:
        """A sentence, and what it costs at worst."""
        model, source = self.translator.model, self.count_tokens(text)
        output = options.limit(source) if model.max_length is None else min(options.limit(source), model.max_length)
        passes = options.iterations if model.non_autoregressive else 1
        return Sentence(text, sentence_cost(source, output, rows=options.beam, passes=passes))

    def describe(self) -> dict[str, Any]:
        recipe = self.folder.recipe()
        return {
            "name": self.name,
            "source": self.languages[0] if self.languages else None,
            "target": self.languages[1] if self.languages else None,
            "kind": recipe.model["kind"],
            "parameters": self.translator.model.num_parameters(),
            "non_autoregressive": self.translator.model.non_autoregressive,
            "beam": recipe.decode.beam,
            "card": self.card,
        }


def load_all(
    runs: list[Path], *, device: torch.device, int8: bool, say: Callable[[str], None] = lambda text: None
) -> dict[str, Served]:
    """The runs, or the models in the box where none are named; the first one is the one used unless another is named.

    They are loaded on the CPU, for their tokenizers and facts: workers translate. What they would refuse is refused here.
    """
    if int8:
        refuse_without_int8(device)
    found: dict[str, Served] = {}
    for run in runs or list(map(Path, pretrained_models())):
        folder = find_run(run)
        name = folder.path.resolve().name
        if name in found:
            raise ConfigError(f"two runs are called {name!r}; rename the folder of one")
        say(f"loading {name} ...")
        translator = api.load_translator(run, "serve", device="cpu")
        found[name] = Served(name, folder, translator, languages_of(name, folder), folder.card())
    if not found:
        raise ConfigError("there is no model to serve; name a run folder")
    return found


def num_workers(device: torch.device) -> int:
    """How many processes translate: one per core on a CPU, one for a GPU."""
    return max(1, min(torch.get_num_threads(), MOST_WORKERS)) if device.type == "cpu" else 1


def languages_of(name: str, folder: RunFolder) -> tuple[str, str] | None:
    """By how its training files end (train.de, train.en.gz), or by the run's name (de-en, news-de-en)."""
    data = folder.recipe().data.train
    endings = [str(path or "").removesuffix(".gz").rpartition(".")[2] for path in (data.source, data.target)]
    for source, target in (endings, _PAIR.findall(name)[-1] if _PAIR.search(name) else ("", "")):
        if source != target and {source, target} <= known_languages().keys():
            return source, target
    return None
