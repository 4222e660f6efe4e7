"""The models that a server offers, by name, and their languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard import loading
from regard.config import SearchOptions
from regard.decoding.requests import Request
from regard.decoding.translator import Translator
from regard.engine.threads import default_threads
from regard.errors import ConfigError
from regard.run.finding import find_run, pretrained_models
from regard.run.folder import RunFolder
from regard.serve.access import sentence_cost
from regard.serve.fair_queue import Sentence
from regard.text.languages import known_languages, languages_of
from regard.text.segmenter import SplitText, segment
from regard.text.unknown_share import unknown_share

MAX_WORKERS = 16
# A text with more characters per allowed token is too long; saves tokenizing it.
MAX_TOKEN_CHARACTERS = 16


def language_name(code: str) -> str:
    """Return the English name of a language; its code if there is none."""
    return known_languages().get(code, code)


@dataclass(frozen=True)
class ServedModel:
    """A run that is being served."""

    name: str
    folder: RunFolder
    translator: Translator
    languages: tuple[str, str] | None  # source and target, if known
    card: dict[str, Any] = field(default_factory=dict)
    run: str = ""  # the name of the run, which serves several pairs of languages; empty: this one only

    @property
    def into(self) -> str | None:
        """The language that a tag asks the model to translate into; None: it has one pair of languages only."""
        return self.languages[1] if self.run and self.languages else None

    def count_tokens(self, text: str) -> int:
        return len(self.translator.tag_ids()) + len(self.translator.tokenizers.source.encode(text))

    def unknown_share(self, text: str) -> float:
        """Return the share of a text's characters that the model does not know."""
        return unknown_share(self.translator.tokenizers.source, text)

    def split(self, text: str, max_tokens: int) -> SplitText:
        """Split a text into sentences of at most `max_tokens` tokens that are short enough for the model."""
        limit = min(max_tokens, self.translator.longest_source)

        def fits(sentence: str) -> bool:
            return len(sentence) <= MAX_TOKEN_CHARACTERS * limit and self.count_tokens(sentence) <= limit

        return segment(text, fits=fits)

    def with_cost(self, text: str, options: SearchOptions, demands: Mapping[str, Any] | None = None) -> Sentence:
        """Return the sentence with its demands, which are fields of a request, and its worst-case cost."""
        source, demands = self.count_tokens(text), demands or {}
        output = self.translator.output_limit(Request(text, **demands), source, options)
        passes = options.iterations if self.translator.backend.non_autoregressive else 1
        reranked = options.mbr is not None or bool(options.coverage_penalty)
        rows = options.beam
        if options.confidence:  # a second pass over what search returns: all beams if they are ranked afterwards
            rows += options.beam if reranked else options.nbest
        if options.coverage_penalty:
            rows += options.beam
        return Sentence(text, sentence_cost(source, output, rows=rows, passes=passes), demands)

    def describe(self) -> dict[str, Any]:
        recipe = self.folder.recipe()
        return {
            "name": self.name,
            "source": self.languages[0] if self.languages else None,
            "target": self.languages[1] if self.languages else None,
            "kind": recipe.model["kind"],
            "parameters": self.translator.backend.num_parameters(),
            "calibrated": self.translator.calibrated_temperature is not None,
            "non_autoregressive": self.translator.backend.non_autoregressive,
            "beam": recipe.decode.beam,
            "card": self.card,
        }


def load_all(
    runs: list[Path],
    *,
    int8: bool | None,
    engine: loading.EngineChoice = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, ServedModel]:
    """Load the given runs, or the pretrained models if none are given; the first one is the default model.

    They are loaded on the CPU for their tokenizers and sizes; workers translate. Invalid runs are refused here already.
    """
    found: dict[str, ServedModel] = {}
    for run in runs or list(map(Path, pretrained_models())):
        folder = find_run(run)
        name = "-".join(filter(None, [folder.path.resolve().name, folder.checkpoint]))
        if any(name in (one.name, one.run) for one in found.values()):
            raise ConfigError(f"two runs have the name {name!r}; rename one of the folders")
        say(f"loading {name} ...")
        card = folder.card() if folder.checkpoint is None else {}
        translator = loading.load_translator(
            run, "serve", device="cpu", warn=lambda text: None, engine=engine, int8=int8
        )
        if len(translator.languages.pairs) < 2:
            found[name] = ServedModel(name, folder, translator, languages_of(folder.recipe().data, name), card)
            continue
        for source, target in translator.languages.pairs:
            pair = f"{name}:{source}-{target}"
            found[pair] = ServedModel(pair, folder, translator.into(target), (source, target), card, run=name)
    if not found:
        raise ConfigError("there is no model to serve; give a run folder")
    return found


def refuse_unknown_pivot(models: dict[str, ServedModel], pivot: str | None) -> None:
    """Raise ConfigError if no text can be translated through this language."""
    pairs = [one.languages for one in models.values() if one.languages is not None]
    both = {target for _, target in pairs} & {source for source, _ in pairs}
    if pivot is not None and pivot not in both:
        there = ", ".join(sorted(both)) or "none"
        raise ConfigError(
            f"--pivot is {pivot!r}, but a pivot must be translated into and out of; languages for which this is so: {there}"
        )


def num_workers(threads: int, *, gpu: bool) -> int:
    """Return the number of worker processes: one per core on a CPU, `threads` of them if it is not 0, one for a GPU."""
    return 1 if gpu else max(1, min(threads or default_threads(), MAX_WORKERS))
