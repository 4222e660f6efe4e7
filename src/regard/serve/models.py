"""The models that a server offers, by name, and their languages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from regard import loading
from regard.config import SearchOptions
from regard.decoding.translator import Translator
from regard.errors import ConfigError
from regard.nn.linear import refuse_without_int8
from regard.run.finding import find_run, pretrained_models
from regard.run.folder import RunFolder
from regard.serve.access import sentence_cost
from regard.serve.fair_queue import Sentence
from regard.text.segmenter import SplitText, segment

_PAIR = re.compile(r"(?:^|[^a-z])([a-z]{2})-([a-z]{2})$")
MAX_WORKERS = 16
# A text with more characters per allowed token is too long; saves tokenizing it.
MAX_TOKEN_CHARACTERS = 16


@cache
def known_languages() -> dict[str, str]:
    """Return the English names of languages by their two-letter codes."""
    from babel import Locale

    return {code: name for code, name in Locale("en").languages.items() if len(code) == 2}


@dataclass(frozen=True)
class ServedModel:
    """A run that is being served."""

    name: str
    folder: RunFolder
    translator: Translator
    languages: tuple[str, str] | None  # source and target, if known
    card: dict[str, Any] = field(default_factory=dict)

    def count_tokens(self, text: str) -> int:
        return len(self.translator.tokenizers.source.encode(text))

    def split(self, text: str, max_tokens: int) -> SplitText:
        """Split a text into sentences of at most `max_tokens` tokens that are short enough for the model."""
        limit = min(max_tokens, self.translator.longest_source)

        def fits(sentence: str) -> bool:
            return len(sentence) <= MAX_TOKEN_CHARACTERS * limit and self.count_tokens(sentence) <= limit

        return segment(text, fits=fits)

    def with_cost(self, text: str, options: SearchOptions) -> Sentence:
        """Return the sentence with its worst-case cost."""
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
) -> dict[str, ServedModel]:
    """Load the given runs, or the pretrained models if none are given; the first one is the default model.

    They are loaded on the CPU for their tokenizers and sizes; workers translate. Invalid runs are refused here already.
    """
    if int8:
        refuse_without_int8(device)
    found: dict[str, ServedModel] = {}
    for run in runs or list(map(Path, pretrained_models())):
        folder = find_run(run)
        name = "-".join(filter(None, [folder.path.resolve().name, folder.checkpoint]))
        if name in found:
            raise ConfigError(f"two runs have the name {name!r}; rename one of the folders")
        say(f"loading {name} ...")
        card = folder.card() if folder.checkpoint is None else {}
        translator = loading.load_translator(run, "serve", device="cpu", warn=lambda text: None)
        found[name] = ServedModel(name, folder, translator, languages_of(name, folder), card)
    if not found:
        raise ConfigError("there is no model to serve; give a run folder")
    return found


def num_workers(device: torch.device) -> int:
    """Return the number of worker processes: one per core on a CPU, one for a GPU."""
    return max(1, min(torch.get_num_threads(), MAX_WORKERS)) if device.type == "cpu" else 1


def languages_of(name: str, folder: RunFolder) -> tuple[str, str] | None:
    """Return the languages by the suffixes of the training files (train.de) or by the run's name (news-de-en)."""
    data = folder.recipe().data.train
    endings = [str(path or "").removesuffix(".gz").rpartition(".")[2] for path in (data.source, data.target)]
    for source, target in (endings, _PAIR.findall(name)[-1] if _PAIR.search(name) else ("", "")):
        if source != target and {source, target} <= known_languages().keys():
            return source, target
    return None
